"""The layout of a channel's shared memory: pure arithmetic, the same on all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

LINE = 64
PAGE = 4096
MAX_CHANNELS = 8  # of a communicator
CONTROL = 192  # bytes of a rank's control record (native/channel.h: han_control)
CALLS = 512  # bytes of the digests of a rank's recent calls (native/channel.h: han_calls_of)
REASON = 512  # bytes of the reason why a rank left
EPOCH_SHIFT = 24  # a flag holds (run << EPOCH_SHIFT) + k
# Offsets in a control record, of a lent channel (native/channel.h):
CELLS, ROOM, CLOSED = 96, 104, 112
FLAG = 16  # bytes of a flag, with the digest of its writer's calls (native/channel.h: han_flag)
FLAGS = 8  # flags of a rank, one cache line each
SMALL = PAGE + LINE  # bytes of a small slot: the line of its flag, and a page of data
INLINE = LINE - FLAG  # bytes of data that fit in the flag's own line
SMALL_BANKS = 16  # banks of small slots, which runs use in turn
CROWDED_BANKS = 32  # the same where ranks outnumber processors; fewer than the calls kept
LENT_BANKS = 8  # the same in channels that are lent (native/channel.h)
RING_MIN = 128 * 1024  # least bytes of a ring
RING_MAX = 2 * 1024 * 1024  # most bytes of a ring


def lines(nbytes: int) -> int:
    """Return the bytes of the whole cache lines that some bytes take."""
    return -(-nbytes // LINE) * LINE


def flag_at(slot: int, flag: int) -> int:
    """Return the offset of a rank's flag in the flags area."""
    return (slot * FLAGS + flag) * LINE


def _pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


@dataclass(frozen=True)
class Geometry:
    """Layout of a channel of `ranks` ranks within about `memory` bytes.

    The areas, in order: control records, digests of calls, reasons why ranks left, flags, small
    slots (in `banks`), and a ring of cells for each rank. Each run takes the next part of the
    rings, so it seldom waits for readers of an earlier run. A ring that is lent has `least` bytes
    once it has memory.
    """

    ranks: int
    memory: int
    banks: int = SMALL_BANKS
    least: int = RING_MIN

    def ring_for(self, nbytes: int) -> int:
        """Bytes of a ring, if it is lent, from which runs take up to `nbytes` (engine/rings.h)."""
        wrap = self.least
        while wrap < 8 * nbytes:
            wrap *= 2
        return min(wrap, self.ring)

    def reason_at(self, slot: int) -> int:
        """Offset of the reason why a rank left."""
        return self.ranks * (CONTROL + CALLS) + slot * REASON

    @property
    def flags(self) -> int:
        """Offset of the flags."""
        return _pages(self.reason_at(self.ranks))

    @property
    def small(self) -> int:
        """Offset of the small slots."""
        return self.flags + _pages(self.ranks * FLAGS * LINE)

    @property
    def small_bank(self) -> int:
        """Bytes of one bank of small slots."""
        return self.ranks * SMALL

    @property
    def cells(self) -> int:
        """Offset of the cells."""
        return self.small + _pages(self.banks * self.small_bank)

    @cached_property
    def ring(self) -> int:
        """Bytes of each rank's ring of cells."""
        return max(RING_MIN, min(RING_MAX, self.memory // self.ranks // PAGE * PAGE))

    @property
    def area(self) -> int:
        """Bytes of a rank's ring that one run may use: half, so that the next run can begin."""
        return self.ring // 2

    @property
    def size(self) -> int:
        """Bytes of the whole channel."""
        return self.cells + self.ranks * self.ring

    def area_at(self, slot: int) -> int:
        """Offset of a run's part of a rank's ring from its part of the first rank's ring."""
        return slot * self.ring
