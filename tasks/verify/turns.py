"""Memory that one stream uses in turn for different grains.

Two frames that overlap hold different grains in common bytes, and how these bytes divide depends on
the size of the message. The proof of the largest one stands for shorter ones nevertheless if

- one stream makes all accesses, and none to one frame while one to the other is under way,
- every read finds grains that were written in its own frame since the last write to the other.

Then the bytes of a grain that is read are those of the same writes for every size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Frame = tuple[int, int, int]  # offset, blocks and origin
Extent = tuple[int, int]  # the bytes of a frame, from .. to, in the largest message


class Access(NamedTuple):
    """An operand: the grains `start` to `stop` of a frame, from its event until another one."""

    event: int
    until: int
    frame: Frame
    start: int
    stop: int
    reads: bool
    writes: bool


def out_of_turn(accesses: Sequence[Access], extents: Mapping[Frame, Extent]) -> Access | None:
    """Return the first access of a stream that the proof of the largest message says nothing about.

    None if all are in turn.
    """
    beside = {frame: _beside(frame, extents) for frame in extents}
    there: dict[Frame, set[int]] = {frame: set() for frame in extents}
    under_way: list[Access] = []
    for one in sorted(accesses, key=lambda a: (a.event, a.writes)):  # an operation reads first
        under_way = [a for a in under_way if a.until > one.event or a.event == one.event]
        grains = range(one.start, one.stop)
        met = any(a.frame in beside[one.frame] and (a.writes or one.writes) for a in under_way)
        if met or (one.reads and not there[one.frame].issuperset(grains)):
            return one
        if one.writes:
            for frame in beside[one.frame]:
                there[frame].clear()
            there[one.frame].update(grains)
        under_way.append(one)
    return None


def _beside(frame: Frame, extents: Mapping[Frame, Extent]) -> set[Frame]:
    """Return the other frames that have bytes in common with one."""
    begin, end = extents[frame]
    return {f for f, (low, high) in extents.items() if f != frame and low < end and begin < high}
