"""What is known about calls: what the look-up in C finds, and what persistent requests share."""

from __future__ import annotations

from typing import Any, NamedTuple

from han import _native
from han.message.message import Message
from han.model.collectives import ROWS
from han.tasks.signature import Signature

# The operation's object, the handle of MPI's type, and whether operands are unpacked.
Reducer = tuple[int, int, bool] | None


class Data(NamedTuple):
    """The buffers of a request: addresses, bytes of a block, owners, and bytes of uneven blocks."""

    send: int
    recv: int
    nbytes: int
    keep: tuple[object, ...]
    sizes: bytes


def keeps_plans(message: Message) -> bool:
    """Return whether a plan may serve a later call: a derived type may be freed before it."""
    return message.numbers is not None or not message.signature.reduces or message.key is not None


def reduces_with(message: Message) -> Reducer:
    """Return what the MPI library or a user's function reduces with; kinds keep the operation."""
    if message.numbers is not None or not message.signature.reduces or message.datatype is None:
        return None
    return id(message.op), message.datatype.handle, message.unpacks


def remember(calls: _native.Calls[Any], found: Any, message: Message, sized: Signature) -> None:
    """Let the look-up in C find what serves calls of a class of sizes; `message` is one of them."""
    signature, bound = message.signature, sized.bound
    if message.key is None or (signature.uneven and not bound):
        return  # a plan for blocks that differ may serve these sizes only
    code = ROWS[signature.collective].code
    way = signature.root or int(signature.in_place)  # no call has both
    op = message.op if signature.reduces else None
    key = message.key._replace(nbytes=bound or message.key.nbytes)
    calls.add(found, code, way, op, key, signature.uneven)
