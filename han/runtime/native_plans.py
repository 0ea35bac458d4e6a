"""A Program with its resources as the executor runs it: the native plan."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from han import _native
from han.message.message import Message
from han.model.channel_layout import MAX_CHANNELS
from han.model.opcodes import COMBINATIONS, COPIES
from han.model.program import INSTRUCTION, Program
from han.tasks.signature import Signature

if TYPE_CHECKING:
    from han.memory.mapping import Mapping

BRIEF = 64 << 10  # bytes that Python's other threads may be kept waiting for


class Ways(NamedTuple):
    """What the ranks may run instead of a plan, and how they choose (``native/engine/choice.h``).

    `arena` (address, bytes) says that there is an alternative, for buffers in there; `leader` that
    there is a rival, and which of the ranks of the channel `whole` leads. `is_rival`: it is one.
    """

    arena: tuple[int, int] | None = None
    whole: int = 0
    leader: int | None = None
    is_rival: bool = False


ONE_WAY = Ways()


def identity(signature: Signature, is_rival: bool = False) -> int:
    """Return a number that tells calls apart, the same on all ranks; a rival's is another one."""
    told = f"{signature!r}{' rival' if is_rival else ''}"
    digest = hashlib.blake2b(told.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def native_plan(
    engine: _native.Engine,
    program: Program,
    message: Message,
    comms: tuple[MPI.Comm, ...],
    scratch: np.ndarray[Any, Any] | None,
    number: int = 0,
    mapping: Mapping | None = None,
    ways: Ways = ONE_WAY,
) -> _native.Plan:
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
        brief=not (program.talks_mpi or callback or ways.leader is not None)
        and _moved(program, signature) <= BRIEF,
        signature=identity(signature, ways.is_rival),
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
        arena=ways.arena or (0, 0),
        whole=ways.whole,
        leader=-1 if ways.leader is None else ways.leader,
    )


def _moved(program: Program, signature: Signature) -> int:
    """Bytes of a call, or where it is one of blocks those that this rank copies and combines."""
    if not signature.by_blocks:
        return signature.nbytes
    rows = program.code
    copies = np.isin(rows["code"], COPIES)
    combines = np.isin(rows["code"], COMBINATIONS)
    return int(rows["n"][copies].sum() + signature.element * rows["n"][combines].sum())


def _handle(message: Message, program: Program) -> int:
    if message.datatype is None or message.datatype == MPI.DATATYPE_NULL:
        return MPI._handleof(MPI.BYTE)
    return MPI._handleof(message.datatype)


def empty_plan(engine: _native.Engine, rank: int) -> _native.Plan:
    """Make a plan that does nothing but take its turn."""
    nowhere = (0,) * MAX_CHANNELS
    program = Program(
        rank, np.zeros(0, INSTRUCTION), (), (), 0, 0, 0, nowhere, nowhere, False, ()
    )  # fmt: skip
    return native_plan(engine, program, Message(Signature("barrier")), (), None)
