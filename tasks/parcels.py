"""Parcels: small blocks of own sizes that travel together, from the ranks of a node to another one.

Ranks do not know the sizes of each other's blocks. So a parcel has a slot for each block that it
may hold: the block's size, and the block itself unless it is large. In each lane the carrier of a
node sends a parcel to the carrier of each other node. A carrier of other ranks hands their blocks
on.

A parcel without small blocks is not sent. Its sender sees that from the slots, its receiver from
the sizes that the ranks of its bundle expect. In a scatter it is sent all the same, as a carrier
would have to wait for these ranks.

Source: Träff (lanes, alltoall of bundles).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from han.common.kept import kept
from han.model.topology import Topology
from han.tasks.bundles import Bundles, Ranks
from han.tasks.own_sizes import sends
from han.tasks.signature import Signature

WORD = 8  # bytes of a size; slots have whole words
HEAD = 2 * WORD  # bytes of the numbers before a parcel: native/data/slots.c
ROOM = 1 << 10  # bytes of a block in a slot, at most
LEAST = 32  # the same, at least
SHARED = (
    32 << 10
)  # bytes of a rank's slots in shared memory, at most: half of what a run takes of the least ring


class Parcel(NamedTuple):
    """What a node sends to another one in a lane: slots for pairs of ranks, by source.

    `first` is the number of its first slot among those of all parcels that its carrier brings, and
    `before` the number of sources in the parcels before it.
    """

    lane: int
    node: int
    to: int
    sources: Ranks
    targets: Ranks
    first: int = 0
    before: int = 0

    @property
    def slots(self) -> int:
        """The number of its slots."""
        return len(self.sources) * len(self.targets)

    def slot(self, source: int, target: int) -> int:
        """Return the number of the slot of a pair."""
        return self.sources.index(source) * len(self.targets) + self.targets.index(target)


@dataclass(frozen=True)
class Parcels:
    """The parcels of a call."""

    collective: str
    bundles: Bundles

    @classmethod
    def of_call(cls, view: Topology, signature: Signature, composition: str) -> Parcels | None:
        """Return the parcels of a call; None if all blocks travel by themselves between nodes.

        Ranks that are alone have nothing to share. Calls whose blocks travel `singly` are
        those of neighbours, which are few, and gathers whose root does not know sizes.
        """
        if not signature.own or signature.singly or composition == "flat":
            return None
        bundles = Bundles.of_call(view, signature, composition)
        found = cls(signature.collective, bundles)
        alone = bundles.largest == 1 or len(bundles.nodes) == 1
        return None if alone or found.room < LEAST else found

    # ---- parcels ------------------------------------------------------------------------------

    def leaving(self, node: int, lane: int) -> list[Parcel]:
        """Return the parcels that a node sends in a lane, the next node first."""
        nodes = len(self.bundles.nodes)
        others = [(node + k) % nodes for k in range(1, nodes)]
        return [one for to in others if (one := self._parcel(lane, node, to)).slots]

    def coming(self, node: int, lane: int) -> list[Parcel]:
        """Return the parcels that a node gets in a lane, that of the node before first."""
        nodes, first, before = len(self.bundles.nodes), 0, 0
        found: list[Parcel] = []
        for k in range(1, nodes):
            one = self._parcel(lane, (node - k) % nodes, node)
            if one.slots:
                found.append(one._replace(first=first, before=before))
                first, before = first + one.slots, before + len(one.sources)
        return found

    def _parcel(self, lane: int, node: int, to: int) -> Parcel:
        return Parcel(lane, node, to, self._sources[node], self._targets(to, lane))

    @kept
    def _sources(self) -> tuple[Ranks, ...]:
        """The ranks of each node that may send blocks."""
        name, root = self.collective, self.bundles.root
        return tuple(
            tuple([r for r in ranks if sends(name, root, r, root)]) for ranks in self.bundles.nodes
        )

    def _targets(self, node: int, lane: int) -> Ranks:
        """Return the ranks of a bundle that may receive blocks."""
        name, root = self.collective, self.bundles.root
        return tuple([r for r in self.bundles.bundle(node, lane) if sends(name, root, root, r)])

    def carrier(self, node: int, lane: int) -> int:
        """Return the rank that carries the parcels of a node in a lane."""
        return self.bundles.nodes[node][lane]

    def hands_on(self, node: int, lane: int) -> bool:
        """Return whether a carrier gets blocks for other ranks."""
        return any(r != self.carrier(node, lane) for r in self._targets(node, lane))

    @kept
    def folds(self) -> bool:
        """Whether any carrier gets blocks for other ranks."""
        nodes, lanes = range(len(self.bundles.nodes)), range(self.bundles.lanes)
        return any(self.hands_on(n, lane) for n in nodes for lane in lanes)

    @property
    def counted(self) -> bool:
        """Whether carriers count the blocks that their ranks expect."""
        return self.collective != "scatterv"

    # ---- slots --------------------------------------------------------------------------------

    def given(self, rank: int) -> Iterator[tuple[Parcel, int]]:
        """Yield the parcels in which a rank sends blocks, and where its slots for each begin."""
        node, first = self.bundles.place(rank)[0], 0
        for lane in range(self.bundles.lanes):
            for parcel in self.leaving(node, lane):
                if rank in parcel.sources:
                    yield parcel, first
                    first += len(parcel.targets)

    @kept
    def most_given(self) -> int:
        """The most slots that a rank fills."""
        nodes = [n for n, sources in enumerate(self._sources) if sources]
        lanes = range(self.bundles.lanes)
        gets = [
            sum(len(self._targets(n, lane)) for lane in lanes)
            for n in range(len(self.bundles.nodes))
        ]
        return max((sum(gets) - gets[n] for n in nodes), default=0)

    @kept
    def most_brought(self) -> int:
        """The most slots that a carrier of other ranks shows to them."""
        gives = [len(sources) for sources in self._sources]
        nodes, lanes = range(len(gives)), range(self.bundles.lanes)
        return max(
            (
                (sum(gives) - gives[n]) * len(self._targets(n, lane))
                for n in nodes
                for lane in lanes
                if self.hands_on(n, lane)
            ),
            default=0,
        )

    @kept
    def room(self) -> int:
        """The bytes of a block in a slot: larger blocks travel by themselves."""
        slots = max(1, self.most_given + self.most_brought)
        return min(ROOM, (SHARED - self.bundles.size * WORD) // slots // WORD * WORD - WORD)

    @property
    def stride(self) -> int:
        """The bytes of a slot."""
        return WORD + self.room

    @property
    def sizes_at(self) -> int:
        """Where a rank tells the sizes that it expects: behind the slots that it fills."""
        return self.most_given * self.stride

    @property
    def brought_at(self) -> int:
        """Where a carrier shows the slots that it has brought: behind these sizes."""
        return self.sizes_at + self.bundles.size * WORD

    @property
    def shared(self) -> int:
        """The bytes that a rank needs for all of these in shared memory."""
        return self.brought_at + self.most_brought * self.stride
