"""Where blocks lie whose sizes only two ranks know, and what a rank tells about them.

A rank that gives to one other has a flag in its small slot, and beside it the size of the block and
where it begins, and behind them the block, if there is room. Otherwise the block has a cell. A rank
that gives to several has one flag elsewhere, and all else in cells: a slot has a flag at its begin
only, as data of other calls lie behind that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from han.model.channel_layout import FLAG, LINE, SMALL, lines
from han.model.program import OWN_BLOCK, Base, Ref
from han.submodules.measured import PAIRS_AHEAD, PAIRS_CELL
from han.submodules.parts.cells import GATHERED
from han.tasks.context import Context
from han.tasks.outline import Outline

WORD = np.dtype(np.uint64).itemsize
FACTS = FLAG  # where a part of a slot, or a cell, has the size of its block, ...
START = FACTS + WORD  # where the block begins in its sender's buffer, ...
DATA = START + WORD  # and its bytes


@dataclass(frozen=True)
class PairCells:
    """The cells of a rank: one for each other member, or a single one, for up to `room` bytes.

    `small` says whether it uses its small slot, which has place for a block of up to `inside`.
    Behind the cells of what a rank gives are those of what it hands on, `parts` in all. `behind`
    them are so many bytes of slots for blocks that go to other nodes, or come from them.
    """

    given: int
    parts: int
    room: int
    behind: int
    small: bool
    inside: int

    @classmethod
    def of(cls, plan: Outline, level: int) -> PairCells:
        """Fit the cells of a run into the ring.

        A rank to which all give, or that gives to all, may be some runs behind or ahead: the more,
        the more members there are. So many runs have room in the ring. A block whose size only its
        sender knows must fit into a cell.
        """
        geometry, steps = plan.geometry(level), plan.block_steps
        choice = plan.choice.levels[level]
        chunk = choice.get("chunk", PAIRS_CELL)
        assert steps is not None
        behind = 0 if steps.parcels is None else lines(steps.parcels.shared)
        given, others = max(1, steps.most_given_inside), max(1, geometry.ranks - 1)
        parts = given + (0 if steps.handed is None else steps.handed.most)
        runs = 2 * PAIRS_AHEAD * (others if plan.signature.rooted else 1)
        nbytes, share = plan.signature.nbytes, (geometry.ring // runs - behind) // parts
        room = max(min(chunk, max(nbytes, share)), nbytes if plan.signature.singly else 0)
        most = (geometry.area - behind) // parts // LINE * LINE - DATA
        room = max(0, min(room, most))
        small = given == 1 and bool(choice.get("inline", 1))
        # Of a block that may come shorter its receiver does not know whether it is in a slot.
        inside = min(SMALL - DATA, room) if small and not plan.signature.singly else 0
        return cls(given, parts, room, behind, small, inside)

    @property
    def stride(self) -> int:
        """Bytes from cell to cell."""
        return lines(DATA + self.room)

    def flag(self, context: Context, giver: int) -> Ref:
        """Return the flag that tells that the blocks of a member are there."""
        return context.small(giver) if self.small else context.flag(giver, GATHERED)

    def told(self, context: Context, giver: int, taker: int) -> Ref:
        """Return where a member tells another about its block; a block of `inside` is there."""
        return context.small(giver) if self.small else self.of_pair(context, giver, taker)

    def of_pair(self, context: Context, giver: int, taker: int) -> Ref:
        """Return the cell for the block from one member to another."""
        number = taker - (taker > giver) if self.given > 1 else 0
        return context.cells(giver) + number * self.stride

    def handed(self, context: Context, giver: int, number: int) -> Ref:
        """Return the cell for a block that a member hands on, the first, second ... one."""
        return context.cells(giver) + (self.given + number - 1) * self.stride

    def slots(self, ranks: int) -> int:
        """Return where slots begin in a rank's part of the ring, in a channel of some ranks."""
        return max(self.parts * self.stride, lines(ranks * DATA))


def footprint(plan: Outline, level: int) -> int:
    """Return the bytes of each rank's ring that a run takes."""
    cells = PairCells.of(plan, level)
    return cells.slots(plan.geometry(level).ranks) + cells.behind


def tell(context: Context, place: Ref, block: int) -> None:
    """Store the size of a block, and where it begins, in a cell or in a part of a slot."""
    facts = Ref(Base.TABLE, (block - 1) * OWN_BLOCK.itemsize)
    context.stream.copy(place + FACTS, facts, DATA - FACTS)
