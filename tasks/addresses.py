"""The memory, channels and requests that the operations of one rank's Program use."""

from __future__ import annotations

from itertools import accumulate

from han.model.program import GIVEN, SHOWN, Base, Ref
from han.tasks.outline import Outline


class Addresses:
    """Addresses in this rank's scratch memory, and numbers of its channels and requests."""

    def __init__(self, plan: Outline) -> None:
        self.plan = plan
        self.shown = [0] * plan.topology.depth  # bits of Program.writes
        self._channels = [0, *accumulate(g is not None for g in plan.geometries)]
        self.requests = 0  # how many there are
        self.scratch_bytes = 0
        self._named: dict[object, Ref] = {}

    def channel(self, level: int) -> int:
        """Return the number of a level's channel; levels without one do not count."""
        return self._channels[level]

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

    def named_scratch(self, key: object, nbytes: int) -> Ref:
        """Return private memory that lasts for a run: the same for each stream that names it."""
        if key not in self._named:
            self._named[key] = self.scratch(nbytes)
        return self._named[key]
