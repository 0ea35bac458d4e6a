"""Statistics of the plans of a communicator, similar to those of ``functools.lru_cache``."""

from __future__ import annotations

from typing import NamedTuple


class CacheInfo(NamedTuple):
    """Statistics of a communicator's calls on this rank.

    A call whose plan is kept is a hit, any other one a miss. At most `maxsize` plans are kept
    (HAN_PLANS). The least recently used one is evicted. The look-up in C does not count as a use
    until the next eviction, which empties it. `made` plans took `seconds` in all, including those
    of persistent requests. `shared` of them had been planned before, by this communicator or by
    one with the same topology and configuration.
    """

    hits: int
    misses: int
    maxsize: int
    currsize: int
    evictions: int
    made: int
    seconds: float
    shared: int

    def since(self, before: CacheInfo) -> CacheInfo:
        """Return the statistics without those of `before`, an earlier time."""
        return CacheInfo(
            self.hits - before.hits, self.misses - before.misses, self.maxsize, self.currsize,
            self.evictions - before.evictions, self.made - before.made,
            self.seconds - before.seconds, self.shared - before.shared,
        )  # fmt: skip

    def __str__(self) -> str:
        calls, each = self.hits + self.misses, self.seconds / max(1, self.made)
        return (
            f"{self.currsize} of at most {self.maxsize} plans; {self.hits} of {calls} calls found "
            f"theirs, {self.evictions} dropped; {self.made} made in {self.seconds * 1e3:.2f} ms "
            f"({each * 1e6:.0f} us each), {self.shared} of them shared with earlier ones"
        )


NOTHING_KEPT = CacheInfo(0, 0, 0, 0, 0, 0, 0.0, 0)  # of a communicator that is not used yet
