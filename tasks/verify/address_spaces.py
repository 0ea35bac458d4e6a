"""The memories that Programs address, as numbers, and those that the bases of each run mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from han.model.channel_layout import SMALL_BANKS
from han.model.program import Area, Base
from han.tasks.plan import Plan
from han.tasks.spec import Spec

Numbers = npt.NDArray[np.int64]
PIECES = SMALL_BANKS + 2  # memories of a channel: banks of small slots, cells, flags


@dataclass
class RingUse:
    """The parts of a channel's rings that runs have taken (native/engine/runs.h)."""

    size: int
    head: int = 0
    taken: list[tuple[int, int]] = field(default_factory=list)
    needed: int = 0
    start: int = 0

    def take(self, run: int, nbytes: int) -> None:
        """Take the next `nbytes` for a run."""
        if not nbytes:
            return
        start = self.head
        if start % self.size + nbytes > self.size:
            start += self.size - start % self.size
        self.head = start + nbytes
        while self.taken and self.taken[0][0] + self.size < self.head:
            self.needed = self.taken.pop(0)[1] + 1
        self.taken.append((start, run))
        self.start = start % self.size


@dataclass(frozen=True)
class Parts:
    """The start of a run's part of each channel, and the number of runs that must end before."""

    starts: tuple[int, ...]
    needed: tuple[int, ...]


def parts_taken(plans: Sequence[Plan]) -> Iterator[Parts]:
    """Yield the parts of the rings that runs of these plans take, one after the other."""
    rings = [RingUse(g.ring) for g in plans[0].geometries if g is not None]
    for run, plan in enumerate(plans):
        for ring, nbytes in zip(rings, plan.footprint(), strict=True):
            ring.take(run, nbytes)
        yield Parts(tuple(r.start for r in rings), tuple(r.needed for r in rings))


class AddressSpaces:
    """Numbers all memories: those of channels first, then each rank's own in each run.

    ``one_buffer[run, rank]`` says that the send and the receive buffer are the same, and
    ``replaced[run, rank]`` that this is so because of `in_place`.
    """

    def __init__(self, plans: Sequence[Plan], specs: Sequence[Spec], in_place: bool) -> None:
        topology = plans[0].topology
        self.plans, self.specs, self.size = plans, specs, topology.size
        self.channels = plans[0].channels
        self.one_buffer, two = (
            np.array([self._buffers(*one, form) for one in zip(plans, specs, strict=True)])
            for form in (in_place, False)
        )
        self.replaced: npt.NDArray[np.bool_] = self.one_buffer & ~two
        homes = [np.array(topology.homes[level]) for level in self.channels]
        first = np.cumsum([0, *(h.max() + 1 for h in homes)])
        self._homes = [h + n for h, n in zip(homes, first, strict=False)]
        self.shared = int(first[-1]) * PIECES
        self.parts = list(parts_taken(plans))
        self.room = np.array([self._sharers(homes[c]) for c in range(len(homes))])

    def _buffers(self, plan: Plan, spec: Spec, in_place: bool) -> npt.NDArray[np.bool_]:
        signature = plan.signature
        replaces = in_place and signature.reduces and not signature.by_blocks
        shared = np.full(self.size, spec.shared or replaces or signature.in_place)
        if signature.collective == "reduce":
            shared[np.arange(self.size) != signature.root] = False
        return shared

    @staticmethod
    def _sharers(homes: Numbers) -> Numbers:
        """Return the number of ranks that share each rank's channel."""
        sharers: Numbers = np.bincount(homes)[homes]
        return sharers

    @property
    def bases(self) -> int:
        """Number of bases that an address may be relative to."""
        return Base.CHANNEL + len(Area) * len(self.channels)

    def own(self, run: int, rank: int, base: int) -> int:
        """Return the number of a rank's buffer or scratch."""
        if base == Base.SEND and self.one_buffer[run, rank]:
            base = Base.RECV
        return self.shared + (run * self.size + rank) * 3 + base - Base.SEND

    def operand(self, run: int, rank: int) -> int:
        """Return the number of a rank's send buffer, also where it is the receive buffer."""
        return self.shared + (run * self.size + rank) * 3

    def operands(self, run: Numbers, holder: Numbers, base: Numbers) -> npt.NDArray[np.bool_]:
        """Return which references are to send buffers that are receive buffers in place."""
        sent: npt.NDArray[np.bool_] = (base == Base.SEND) & self.replaced[run[:, None], holder]
        return sent

    def memories(self, run: int) -> Numbers:
        """Return the memory of each rank's bases, by rank and base; -1: none."""
        table = np.full((self.size, self.bases), -1)
        own = self.shared + (run * self.size + np.arange(self.size)) * 3
        table[:, Base.SEND] = own + self.one_buffer[run]
        table[:, Base.RECV], table[:, Base.SCRATCH] = own + 1, own + 2
        for channel, homes in enumerate(self._homes):
            base = Base.CHANNEL + len(Area) * channel
            table[:, base + Area.SMALL] = homes * PIECES + run % SMALL_BANKS
            table[:, base + Area.CELLS] = homes * PIECES + SMALL_BANKS
            table[:, base + Area.FLAGS] = homes * PIECES + SMALL_BANKS + 1
        return table

    def shifts(self, run: int) -> Numbers:
        """Return the bytes to add to offsets, by base: where the run's part of the cells begins."""
        shifts = np.zeros(self.bases, np.int64)
        shifts[Base.CHANNEL + Area.CELLS :: len(Area)] = self.parts[run].starts
        return shifts
