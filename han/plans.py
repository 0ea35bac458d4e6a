"""From a Program to a native plan: filling in what only a live communicator knows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from han.message import Message
from han.program import Program
from han.tasks.signature import Signature

if TYPE_CHECKING:
    from han.tasks.plan import Plan
    from han.tuning.rules import Decision


@dataclass(frozen=True)
class Prepared:
    """A plan that can run: the native one, and what it was made from."""

    native: Any
    program: Program
    plan: Plan
    decision: Decision


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
) -> Any:
    """Make the native plan of a program."""
    signature = message.signature
    callback = signature.reduces and message.numbers is None
    return engine.plan(
        code=program.code.tobytes(),
        streams=tuple((s.start, s.stop) for s in program.streams),
        requests=program.requests,
        footprint=program.footprint,
        writes=bytes(program.writes),
        sync=program.sync,
        quick=not program.talks_mpi and not callback,
        signature=identity(signature),
        kernel=message.numbers or (-1, -1),
        element=signature.element,
        op=0 if message.op is None else MPI._handleof(message.op),
        dtype=_handle(message, program),
        commutative=signature.commutative,
        operand=program.operand if callback else 0,
        comms=tuple(MPI._handleof(c) for c in comms),
        scratch=scratch,
        keep=(message.op, message.datatype, comms),
    )


def _handle(message: Message, program: Program) -> int:
    if message.datatype is None or message.datatype == MPI.DATATYPE_NULL:
        return MPI._handleof(MPI.BYTE)
    return MPI._handleof(message.datatype)
