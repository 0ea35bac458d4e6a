"""The cells for blocks whose sizes only two ranks know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from han.model.channel_layout import LINE, lines
from han.model.program import OWN_BLOCK, Base, Ref
from han.submodules.measured import PAIRS_AHEAD, PAIRS_CELL
from han.tasks.context import Context
from han.tasks.outline import Outline

BESIDE = LINE // 2  # bytes of a cell for the facts about its block, which begins behind them
START = np.dtype(np.uint64).itemsize  # of these facts, behind the size


@dataclass(frozen=True)
class PairCells:
    """The cells of a rank: one for each other member, or a single one, of up to `room` bytes.

    Behind the cells of what a rank gives are those of what it hands on, `parts` in all. `behind`
    them are so many bytes of slots for blocks that go to other nodes, or come from them.
    """

    given: int
    parts: int
    room: int
    behind: int = 0

    @classmethod
    def of(cls, plan: Outline, level: int) -> PairCells:
        """Fit the cells of a run into the ring.

        A rank to which all give, or that gives to all, may be some runs behind or ahead: the more,
        the more members there are. So many runs have room in the ring. A block whose size only its
        sender knows must fit into a cell.
        """
        geometry, steps = plan.geometry(level), plan.block_steps
        chunk = plan.choice.levels[level].get("chunk", PAIRS_CELL)
        assert steps is not None
        behind = 0 if steps.parcels is None else lines(steps.parcels.shared)
        given, others = max(1, steps.most_given_inside), max(1, geometry.ranks - 1)
        parts = given + (0 if steps.handed is None else steps.handed.most)
        runs = 2 * PAIRS_AHEAD * (others if plan.signature.rooted else 1)
        nbytes, share = plan.signature.nbytes, (geometry.ring // runs - behind) // parts
        room = max(min(chunk, max(nbytes, share)), nbytes if plan.signature.singly else 0)
        most = (geometry.area - behind) // parts // LINE * LINE - BESIDE
        return cls(given, parts, max(0, min(room, most)), behind)

    @property
    def stride(self) -> int:
        """Bytes from cell to cell."""
        return lines(BESIDE + self.room)

    def of_pair(self, context: Context, giver: int, taker: int) -> Ref:
        """Return the cell for the block from one member to another."""
        number = taker - (taker > giver) if self.given > 1 else 0
        return context.cells(giver) + number * self.stride

    def handed(self, context: Context, giver: int, number: int) -> Ref:
        """Return the cell for a block that a member hands on, the first, second ... one."""
        return context.cells(giver) + (self.given + number - 1) * self.stride

    def slots(self, ranks: int) -> int:
        """Return where slots begin in a rank's part of the ring, in a channel of some ranks."""
        return max(self.parts * self.stride, lines(ranks * BESIDE))


def footprint(plan: Outline, level: int) -> int:
    """Return the bytes of each rank's ring that a run takes."""
    cells = PairCells.of(plan, level)
    return cells.slots(plan.geometry(level).ranks) + cells.behind


def tell(context: Context, cell: Ref, block: int) -> None:
    """Store the size of a block and where it begins."""
    facts = Ref(Base.TABLE, (block - 1) * OWN_BLOCK.itemsize)
    context.stream.copy(cell, facts, OWN_BLOCK.itemsize)
