"""From a call's shape to a plan that can run: kept, stored or made, and what may run instead."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from mpi4py import MPI

from han.common.errors import NoRuleError
from han.message.message import Message
from han.message.unlocked import group_of, return_errors
from han.model.program import Program
from han.runtime.native_plans import Ways, native_plan
from han.runtime.stored_plans import Call
from han.tasks.signature import Signature

if TYPE_CHECKING:
    from han.runtime.state import State
    from han.runtime.stored_plans import Wisdom
    from han.tasks.plan import Plan

MOST_MET = 4096  # signatures remembered; beyond, rivals are made with the first call
BLOCKING = "mpi"  # the submodule whose plans cannot serve nonblocking calls
Members = tuple[int, ...]


@dataclass(frozen=True)
class Prepared:
    """A plan that can run: the native one, and what it was made from; `number` is its own.

    `alternative` is planned for shared arrays (``tuning/alternative.py``); this rank's part is made
    when it is first needed. `rival` is another way for the same call, made with its second one: all
    go the way that the call's leader has found to be the quicker one (``native/engine/trials.h``).
    """

    native: Any
    program: Program
    signature: Signature
    number: int = 0
    alternative: Plan | None = None
    rival: Plan | None = None
    is_rival: bool = False


class Others(NamedTuple):
    """What else a call may run: see Prepared."""

    alternative: Plan | None = None
    rival: Plan | None = None


NO_OTHERS = Others()


class CacheInfo(NamedTuple):
    """What became of the calls of a communicator on this rank, in the manner of ``functools``.

    A call is a hit if its plan was there, else a miss; `maxsize` plans are kept (HAN_PLANS), the
    one that was looked for longest ago goes first (the quick way of plain arrays looks for none
    until another plan has gone). `made` plans took `seconds` altogether, those of persistent
    requests too; `stored` of them were read from HAN_WISDOM.
    """

    hits: int
    misses: int
    maxsize: int
    currsize: int
    evictions: int
    made: int
    stored: int
    seconds: float

    def __str__(self) -> str:
        calls, each = self.hits + self.misses, self.seconds / max(1, self.made)
        return (
            f"{self.currsize} of at most {self.maxsize} plans; {self.hits} of {calls} calls found "
            f"theirs, {self.evictions} dropped; {self.made} made in {self.seconds * 1e3:.2f} ms "
            f"({each * 1e6:.0f} us each), {self.stored} of them from stored ones"
        )


class Plans:
    """The plans of a communicator, and what they share."""

    def __init__(self, state: State, wisdom: str = "") -> None:
        self.state = state
        self.wisdom = _wisdom(state, wisdom) if wisdom else None
        self._kept: OrderedDict[object, Prepared] = OrderedDict()
        self._numbers = itertools.count(1)
        self._counts: Counter[str] = Counter()
        self._seconds = 0.0  # spent planning
        self.living: WeakValueDictionary[int, Prepared] = WeakValueDictionary()
        self._scratch: np.ndarray[Any, Any] | None = None
        self._met: set[Signature] = set()  # of calls that have a rival
        self._comms: dict[Any, dict[tuple[int, Members], MPI.Intracomm]] = {}
        uses = [use for rule in state.config.rules for use in rule.use.levels.values()]
        self.apart = any(use.submodule == BLOCKING for use in uses)

    def find(self, message: Message, blocking: bool) -> Prepared | None:
        """Find the plan of a call's shape, or make it; None where the call is not one of han's."""
        prepared = self._found(message, blocking)
        if prepared is not None:
            self._equip(prepared, message)
            if blocking:
                self._oppose(prepared, message)
        return prepared

    def _found(self, message: Message, blocking: bool) -> Prepared | None:
        state = self.state
        handles = None if message.numbers else _handles(message)
        key = message.signature, handles, blocking or not self.apart
        prepared = self._kept.get(key)
        if prepared is not None:
            self._kept.move_to_end(key)
            self._counts["hits"] += 1
            return prepared
        if not self.serve(message.signature):
            return None
        self._counts["misses"] += 1
        others = self._others(message.signature, blocking)
        prepared = self.make(message, state.engine, state.config.memory, blocking, others=others)
        self._kept[key] = prepared
        if len(self._kept) > state.config.plans:
            self._kept.popitem(last=False)
            self._counts["evictions"] += 1
            state.calls.clear()
        return prepared

    def info(self) -> CacheInfo:
        """Count what has happened so far."""
        counts, most = self._counts, self.state.config.plans
        return CacheInfo(
            counts["hits"] + self.state.calls.hits, counts["misses"], most, len(self._kept),
            counts["evictions"], counts["made"], counts["stored"], self._seconds,
        )  # fmt: skip

    def counts(self, signature: Signature) -> list[tuple[int, ...]]:
        """List what the executor has counted on this rank, by plan of such calls that is kept."""
        living = self.living.values()
        natives = [p.native for p in living if p.signature == signature and not p.is_rival]
        others = [p for p in living if p.alternative and p.alternative.signature == signature]
        natives += [p.native.alternative for p in others if p.native.alternative]
        natives += [native.rival for native in natives if native.rival]
        return [native.counts for native in natives]

    def tried(self, signature: Signature) -> tuple[int, int]:
        """Count the calls that ran the plans of such calls that are kept, and their rivals."""
        natives = [p.native for p in self.living.values() if p.rival and p.signature == signature]
        rivals = [native.rival for native in natives if native.rival]
        return sum(n.counts[0] for n in natives), sum(n.counts[0] for n in rivals)

    def serve(self, signature: Signature) -> bool:
        """Whether a call is han's: one that moves blocks may be left to MPI, by all ranks."""
        try:
            return not signature.by_blocks or bool(self.state.rules().decide(signature))
        except NoRuleError:
            return False

    def make(
        self,
        message: Message,
        engine: Any,
        memory: int,
        blocking: bool = False,
        own_scratch: bool = False,
        others: Others = NO_OTHERS,
    ) -> Prepared:
        """Decide, plan, lower, and fill in what the ranks' programs need."""
        call = Call(message.signature, memory, blocking)
        program = self._timed(lambda: self._stored(call, lambda: plan_program(self.state, call)))
        for other in others:  # the rings stay in step, whichever of them is run
            if other is not None:
                footprint = tuple(map(max, program.footprint, other.footprint()))
                program = replace(program, footprint=footprint)
        return self._bind(message, engine, program, own_scratch, others)

    def _others(self, signature: Signature, blocking: bool) -> Others:
        from han.tuning.alternative import alternative, rival

        return Others(
            alternative(self.state, signature, blocking), rival(self.state, signature, blocking)
        )

    def _oppose(self, prepared: Prepared, message: Message) -> None:
        """Make the rival in the second blocking call of a signature, which all ranks see as such.

        Whether a plan is kept is each rank's own matter, so that the first call with this one may
        be a later call of its signature.
        """
        signature, rival = message.signature, prepared.rival
        if rival is None or prepared.native.rival is not None:
            return
        if signature not in self._met and len(self._met) < MOST_MET:
            self._met.add(signature)
            return
        from han.tasks.lower import lower

        rank, call = self.state.rank, Call(signature, self.state.config.memory, True, rival=True)
        program = self._timed(lambda: self._stored(call, lambda: lower(rival, rank)))
        program = replace(program, footprint=prepared.program.footprint)
        made = self._bind(message, self.state.engine, program, is_rival=True)
        prepared.native.rival = made.native

    def _equip(self, prepared: Prepared, message: Message) -> None:
        """Make the alternative once this rank has buffers for it; the others are not needed."""
        state, other = self.state, prepared.alternative
        if other is None or prepared.native.alternative is not None:
            return
        own = state.mapping.own if state.mapping is not None else None
        if own is None or not all(own.holds(at) for at in (message.send, message.recv) if at):
            return
        from han.tasks.lower import lower

        program = self._timed(lambda: lower(other, state.rank))
        program = replace(program, footprint=prepared.program.footprint)
        made = self._bind(replace(message, signature=other.signature), state.engine, program)
        prepared.native.alternative = made.native

    def _bind(
        self,
        message: Message,
        engine: Any,
        program: Program,
        own_scratch: bool = False,
        others: Others = NO_OTHERS,
        is_rival: bool = False,
    ) -> Prepared:
        """Give a program what it needs to run."""
        state, signature = self.state, message.signature
        comms = tuple(self._comm(engine, *key, signature) for key in program.comms)
        scratch = self._memory(program.scratch, own_scratch)
        number = next(self._numbers)
        mapping = (message.mapping or state.mapping) if signature.mapped else None
        ways = Ways(
            arena=None if others.alternative is None else state.arena(),
            whole=state.whole_channel,
            leader=None if others.rival is None else state.place_in_whole(signature.root),
            is_rival=is_rival,
        )
        native = native_plan(engine, program, message, comms, scratch, number, mapping, ways)
        prepared = Prepared(native, program, signature, number, *others, is_rival)
        engine.on_error.know(prepared)
        self.living[number] = prepared
        state.tracing.recorder.know(prepared)
        return prepared

    def _timed(self, make: Callable[[], Program]) -> Program:
        """Make a program, and take the time."""
        begun = perf_counter()
        program = make()
        self._seconds += perf_counter() - begun
        self._counts["made"] += 1
        return program

    def _stored(self, call: Call, make: Callable[[], Program]) -> Program:
        """Read a program that an earlier run has stored; else make it, and store it."""
        state, signature = self.state, call.signature
        if self.wisdom is None or signature.mapped:  # peers' buffers are no memory of this rank's
            return make()
        from han.tasks.files.program_check import check, ground

        where = ground(state.topology, signature, state.rank, call.memory)
        program = self.wisdom.read(call, lambda found: check(found, where))
        if program is not None:
            self._counts["stored"] += 1
            return program
        program = make()
        self.wisdom.write(call, program)
        return program

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
            with group_of(state.comm, ranks) as members:
                comm = state.comm.Create_group(members, tag)
            return_errors(comm)
            mine[tag, ranks] = comm
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


def _wisdom(state: State, folder: str) -> Wisdom | None:
    """Find the stored programs; None where other packages' submodules decide: they may change."""
    from han.runtime.stored_plans import Wisdom, complete, key_of

    return Wisdom(folder, key_of(state)) if complete(state.config) else None


def plan_program(state: State, call: Call) -> Program:
    """Decide, plan and lower for this rank."""
    from han.tasks.lower import lower
    from han.tasks.plan import make_plan

    decision = state.rules().decide(call.signature, blocking=call.blocking)
    plan = make_plan(state.topology, call.signature, decision.choice, call.memory)
    return lower(plan, state.rank)


def _handles(message: Message) -> tuple[int, int]:
    if message.op is None or message.datatype is None:
        return 0, 0
    return MPI._handleof(message.op), MPI._handleof(message.datatype)
