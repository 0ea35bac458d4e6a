"""The groups of calls by blocks over nodes, and the memory that their blocks go through."""

from __future__ import annotations

from dataclasses import dataclass

from han.common.kept import kept
from han.model.collectives import ROWS
from han.model.program import Base
from han.tasks.bundles import Blocks, Bundles, Shelf
from han.tasks.parcels import Parcels

STAGED = 2  # the number of the shelf with copied operands


@dataclass(frozen=True)
class BlockMemory:
    """A call by blocks: its bundles, and the shelves of its ranks; of own sizes, its parcels."""

    collective: str
    composition: str
    bundles: Bundles
    in_place: bool = False
    parcels: Parcels | None = None

    @kept
    def flat(self) -> bool:
        """Whether each rank sends to all ranks of other nodes."""
        alone = self.bundles.largest == 1
        own = ROWS[self.collective].own
        return own or (self.collective == "alltoall" and (self.composition == "flat" or alone))

    def most_given(self, kind: str) -> int:
        """Return the most blocks that a member gives in a step inside a node."""
        bundles = self.bundles
        if kind in ("alltoall", "reduce_scatter"):
            return bundles.size
        if (self.collective, kind) == ("allgather", "allgather"):
            return bundles.most_in_lane
        if (self.collective, kind) == ("alltoall", "scatter"):
            return bundles.size * -(-bundles.largest // bundles.lanes)
        return 1 if kind == "gather" else bundles.largest

    @kept
    def all_ranks(self) -> tuple[int, ...]:
        """All ranks, those of one node far from each other: a flat call meets nodes in turn."""
        nodes = self.bundles.nodes
        places = range(self.bundles.largest)
        return tuple(ranks[p] for p in places for ranks in nodes if p < len(ranks))

    # ---- memory -----------------------------------------------------------------------------

    @kept
    def everything(self) -> Shelf:
        """A receive buffer with the block of each rank."""
        return Shelf(Base.RECV, range(self.bundles.size))

    def own(self, rank: int) -> Shelf:
        """Return a send buffer with one block."""
        return Shelf(Base.SEND, range(rank, rank + 1))

    def sent(self, rank: int) -> Shelf:
        """Return where the blocks of a rank in an alltoall are: its send buffer, or a copy."""
        size = self.bundles.size
        return self.operands(range(rank * size, (rank + 1) * size))

    def operands(self, blocks: Blocks) -> Shelf:
        """Return the send buffer; in place a copy, as blocks are received into the buffer."""
        return Shelf(Base.SCRATCH, blocks, STAGED) if self.in_place else Shelf(Base.SEND, blocks)

    def received(self, rank: int) -> Shelf:
        """Return the receive buffer of a rank in an alltoall."""
        size = self.bundles.size
        return Shelf(Base.RECV, range(rank, size * size, size))

    def of_node(self, node: int) -> Shelf:
        """Return the memory of a leader for the blocks of its node: scratch."""
        return Shelf(Base.SCRATCH, sorted(self.bundles.nodes[node]))

    def towards(self, node: int) -> list[int]:
        """Return the numbers of the other nodes in the order in which a node sends, and its own."""
        return [(node + k) % len(self.bundles.nodes) for k in range(1, len(self.bundles.nodes) + 1)]
