"""Eager blocks: a small object of each rank, which others get in one collective of bytes.

A block is a head and an encoded object. The head tells the size of the object, the call that the
rank is in, and its root. So ranks find out whether they make the same call, and an object that does
not fit may follow in a second collective: from the heads the ranks know the sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from han import _native
from han.common.errors import MismatchError
from han.message.parsers import Parser
from han.runtime.measured import MOST_PADDED

EAGER_HEAD = {"nbytes": "q", "call": "i", "root": "i"}
HEAD = struct.Struct("=" + "".join(EAGER_HEAD.values()))
EAGER_SPREAD = {"most": "q", "total": "q"}  # of what a rank sends; in the place of an object
SPREAD = struct.Struct("=" + "".join(EAGER_SPREAD.values()))
BLOCK = 256  # bytes
EAGER_ROOM = BLOCK - HEAD.size


class Call(IntEnum):
    """The calls whose blocks tell what they are."""

    BCAST = 1
    GATHER = 2
    SCATTER = 3
    ALLGATHER = 4
    ALLTOALL = 5
    REDUCE = 6
    ALLREDUCE = 7
    COMBINE = 8  # an allreduce in which only rank 0 may combine
    RESULT = 9  # its result
    AGREE = 10  # on the arguments of a step, such as Split
    SCAN = 11
    EXSCAN = 12

    def describe(self, root: int) -> str:
        """Return a text such as ``gather of objects (root 0)``."""
        return f"{TEXTS[self]} (root {root})" if self in ROOTED else TEXTS[self]


TEXTS = {call: f"{call.name.lower()} of objects" for call in Call}
TEXTS |= {
    Call.COMBINE: TEXTS[Call.ALLREDUCE],
    Call.RESULT: TEXTS[Call.ALLREDUCE],
    Call.AGREE: "the making of a communicator",
}
ROOTED = (Call.BCAST, Call.GATHER, Call.SCATTER, Call.REDUCE)
KNOWN = {int(call): call for call in Call}


class Gathers(NamedTuple):
    """How blocks are gathered on a root.

    `act` does it by the method `quick` of the look-up in C, or by the call that `parser` stands
    for. `room`: bytes of an object that fits into a block.
    """

    act: Callable[..., Any]
    quick: str
    parser: Parser
    room: int


class Eager:
    """The blocks of one communicator: `blocks` fills, moves and reads them.

    `serves`: there are other ranks. `gathers`: how blocks are gathered; None: not decided yet.
    """

    gathers: Gathers | None = None

    def __init__(self, size: int) -> None:
        self.serves = size > 1
        one, every = bytearray(BLOCK), bytearray(size * BLOCK)
        arrays = np.frombuffer(one, np.uint8), np.frombuffer(every, np.uint8)
        self.blocks = _native.Eager(one, every, *arrays, Large)

    @property
    def within(self) -> str:
        """The call whose collective of bytes is under way, or ""."""
        return TEXTS[KNOWN[self.blocks.call]] if self.blocks.call else ""


class Large:
    """Blocks of `size` bytes that do not hold all objects: of a single rank, or of all ranks."""

    def __init__(self, blocks: bytearray, size: int) -> None:
        self._blocks, self._size = bytes(blocks), size
        heads = _heads(len(blocks) // size, size).unpack(self._blocks)
        self._sizes, self.calls, self._roots = heads[::3], heads[1::3], heads[2::3]

    def sizes(self, root: int, *calls: Call) -> list[int]:
        """Return the sizes of the objects of which the blocks tell.

        Raises MismatchError, on all ranks that have the same blocks, if they tell of other calls.
        """
        if self._roots.count(root) < len(self._roots) or not {*self.calls} <= {*calls}:
            raise _difference([*zip(self.calls, self._roots, strict=True)])
        return [n if n >= 0 else ~n for n in self._sizes]

    def each(self) -> Iterator[bytes | None]:
        """Return the objects; None in the place of one that is not there."""
        places, room = range(HEAD.size, len(self._blocks), self._size), self._size - HEAD.size
        for place, n in zip(places, self._sizes, strict=True):
            yield self._blocks[place : place + n] if 0 <= n <= room else None

    def items(self) -> list[bytes] | None:
        """Return the objects if all are there."""
        found = [item for item in self.each() if item is not None]
        return found if len(found) == len(self._sizes) else None

    def stride(self, ranks: int) -> int:
        """Return the bytes of blocks that all hold an object; 0: that is too many.

        The objects are those that each rank of these blocks sends to all ranks.
        """
        spreads = []
        for place, nbytes in zip(range(0, len(self._blocks), BLOCK), self._sizes, strict=True):
            few = EAGER_ROOM, ranks * EAGER_ROOM  # at most, as these objects fit
            here = place + HEAD.size
            spreads.append(few if nbytes >= 0 else SPREAD.unpack_from(self._blocks, here))
        most, totals = zip(*spreads, strict=True)
        return _alike(max(most), ranks * len(spreads), sum(totals))


@cache
def _heads(blocks: int, size: int) -> struct.Struct:
    """Return the form of the heads of so many blocks of a size, one after the other."""
    return struct.Struct("=" + f"{HEAD.format[1:]}{size - HEAD.size}x" * blocks)


def alike(sizes: Sequence[int]) -> int:
    """Return the bytes of blocks that all hold one of the objects; 0: that is too many."""
    if sizes.count(sizes[0]) == len(sizes):
        return sizes[0]
    return _alike(max(sizes), len(sizes), sum(sizes))


def _alike(most: int, blocks: int, total: int) -> int:
    return most if most * blocks <= MOST_PADDED * total else 0


def _difference(calls: list[tuple[int, int]]) -> MismatchError:
    seen: dict[str, int] = {}
    for rank, (call, root) in enumerate(calls):
        text = KNOWN[call].describe(root) if call in KNOWN else "a call of bytes"
        seen.setdefault(text, rank)
    texts = "; ".join(f"rank {rank} is in {text}" for text, rank in seen.items())
    return MismatchError(
        f"the ranks do not make the same call: {texts}; make the same calls on all ranks, in the "
        "same order and with the same root"
    )
