"""Eager blocks: a small object of each rank, which others get in one collective of bytes.

A block is a head and a pickled object. The head tells the size of the object, the call that the
rank is in, and its root. So ranks find out whether they make the same call, and an object that does
not fit may follow in a second collective: from the heads the ranks know the sizes.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from mpi4py import MPI

from han import _native
from han.common.errors import MismatchError

EAGER_HEAD = {"nbytes": "q", "call": "i", "root": "i"}
HEAD = struct.Struct("=" + "".join(EAGER_HEAD.values()))
EAGER_SPREAD = {"most": "q", "total": "q"}  # of what a rank sends; in the place of an object
SPREAD = struct.Struct("=" + "".join(EAGER_SPREAD.values()))
BLOCK = 256  # bytes
EAGER_ROOM = BLOCK - HEAD.size
MOST_PADDED = 2  # objects of different sizes may take so many times their bytes in blocks


class Call(IntEnum):
    """The calls whose blocks tell what they are."""

    BCAST = 1
    GATHER = 2
    SCATTER = 3
    ALLGATHER = 4
    ALLTOALL = 5
    REDUCE = 6
    ALLREDUCE = 7
    AGREE = 8  # on the arguments of a step, such as Split

    @property
    def text(self) -> str:
        """A text such as ``gather of objects``."""
        return TEXTS[self]

    def describe(self, root: int) -> str:
        """Return a text such as ``gather of objects (root 0)``."""
        return f"{self.text} (root {root})" if self in ROOTED else self.text


TEXTS = {call: f"{call.name.lower()} of objects" for call in Call}
TEXTS[Call.AGREE] = "the making of a communicator"
ROOTED = (Call.BCAST, Call.GATHER, Call.SCATTER, Call.REDUCE)


class Eager:
    """The blocks of one communicator: `blocks` fills and reads them.

    `serves`: all ranks share memory, so that calls by blocks are han's. `lock` is held from the
    filling of blocks until they are read, as several threads may call.
    """

    def __init__(self, size: int, together: bool) -> None:
        self.serves, self.lock = together and size > 1, threading.RLock()
        self._one, self._every = bytearray(BLOCK), bytearray(size * BLOCK)
        one, every = (np.frombuffer(memory, np.uint8) for memory in (self._one, self._every))
        loads = MPI.pickle.loads
        self.blocks = _native.Eager(self._one, self._every, one, every, loads, self.lock)

    @property
    def within(self) -> str:
        """The call whose collective of bytes is under way, or ""."""
        return TEXTS[Call(self.blocks.call)] if self.blocks.call else ""

    def left_large(self, result: object) -> bool:
        """Return whether a result of `blocks` says that a large object is still to follow.

        The caller then has the lock.
        """
        return result is self._one or result is self._every

    def size(self, call: Call, root: int) -> int:
        """Return the size of the object of which the one block tells; raises MismatchError."""
        size: int
        size, its, at = HEAD.unpack_from(self._one)
        if (its, at) != (call, root):
            raise _difference([(its, at)])
        return size if size >= 0 else ~size

    def sizes(self, call: Call, root: int = 0) -> list[int]:
        """Return the sizes of the objects of which the blocks of all ranks tell.

        Raises MismatchError, on all ranks alike, if they tell of different calls.
        """
        sizes = self.blocks.sizes(call, root)
        if sizes is None:
            blocks = range(0, len(self._every), BLOCK)
            raise _difference([HEAD.unpack_from(self._every, place)[1:] for place in blocks])
        return sizes

    def stride(self, root: int | None = None) -> int:
        """Return the bytes of blocks that all hold an object of those sent; 0: that is too many.

        `root` is the rank that sent objects; None: all ranks did.
        """
        blocks, ranks = self._every if root is None else self._one, len(self._every) // BLOCK
        spreads = [_spread(blocks, place, ranks) for place in range(0, len(blocks), BLOCK)]
        most, totals = zip(*spreads, strict=True)
        return _alike(max(most), ranks * len(spreads), sum(totals))


def _spread(blocks: bytearray, place: int, ranks: int) -> tuple[int, int]:
    """Return the largest of the objects that a rank sends, and their sum; at most, if they fit."""
    if HEAD.unpack_from(blocks, place)[0] >= 0:
        return EAGER_ROOM, ranks * EAGER_ROOM
    most, total = SPREAD.unpack_from(blocks, place + HEAD.size)
    return most, total


def alike(sizes: Sequence[int]) -> int:
    """Return the bytes of blocks that all hold one of the objects; 0: that is too many."""
    if sizes.count(sizes[0]) == len(sizes):
        return sizes[0]
    return _alike(max(sizes), len(sizes), sum(sizes))


def _alike(most: int, blocks: int, total: int) -> int:
    return most if most * blocks <= MOST_PADDED * total else 0


def _difference(calls: list[tuple[int, int]]) -> MismatchError:
    known = {int(call): call for call in Call}
    seen: dict[str, int] = {}
    for rank, (call, root) in enumerate(calls):
        seen.setdefault(known[call].describe(root) if call in known else "a call of bytes", rank)
    texts = "; ".join(f"rank {rank} is in {text}" for text, rank in seen.items())
    return MismatchError(
        f"the ranks do not make the same call: {texts}; make the same calls on all ranks, in the "
        "same order and with the same root"
    )
