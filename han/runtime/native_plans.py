"""Native plans: programs with their resources, in the form that the engine runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from han import _native
from han.message.message import Message
from han.model.channel_layout import MAX_CHANNELS
from han.model.opcodes import COMBINATIONS, COPIES
from han.model.program import INSTRUCTION, LOOP, Program
from han.runtime.measured import BRIEF
from han.tasks.choice import Choice
from han.tasks.signature import Signature
from han.tuning.planner import Planned

if TYPE_CHECKING:
    from han.memory.mapping import Mapping


@dataclass(frozen=True)
class Prepared:
    """A native plan, its program and the call that it serves; `number` identifies it.

    `planned` is kept if the call may run an alternative or a rival. Their native plans are
    ``native.alternative``, which is made when it is first needed, and ``native.rival``; `others`
    are both, once they are made.
    """

    native: _native.Plan
    program: Program
    signature: Signature
    number: int = 0
    planned: Planned | None = None
    is_rival: bool = False
    others: list[Prepared] = field(default_factory=list, compare=False)


# By code: how often `n` counts bytes, or elements, that an operation moves.
_COPIED, _COMBINED = (
    np.isin(np.arange(LOOP + 1), kind).astype("u8") for kind in (COPIES, COMBINATIONS)
)


@lru_cache(1024)
def identity(
    signature: Signature, is_rival: bool = False, both: tuple[Choice, Choice] | None = None
) -> int:
    """Return a number that identifies a call; the same on all ranks.

    Rivals have another one, and so has a call of which trials compare `both` choices.
    """
    text = f"{signature!r}{' rival' if is_rival else ''}{both or ''}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def trial_class(planned: Planned) -> int:
    """Return a number, not 0, for the calls whose trials compare the same two plans."""
    assert planned.rival is not None
    return identity(planned.signature, both=(planned.decision.choice, planned.rival.choice)) | 2


def native_plan(
    engine: _native.Engine,
    program: Program,
    message: Message,
    signature: int,
    comms: tuple[MPI.Comm, ...] = (),
    scratch: np.ndarray[Any, Any] | None = None,
    mapping: Mapping | None = None,
    **more: Any,
) -> _native.Plan:
    """Make the native plan of a program; `signature` is the number of the call that peers compare.

    `mapping` is where this rank finds mapped buffers of its peers. `more` are further arguments of
    :meth:`_native.Engine.plan`: the number in traces, and what an alternative or a rival needs
    (``native/engine/stepping.h``, ``native/engine/trials.h``).
    """
    called = message.signature
    callback = called.reduces and message.numbers is None
    return engine.plan(
        **program.records,
        footprint=program.footprint,
        brief=not (program.talks_mpi or callback or "tried" in more)
        and (called.own or _moved(program, called) <= BRIEF),
        signature=signature,
        kernel=message.numbers or (-1, -1),
        element=called.element,
        op=0 if message.op is None else message.op.handle,
        dtype=_handle(message),
        operand=program.operand if callback else 0,
        unpacks=message.unpacks,
        comms=tuple(c.handle for c in comms),
        scratch=scratch,
        keep=(message.op, message.datatype, comms, mapping),
        shifts=None if mapping is None else mapping.shifts,
        **more,
    )


def _moved(program: Program, signature: Signature) -> int:
    """Return the bytes that a run moves: for calls by blocks what this rank copies and combines."""
    if not signature.by_blocks:
        return signature.nbytes
    code, n = program.code["code"], program.code["n"]
    if program.strides is not None:
        n = n * program.times
    return int(n @ (_COPIED[code] + signature.element * _COMBINED[code]))


def _handle(message: Message) -> int:
    if message.datatype is None or message.datatype == MPI.DATATYPE_NULL:
        return MPI.BYTE.handle
    return message.datatype.handle


def empty_plan(engine: _native.Engine, rank: int) -> _native.Plan:
    """Make a plan without operations: its run only takes its place in the order of runs."""
    nowhere = (0,) * MAX_CHANNELS
    program = Program(
        rank, np.zeros(0, INSTRUCTION), (), (), 0, 0, 0, nowhere, nowhere, False, ()
    )  # fmt: skip
    message = Message(Signature("barrier"))
    return native_plan(engine, program, message, identity(message.signature))
