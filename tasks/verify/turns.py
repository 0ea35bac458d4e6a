"""Memory that is used in turn for different grains.

Two frames that overlap hold different grains in common bytes, and how these bytes divide depends on
the size of the message. In any size, an access to a frame stays between the frame's offset and the
last grain of the access in the largest message: these bytes are its *reach*. The proof of the
largest message stands for shorter ones nevertheless if

- of two accesses to different frames whose reaches have common bytes, one of them a write, one has
  ended before the other begins, in every interleaving,
- every read finds grains that were written in its own frame since the last write to another frame
  whose reach has bytes of these grains.

Then the bytes of a grain that is read are those of the same writes for every size. As accesses in
conflict are ordered, what holds in one order of the events holds in every order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from han.tasks.verify.events import Events
from han.tasks.verify.order import Row, Strand, Walk
from han.tasks.verify.pairs import Pairs

Frame = tuple[int, int, int]  # offset, blocks and origin
Grains = tuple[int, int]
Past = npt.NDArray[np.int64]  # columns of accesses: see COLUMNS
COLUMNS = 6  # chain, until, first byte, end, frame, whether it writes
ACCESSED, NOTHING = 1, 0


class Access(NamedTuple):
    """An operand: the grains `start` to `stop` of a frame, from its event until another one.

    In the largest message, it ends at byte `end`.
    """

    event: int
    until: int
    frame: Frame
    start: int
    stop: int
    end: int
    reads: bool
    writes: bool


class Sizes(NamedTuple):
    """The bytes of the largest message, and of a grain."""

    nbytes: int
    grain: int


class Turns:
    """The accesses to some bytes so far, in an order that the graph of events allows."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._there: dict[Frame, list[Grains]] = {}  # written since the last write to another frame
        self._past: Past = np.zeros((COLUMNS, 16), np.int64)
        self._known: dict[tuple[int, Frame, int, bool], int] = {}  # columns of `_past`
        self._frames: dict[Frame, int] = {}  # their numbers

    def take(self, one: Access, chain: int, ended: Callable[[Past], npt.NDArray[np.bool_]]) -> bool:
        """Return whether the next access is in turn; `chain` is that of its strand.

        `ended` tells of earlier accesses whether they end before this one in every interleaving.
        """
        number = self._frames.setdefault(one.frame, len(self._frames))
        past = self._past[:, : len(self._known)]
        _, _, first, end, frame, writes = past
        beside = (frame != number) & (first < one.end) & (one.frame[0] < end)
        if not one.writes:
            beside &= writes != 0
        if beside.any() and not ended(past[:, beside]).all():
            return False
        if one.reads and not _held(self._there.get(one.frame, []), (one.start, one.stop)):
            return False
        if one.writes:
            self._overwrite(one)
        self._note(one, chain, number)
        return True

    def _overwrite(self, one: Access) -> None:
        """Forget the grains of other frames that a write may reach, and remember its own."""
        low, mine = one.frame[0], self._there.pop(one.frame, [])
        for frame, held in [*self._there.items()]:
            offset, blocks, origin = frame
            if offset >= one.end:
                continue
            reached = origin + (low - offset - blocks * self.sizes.nbytes) // self.sizes.grain
            left = [(a, min(b, reached)) for a, b in held if a < reached]
            if left:
                self._there[frame] = left
            else:
                del self._there[frame]
        self._there[one.frame] = _joined(mine, (one.start, one.stop))

    def _note(self, one: Access, chain: int, number: int) -> None:
        """Remember an access; a later one of the same chain to the same bytes replaces it."""
        key = chain, one.frame, one.end, one.writes
        at = self._known.setdefault(key, len(self._known))
        if at == self._past.shape[1]:
            self._past = np.concatenate([self._past, np.zeros_like(self._past)], axis=1)
        until = max(one.until, int(self._past[1, at]))
        self._past[:, at] = chain, until, one.frame[0], one.end, number, one.writes


def _held(held: Sequence[Grains], wanted: Grains) -> bool:
    start, stop = wanted
    return start >= stop or any(a <= start and stop <= b for a, b in held)


def _joined(held: Sequence[Grains], more: Grains) -> list[Grains]:
    """Add grains to some that are held; what is held has no two neighbours."""
    start, stop = more
    apart = [(a, b) for a, b in held if b < start or stop < a]
    near = [pair for pair in held if pair not in apart]
    return [*apart, (min([start, *(a for a, _ in near)]), max([stop, *(b for _, b in near)]))]


def out_of_turn(accesses: Sequence[Access], sizes: Sizes) -> Access | None:
    """Return the first access of a stream that the proof of the largest message says nothing about.

    None if all are in turn.
    """
    turns = Turns(sizes)
    for one in sorted(accesses, key=lambda a: (a.event, a.writes)):  # an operation reads first
        if not turns.take(one, 0, lambda past, now=one.event: past[1] < now):  # type: ignore[misc]
            return one
    return None


def out_of_order(
    rooms: Sequence[Sequence[Access]], sizes: Sizes, events: Events, pairs: Pairs
) -> Access | None:
    """Return the first access, of several streams to some rooms, that is not in turn, or None."""
    by_event: defaultdict[int, list[tuple[Turns, Access]]] = defaultdict(list)
    for accesses in rooms:
        turns = Turns(sizes)
        for one in accesses:
            by_event[one.event].append((turns, one))
    rows = np.full((len(events.rows), 1), NOTHING)
    rows[[*by_event]] = ACCESSED
    bad: list[Access] = []

    def accessed(strand: Strand, row: Row) -> None:
        for turns, one in sorted(by_event[strand.event], key=lambda pair: pair[1].writes):
            if not bad and not turns.take(one, strand.chain, lambda past: _ended(past, strand)):
                bad.append(one)

    Walk(events, pairs, rows).run({ACCESSED: accessed})
    return bad[0] if bad else None


def _ended(past: Past, strand: Strand) -> npt.NDArray[np.bool_]:
    """Return which accesses end before the event of a strand in every interleaving."""
    chain, until = past[:2]
    mine = chain == strand.chain
    ended: npt.NDArray[np.bool_] = np.where(
        mine, until < strand.event, strand.clock[chain] >= until
    )
    return ended
