"""Bundles: which blocks travel together between nodes, and which ranks carry them.

Calls whose buffers hold a block for each rank have two levels: nodes of ranks that share memory, and
all nodes. Between nodes blocks travel in lanes. The ranks of a node take the lanes in turn, and the
first rank of a lane carries the blocks of all its ranks: its *bundle*. A tree has one lane, that of
the leaders. So many lanes as the smallest node has ranks keep all ranks busy.

Source: Tran et al., sections 2 and 3 (leaders, rails); Träff (lanes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from han.model.topology import Topology
from han.tasks.lanes import in_turn

Members = tuple[int, ...]
Ranks = tuple[int, ...]


class Runs(NamedTuple):
    """Blocks of consecutive ranks: `count` of them, from that of rank `first` on."""

    first: int
    count: int  # type: ignore[assignment]  # it hides tuple.count


def runs_of(ranks: Sequence[int]) -> list[Runs]:
    """Return the blocks of some ranks as runs, in the order of ranks."""
    found: list[Runs] = []
    for rank in sorted(ranks):
        if found and sum(found[-1]) == rank:
            found[-1] = Runs(found[-1].first, found[-1].count + 1)
        else:
            found.append(Runs(rank, 1))
    return found


class BlockMap(NamedTuple):
    """What each member of a group gives to others: the blocks of these ranks, in this order.

    `takes` are the members from which each member takes them; (): from all others.
    """

    gives: tuple[Ranks, ...]
    takes: tuple[Members, ...] = ()


@dataclass(frozen=True)
class Bundles:
    """The nodes, each with its ranks in the order in which they take lanes, and the lanes."""

    nodes: tuple[Ranks, ...]
    lanes: int

    @classmethod
    def of(cls, view: Topology, composition: str) -> Bundles:
        """Return the bundles of a composition; all but ``lanes`` have one lane."""
        nodes = nodes_of(view)
        if view.rail_count > 1:
            nodes = tuple(_by_rails(view, ranks) for ranks in nodes)
        return cls(nodes, min(map(len, nodes)) if composition == "lanes" else 1)

    def place(self, rank: int) -> tuple[int, int]:
        """Return the number of a rank's node, and its place there."""
        return next((n, ranks.index(rank)) for n, ranks in enumerate(self.nodes) if rank in ranks)

    def bundle(self, node: int, lane: int) -> Ranks:
        """Return the ranks of a node whose blocks travel in a lane; the first one carries them."""
        return self.nodes[node][lane :: self.lanes]

    @property
    def most_in_lane(self) -> int:
        """The most blocks that travel in a lane."""
        nodes = range(len(self.nodes))
        return max(sum(len(self.bundle(n, lane)) for n in nodes) for lane in range(self.lanes))

    @property
    def gathers(self) -> bool:
        """Whether some ranks give their blocks to others that carry them."""
        return max(map(len, self.nodes)) > self.lanes

    def between(self, lane: int) -> BlockMap:
        """Return what the carriers of a lane give to each other: their bundles."""
        return BlockMap(tuple(self.bundle(n, lane) for n in range(len(self.nodes))))

    def first(self, node: int) -> BlockMap:
        """Return what the ranks of a node, in their order, give to those that carry bundles."""
        size, lanes = len(self.nodes[node]), self.lanes
        gives = tuple(() if m < lanes else (self.nodes[node][m],) for m in range(size))
        takes = tuple(tuple(range(m + lanes, size, lanes)) if m < lanes else () for m in range(size))
        return BlockMap(gives, takes)

    def last(self, node: int) -> BlockMap:
        """Return what carriers give to all ranks of a node, in the order in which a ring brings it."""
        size, nodes = len(self.nodes[node]), len(self.nodes)
        order = [(node - k) % nodes for k in range(nodes)]
        gives = tuple(
            tuple(r for n in order for r in self.bundle(n, m)) if m < self.lanes else ()
            for m in range(size)
        )
        if size == self.lanes:
            return BlockMap(gives)
        carriers = range(self.lanes)
        return BlockMap(gives, tuple(tuple(m for m in carriers if m != me) for me in range(size)))


def everyone(size: int) -> BlockMap:
    """Return what the ranks of one level that holds all of them give to each other."""
    return BlockMap(tuple((rank,) for rank in range(size)))


def nodes_of(view: Topology) -> tuple[Ranks, ...]:
    """Return the ranks of each node; each rank is a node where no level inside shares memory."""
    if view.node_level is None:
        return tuple((rank,) for rank in range(view.size))
    return view.node_ranks


def _by_rails(view: Topology, ranks: Ranks) -> Ranks:
    return tuple(ranks[k] for k in in_turn([view.rails[rank] for rank in ranks]))
