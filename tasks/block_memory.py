"""The groups of calls by blocks over nodes, and the memory that their blocks go through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from han.common.kept import kept
from han.model.collectives import ROWS
from han.model.program import Base
from han.model.topology import Topology
from han.tasks.bundles import Blocks, Bundles, Shelf
from han.tasks.handed import Handed
from han.tasks.own_sizes import Ends
from han.tasks.parcels import Parcels
from han.tasks.signature import Signature

if TYPE_CHECKING:
    from typing_extensions import Self

STAGED = 2  # the number of the shelf with copied operands


@dataclass(frozen=True)
class BlockMemory:
    """A call by blocks: its bundles, and the shelves of its ranks.

    Of own sizes: between which ranks blocks are, which travel in parcels, and which are handed on.
    """

    collective: str
    composition: str
    bundles: Bundles
    in_place: bool = False
    ends: Ends | None = None
    parcels: Parcels | None = None
    handed: Handed | None = None

    @classmethod
    def of_call(cls, view: Topology, signature: Signature, composition: str) -> Self:
        """Return those of a call."""
        call = view, signature, composition
        own = (Ends.of(signature), Parcels.of_call(*call), Handed.of_call(*call))
        bundles = Bundles.of_call(*call)
        found = own if signature.own else ()
        return cls(signature.collective, composition, bundles, signature.in_place, *found)

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
