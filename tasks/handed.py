"""Blocks that several ranks of a node need, and that come to the node once.

Where a rank sends one block to all its neighbours, one of them in each other node receives it, and
hands it on to the others there.

Source: Bienz, Collom et al., MPI Advance (locality-aware neighbourhood collectives).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from han.common.kept import kept
from han.model.topology import Topology
from han.tasks.bundles import Bundles, Ranks
from han.tasks.neighbours import Neighbours
from han.tasks.signature import Signature

MOST = 512  # blocks of a rank, whose cells take half of what a run takes of the least ring


class HandOn(NamedTuple):
    """What a rank hands on: the block of a rank of another node, and those that wait for it."""

    source: int
    takers: Ranks


@dataclass(frozen=True)
class Handed:
    """All blocks of a call that ranks hand on."""

    neighbours: Neighbours
    bundles: Bundles

    @classmethod
    def of_call(cls, view: Topology, signature: Signature, composition: str) -> Handed | None:
        """Return what ranks of a call hand on; None if that is nothing, or too much for a rank."""
        neighbours = signature.neighbours
        if neighbours is None or not neighbours.same or composition == "flat":
            return None
        found = cls(neighbours, Bundles.of_call(view, signature, composition))
        return found if 0 < found.most <= MOST else None

    @kept
    def receivers(self) -> dict[tuple[int, int], Ranks]:
        """The ranks of a node that need a block of another one, by its rank and node.

        The first one receives it. Ranks of different places have different ones, so that all
        receive some.
        """
        found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for source, target in self.neighbours.pairs():
            node = self.bundles.place(target)[0]
            if node != self.bundles.place(source)[0]:
                found[source, node].append(target)
        return {key: self._turned(key[0], ranks) for key, ranks in found.items()}

    def _turned(self, source: int, ranks: list[int]) -> Ranks:
        first = self.bundles.place(source)[1] % len(ranks)
        return (*ranks[first:], *ranks[:first])

    def receives(self, source: int, target: int) -> bool:
        """Return whether a neighbour in another node gets the block from the rank that it is of."""
        node = self.bundles.place(target)[0]
        return self.receivers[source, node][0] == target

    @kept
    def by_giver(self) -> dict[int, tuple[HandOn, ...]]:
        """What each rank hands on, in the order in which it receives."""
        order = {rank: k for k, rank in enumerate(self.bundles.all_ranks)}
        found: defaultdict[int, list[HandOn]] = defaultdict(list)
        for (source, _), (giver, *takers) in self.receivers.items():
            if takers:
                found[giver].append(HandOn(source, tuple(takers)))
        size = len(order)
        return {
            giver: tuple(sorted(each, key=lambda one: (order[giver] - order[one.source]) % size))
            for giver, each in found.items()
        }

    def hands_on(self, giver: int, source: int) -> bool:
        """Return whether a rank hands on the block of another one."""
        return any(one.source == source for one in self.by_giver.get(giver, ()))

    @kept
    def most(self) -> int:
        """The most blocks that a rank hands on."""
        return max(map(len, self.by_giver.values()), default=0)

    def givers(self, rank: int) -> dict[int, int]:
        """Return who hands on to a rank, by the source of each such block."""
        return {
            hand_on.source: giver
            for giver, each in self.by_giver.items()
            for hand_on in each
            if rank in hand_on.takers
        }
