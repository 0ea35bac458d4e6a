"""What is known about persistent requests of a kind, and about the buffers of one of them."""

from __future__ import annotations

from typing import NamedTuple

from mpi4py import MPI

from han.message.message import Message
from han.message.packing import Hook

# The operation's object, the handle of MPI's type, and whether operands are unpacked.
Reducer = tuple[int, int, bool] | None


class Data(NamedTuple):
    """The buffers of a request: addresses, bytes of a block, owners, and bytes of uneven blocks.

    `begin` packs before each run, and `end` unpacks after it.
    """

    send: int
    recv: int
    nbytes: int
    keep: tuple[object, ...]
    sizes: bytes
    begin: Hook | None
    end: Hook | None


def keeps_plans(message: Message) -> bool:
    """Return whether a plan may serve a later call: a derived type may be freed before it."""
    return message.numbers is not None or not message.signature.reduces or message.key is not None


def reduces_with(message: Message) -> Reducer:
    """Return what the MPI library or a user's function reduces with; kinds keep the operation."""
    if message.numbers is not None or not message.signature.reduces or message.datatype is None:
        return None
    return id(message.op), MPI._handleof(message.datatype), message.unpacks
