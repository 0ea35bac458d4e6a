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

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from han.common.kept import kept
from han.model.topology import Topology
from han.tasks.bundles import Bundles, Ranks
from han.tasks.own_sizes import Ends
from han.tasks.signature import Signature

Lane = tuple[int, int]  # of a node

WORD = 8  # bytes of a size; slots have whole words
HEAD = 2 * WORD  # bytes of the numbers before a parcel: native/data/slots.c
ROOM = 1 << 10  # bytes of a block in a slot, at most
LEAST = 32  # the same, at least
SAVED = 2  # messages for each of a carrier, from which on neighbours have parcels
# Bytes of a rank's slots in shared memory, at most: half of what a run takes of the least ring.
SHARED = 32 << 10


@dataclass(frozen=True)
class Parcel:
    """What a node sends to another one in a lane: slots for the targets of each source.

    `first` is the number of its first slot among those of all parcels that its carrier brings, and
    `before` the number of sources in the parcels before it.
    """

    lane: int
    node: int
    to: int
    targets: dict[int, Ranks]
    first: int = 0
    before: int = 0

    @kept
    def slots(self) -> int:
        """The number of its slots."""
        return sum(map(len, self.targets.values()))

    @property
    def sources(self) -> Ranks:
        """The ranks whose blocks it may hold."""
        return tuple(self.targets)

    @kept
    def starts(self) -> dict[int, int]:
        """The numbers of the first slots of all sources."""
        lengths = accumulate(map(len, self.targets.values()), initial=0)
        return dict(zip(self.targets, lengths, strict=False))

    def slot(self, source: int, target: int) -> int:
        """Return the number of the slot of a pair."""
        return self.starts[source] + self.targets[source].index(target)

    def brings(self, target: int) -> Ranks:
        """Return the ranks of which it may hold a block for a rank."""
        return tuple([source for source, targets in self.targets.items() if target in targets])


def _most(*counters: Counter[Any]) -> int:
    return max((max(one.values(), default=0) for one in counters), default=0)


@dataclass(frozen=True)
class Parcels:
    """The parcels of a call."""

    ends: Ends
    bundles: Bundles

    @classmethod
    def of_call(cls, view: Topology, signature: Signature, composition: str) -> Parcels | None:
        """Return the parcels of a call; None if all blocks travel by themselves between nodes.

        Ranks that are alone have nothing to share, nor have neighbours if no carrier would send
        fewer messages than some rank does by itself. The root of a gather may not know sizes.
        """
        if not signature.own or signature.singly or composition == "flat":
            return None
        bundles, neighbours = Bundles.of_call(view, signature, composition), signature.neighbours
        found = cls(Ends.of(signature), bundles)
        if bundles.largest == 1 or len(bundles.nodes) == 1:
            return None
        if neighbours is not None and (neighbours.same or found.saved < SAVED):
            return None
        return None if found.room < LEAST else found

    @kept
    def saved(self) -> float:
        """The most messages of a rank by itself, for each of the carrier that has most."""
        alone = [Counter(ranks) for ranks in zip(*self._between_nodes, strict=True)]
        lanes = {
            (self.bundles.place(source)[0], *self._lane(target))
            for source, target in self._between_nodes
        }
        shared = Counter((n, lane) for n, _, lane in lanes), Counter(lane[1:] for lane in lanes)
        return _most(*alone) / max(1, _most(*shared))

    # ---- parcels ------------------------------------------------------------------------------

    def leaving(self, node: int, lane: int) -> list[Parcel]:
        """Return the parcels that a node sends in a lane, the next node first."""
        nodes = len(self.bundles.nodes)
        others = [(node + k) % nodes for k in range(1, nodes)]
        return [one for to in others if (one := self._parcel(lane, node, to)).targets]

    def coming(self, node: int, lane: int) -> list[Parcel]:
        """Return the parcels that a node gets in a lane, that of the node before first."""
        nodes, first, before = len(self.bundles.nodes), 0, 0
        found: list[Parcel] = []
        for k in range(1, nodes):
            one = self._parcel(lane, (node - k) % nodes, node)
            if one.targets:
                found.append(replace(one, first=first, before=before))
                first, before = first + one.slots, before + len(one.targets)
        return found

    def _parcel(self, lane: int, node: int, to: int) -> Parcel:
        found = self._parcels.get((lane, node, to))
        if found is None:
            sources = [(s, self._targets(s, to, lane)) for s in self.bundles.nodes[node]]
            targets = {source: ranks for source, ranks in sources if ranks}
            found = self._parcels[lane, node, to] = Parcel(lane, node, to, targets)
        return found

    @kept
    def _parcels(self) -> dict[tuple[int, int, int], Parcel]:
        """Those that were asked for."""
        return {}

    def _targets(self, source: int, node: int, lane: int) -> Ranks:
        """Return the ranks of a bundle that may receive blocks of a rank."""
        bundle = self.bundles.bundle(node, lane)
        if self.ends.collective == "alltoallv" and self.ends.neighbours is None:
            return bundle
        return tuple([target for target in bundle if self.ends.meet(source, target)])

    def carrier(self, node: int, lane: int) -> int:
        """Return the rank that carries the parcels of a node in a lane."""
        return self.bundles.nodes[node][lane]

    def hands_on(self, node: int, lane: int) -> bool:
        """Return whether a carrier gets blocks for other ranks."""
        return (node, lane) in self._hand_on

    @property
    def folds(self) -> bool:
        """Whether any carrier gets blocks for other ranks."""
        return bool(self._hand_on)

    @property
    def counted(self) -> bool:
        """Whether carriers count the blocks that their ranks expect."""
        return self.ends.collective != "scatterv"

    # ---- slots --------------------------------------------------------------------------------

    def given(self, rank: int) -> Iterator[tuple[Parcel, int]]:
        """Yield the parcels in which a rank sends blocks, and where its slots for each begin."""
        node, first = self.bundles.place(rank)[0], 0
        for lane in range(self.bundles.lanes):
            for parcel in self.leaving(node, lane):
                if rank in parcel.targets:
                    yield parcel, first
                    first += len(parcel.targets[rank])

    @kept
    def most_given(self) -> int:
        """The most slots that a rank fills."""
        return max(self._given.values(), default=0)

    @kept
    def most_brought(self) -> int:
        """The most slots that a carrier of other ranks shows to them."""
        return max((self._brought[lane] for lane in self._hand_on), default=0)

    @kept
    def _given(self) -> Mapping[int, int]:
        """The slots that each rank fills."""
        if self.ends.neighbours is not None:
            return Counter(source for source, _ in self._between_nodes)
        nodes, root = self.bundles.nodes, self.bundles.root
        gets = [sum(self.ends.meet(root, rank) for rank in ranks) for ranks in nodes]
        return {
            rank: sum(gets) - gets[n]
            for n, ranks in enumerate(nodes)
            for rank in ranks
            if self.ends.meet(rank, root)
        }

    @kept
    def _brought(self) -> Mapping[Lane, int]:
        """The slots that the carrier of each lane of a node brings."""
        if self.ends.neighbours is not None:
            return Counter(self._lane(target) for _, target in self._between_nodes)
        nodes, root = self.bundles.nodes, self.bundles.root
        gives = [sum(self.ends.meet(rank, root) for rank in ranks) for ranks in nodes]
        return {
            (n, lane): (sum(gives) - gives[n]) * len(self._targets(root, n, lane))
            for n in range(len(nodes))
            for lane in range(self.bundles.lanes)
        }

    @kept
    def _hand_on(self) -> set[Lane]:
        """The lanes of nodes whose carriers get blocks for other ranks."""
        pairs, root = self._between_nodes, self.bundles.root
        if self.ends.neighbours is None:
            pairs = tuple(
                (root, rank) for rank in self.bundles.all_ranks if self.ends.meet(root, rank)
            )
        lanes = {target: self._lane(target) for _, target in pairs}
        return {lane for target, lane in lanes.items() if target != self.carrier(*lane)}

    @kept
    def _between_nodes(self) -> tuple[tuple[int, int], ...]:
        """The pairs of neighbours on different nodes."""
        neighbours, place = self.ends.neighbours, self.bundles.place
        pairs = () if neighbours is None else neighbours.pairs()
        return tuple((s, t) for s, t in pairs if place(s)[0] != place(t)[0])

    def _lane(self, target: int) -> Lane:
        """Return a rank's node, and the lane that brings its blocks."""
        return self.bundles.place(target)[0], self.bundles.lane(target)

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
