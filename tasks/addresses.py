"""The memory, flags and requests that the operations of one rank's Program use."""

from __future__ import annotations

from itertools import accumulate

from han.model.channel_layout import Geometry
from han.model.program import GIVEN, SHOWN, Area, Base, Ref, channel_ref
from han.tasks.outline import Outline


class Addresses:
    """Addresses in this rank's scratch memory and in its channels, and numbers of requests."""

    def __init__(self, plan: Outline) -> None:
        self.plan = plan
        self.shown = [0] * plan.topology.depth  # bits of Program.writes
        self._channels = [0, *accumulate(g is not None for g in plan.geometries)]
        # Addresses are kept, since every piece uses the same few.
        self._flags: dict[tuple[int, int, int], Ref] = {}
        self._small: dict[tuple[int, int], Ref] = {}
        self._cells: dict[tuple[int, int], Ref] = {}
        self.requests = 0  # how many there are
        self.scratch_bytes = 0

    def geometry(self, level: int) -> Geometry:
        """Return the layout of a level's channel."""
        geometry = self.plan.geometries[level]
        assert geometry is not None, "supports() lets only levels with shared memory pass"
        return geometry

    def channel(self, level: int) -> int:
        """Return the number of a level's channel; levels without one do not count."""
        return self._channels[level]

    def flag(self, level: int, slot: int, flag: int) -> Ref:
        """Return the address of a member's flag."""
        key = level, slot, flag
        return self._flags.get(key) or self._flags.setdefault(
            key, self._ref(level, Area.FLAGS, self.geometry(level).flag_at(slot, flag))
        )

    def small(self, level: int, slot: int) -> Ref:
        """Return the address of a member's small slot: a flag and a page of data."""
        key = level, slot
        return self._small.get(key) or self._small.setdefault(
            key, self._ref(level, Area.SMALL, self.geometry(level).small_at(slot))
        )

    def cells(self, level: int, slot: int) -> Ref:
        """Return the address of a member's cells."""
        key = level, slot
        return self._cells.get(key) or self._cells.setdefault(
            key, self._ref(level, Area.CELLS, self.geometry(level).area_at(slot))
        )

    def _ref(self, level: int, area: Area, offset: int) -> Ref:
        return channel_ref(self._channels[level], area, offset)

    def show(self, level: int, given: bool = False) -> None:
        """Show this rank's buffers to the ranks of a channel; `given`: peers may write to them."""
        self.shown[self._channels[level]] |= SHOWN | (GIVEN if given else 0)

    def request(self) -> int:
        """Return the number of a new request."""
        self.requests += 1
        return self.requests - 1

    def scratch(self, nbytes: int) -> Ref:
        """Return the address of private memory that lasts for a run."""
        ref = Ref(Base.SCRATCH, self.scratch_bytes)
        self.scratch_bytes += -(-nbytes // 64) * 64
        return ref
