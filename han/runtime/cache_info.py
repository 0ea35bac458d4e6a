"""What became of the calls of a communicator, in the manner of ``functools``."""

from __future__ import annotations

from typing import NamedTuple


class CacheInfo(NamedTuple):
    """Counts of the calls of a communicator on this rank.

    A call is a hit if its plan was there, else a miss. At most `maxsize` plans are kept
    (HAN_PLANS); the plan that was looked for longest ago goes first. (A call of plain arrays looks
    for none until another plan has gone.) `made` plans took `seconds` altogether, those of
    persistent requests too; `stored` of them were read from HAN_WISDOM.
    """

    hits: int
    misses: int
    maxsize: int
    currsize: int
    evictions: int
    made: int
    stored: int
    seconds: float

    def __str__(self) -> str:
        calls, each = self.hits + self.misses, self.seconds / max(1, self.made)
        return (
            f"{self.currsize} of at most {self.maxsize} plans; {self.hits} of {calls} calls found "
            f"theirs, {self.evictions} dropped; {self.made} made in {self.seconds * 1e3:.2f} ms "
            f"({each * 1e6:.0f} us each), {self.stored} of them from stored ones"
        )
