"""From a call's shape to a native plan: filling in what only a live communicator knows."""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
from mpi4py import MPI

from han import _native
from han.message import Message
from han.program import INSTRUCTION, Program
from han.tasks.signature import Signature

if TYPE_CHECKING:
    from han.mapping import Mapping
    from han.state import State
    from han.tasks.plan import Plan
    from han.tuning.rules import Decision

MOST = 512  # plans kept, the least recently used goes first
BRIEF = 64 << 10  # bytes that Python's other threads may be kept waiting for
BLOCKING = "mpi"  # the submodule whose plans cannot serve nonblocking calls
Members = tuple[int, ...]


@dataclass(frozen=True)
class Prepared:
    """A plan that can run: the native one, and what it was made from; `number` is its own."""

    native: Any
    program: Program
    plan: Plan
    decision: Decision
    number: int = 0


def identity(signature: Signature) -> int:
    """Return a number that tells calls apart, the same on all ranks."""
    digest = hashlib.blake2b(repr(signature).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def native_plan(
    engine: Any,
    program: Program,
    message: Message,
    comms: tuple[MPI.Comm, ...],
    scratch: np.ndarray[Any, Any] | None,
    number: int = 0,
    mapping: Mapping | None = None,
) -> Any:
    """Make the native plan of a program; `number` tells it from others in traces.

    `mapping` is where it finds the buffers of peers, if it reads them where they are.
    """
    signature = message.signature
    callback = signature.reduces and message.numbers is None
    return engine.plan(
        code=program.code.tobytes(),
        streams=tuple((s.start, s.stop) for s in program.streams),
        requests=program.requests,
        footprint=program.footprint,
        writes=bytes(program.writes),
        sync=program.sync,
        brief=not program.talks_mpi and not callback and signature.nbytes <= BRIEF,
        signature=identity(signature),
        kernel=message.numbers or (-1, -1),
        element=signature.element,
        op=0 if message.op is None else MPI._handleof(message.op),
        dtype=_handle(message, program),
        commutative=signature.commutative,
        operand=program.operand if callback else 0,
        comms=tuple(MPI._handleof(c) for c in comms),
        scratch=scratch,
        keep=(message.op, message.datatype, comms, mapping),
        number=number,
        shifts=None if mapping is None else mapping.shifts,
    )


def _handle(message: Message, program: Program) -> int:
    if message.datatype is None or message.datatype == MPI.DATATYPE_NULL:
        return MPI._handleof(MPI.BYTE)
    return MPI._handleof(message.datatype)


def empty_plan(engine: Any, rank: int) -> Any:
    """Make a plan that does nothing but take its turn."""
    nowhere = (0,) * _native.MAX_CHANNELS
    program = Program(
        rank, np.zeros(0, INSTRUCTION), (), (), 0, 0, 0, nowhere, nowhere, False, ()
    )  # fmt: skip
    return native_plan(engine, program, Message(Signature("barrier")), (), None)


class Plans:
    """The plans of a communicator, and what they share."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._kept: OrderedDict[object, Prepared] = OrderedDict()
        self._numbers = itertools.count(1)
        self.living: WeakValueDictionary[int, Prepared] = WeakValueDictionary()
        self._scratch: np.ndarray[Any, Any] | None = None
        self._comms: dict[Any, dict[tuple[int, Members], MPI.Intracomm]] = {}
        uses = [use for rule in state.config.rules for use in rule.use.levels.values()]
        self.apart = any(use.submodule == BLOCKING for use in uses)

    def find(self, message: Message, blocking: bool) -> Prepared:
        """Find the plan of a call's shape, or make it."""
        state = self.state
        handles = None if message.numbers else _handles(message)
        key = message.signature, handles, blocking or not self.apart
        prepared = self._kept.get(key)
        if prepared is not None:
            self._kept.move_to_end(key)
            return prepared
        prepared = self.make(message, state.engine, state.config.memory, blocking)
        self._kept[key] = prepared
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)
            state.calls.clear()
        return prepared

    def make(
        self,
        message: Message,
        engine: Any,
        memory: int,
        blocking: bool = False,
        own_scratch: bool = False,
    ) -> Prepared:
        """Decide, plan, lower, and fill in what the ranks' programs need."""
        from han.tasks.lower import lower
        from han.tasks.plan import make_plan

        state, signature = self.state, message.signature
        decision = state.rules().decide(signature, blocking=blocking)
        plan = make_plan(state.topology, signature, decision.choice, memory)
        program = lower(plan, state.rank)
        comms = tuple(self._comm(engine, *key, signature) for key in program.comms)
        scratch = self._memory(program.scratch, own_scratch)
        number = next(self._numbers)
        mapping = state.mapping if signature.mapped else None
        native = native_plan(engine, program, message, comms, scratch, number, mapping)
        prepared = Prepared(native, program, plan, decision, number)
        engine.on_error.know(prepared)
        self.living[number] = prepared
        state.tracing.recorder.know(prepared)
        return prepared

    def _memory(self, nbytes: int, own: bool) -> np.ndarray[Any, Any] | None:
        """Private memory: calls that run one after the other share it."""
        if not nbytes:
            return None
        if own:
            return np.empty(nbytes, np.uint8)
        if self._scratch is None or self._scratch.nbytes < nbytes:
            self._scratch = np.empty(nbytes, np.uint8)
        return self._scratch

    def _comm(self, engine: Any, tag: int, ranks: Members, signature: Signature) -> MPI.Intracomm:
        """Return a communicator of some ranks, for submodules that use MPI's collectives.

        Each engine has its own, since what two of them start comes in no certain order. Made
        when first needed: that call waits for its peers, also where it is nonblocking.
        """
        mine = self._comms.setdefault(engine, {})
        if (tag, ranks) not in mine:
            state = self.state
            state.gather(f"the first {signature.describe()}", ranks)
            group = state.comm.Get_group()
            members = group.Incl(ranks)
            comm = state.comm.Create_group(members, tag)
            comm.Set_errhandler(MPI.ERRORS_RETURN)
            mine[tag, ranks] = comm
            members.Free()
            group.Free()
        return mine[tag, ranks]

    def forget(self, engine: Any) -> None:
        """Free what an engine's plans used."""
        for comm in self._comms.pop(engine, {}).values():
            comm.Free()

    def clear(self, free: bool) -> None:
        """Let everything go; `free` the communicators too."""
        self._kept.clear()
        if not free:
            self._comms.clear()
        for engine in list(self._comms):
            self.forget(engine)


def _handles(message: Message) -> tuple[int, int]:
    if message.op is None or message.datatype is None:
        return 0, 0
    return MPI._handleof(message.op), MPI._handleof(message.datatype)
