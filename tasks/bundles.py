"""Bundles: which blocks travel together between nodes, and which ranks carry them.

Calls whose buffers hold a block for each rank have two levels: nodes of ranks that share memory,
and all nodes. Between nodes blocks travel in lanes. The ranks of a node take the lanes in turn, and
the first rank of a lane carries the blocks of all its ranks, their *bundle*. A tree has one lane,
that of the leaders. So many lanes as the smallest node has ranks keep all ranks busy.

A block has a number: the rank that it is of, or that it is for; in an alltoall, `size` times the
first plus the second. The steps of each collective (:mod:`han.tasks.block_steps`) are
:class:`Moves`.

Source: Tran et al., sections 2 and 3 (leaders, rails); Träff (lanes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from han.common.kept import kept
from han.model.program import Base, Ref
from han.model.topology import Topology
from han.tasks.lanes import in_turn
from han.tasks.signature import Signature

Members = tuple[int, ...]
Ranks = tuple[int, ...]
Blocks = Sequence[int]  # by number


@dataclass(frozen=True)
class Shelf:
    """Memory of a rank that holds these blocks, one behind the other.

    `base` is one of the user's buffers, or scratch memory, of which a rank has several: `number`.
    """

    base: Base
    blocks: Blocks
    number: int = 0

    @kept
    def _places(self) -> dict[int, int]:
        return {block: place for place, block in enumerate(self.blocks)}

    def at(self, block: int) -> int:
        """Return how many blocks lie before a block."""
        blocks = self.blocks
        return blocks.index(block) if isinstance(blocks, range) else self._places[block]

    def places(self, blocks: Blocks) -> list[int]:
        """Return how many blocks lie before each of some blocks."""
        if isinstance(self.blocks, range):
            first, step = self.blocks.start, self.blocks.step
            return [(block - first) // step for block in blocks]
        return [self._places[block] for block in blocks]


def none(member: int) -> Blocks:
    """Return that a member has no such blocks."""
    return ()


@dataclass(frozen=True)
class Moves:
    """What the members of a group give to each other in one step.

    `given` are the blocks that one member gives to another one, and `gives` all that it gives, in
    the order in which it gets them. It `keeps` some blocks for itself. It finds what it gives and
    keeps in its `source`, and puts what it takes and keeps into its `result`.

    `spreads`: everyone takes all blocks, and passes on what it has taken.
    """

    gives: Callable[[int], Blocks]
    given: Callable[[int, int], Blocks]
    source: Callable[[int], Shelf]
    result: Callable[[int], Shelf]
    keeps: Callable[[int], Blocks] = none
    spreads: bool = False

    def sent_from(self, member: int) -> Shelf:
        """Return where a member has what it sends: kept and taken blocks are in its result."""
        return self.result(member) if self.spreads else self.source(member)


def moves(
    gives: Callable[[int], Blocks], given: Callable[[int, int], Blocks],
    source: Callable[[int], Shelf], result: Callable[[int], Shelf],
    keeps: Callable[[int], Blocks] = none,
) -> Moves:  # fmt: skip
    """Return moves whose functions are computed once for each member."""
    return Moves(cache(gives), cache(given), cache(source), cache(result), cache(keeps))


def spreading(
    gives: Callable[[int], Blocks], source: Callable[[int], Shelf], result: Shelf,
    keeps: Callable[[int], Blocks] = none,
) -> Moves:  # fmt: skip
    """Return moves in which everyone takes all blocks."""
    gives = cache(gives)
    return Moves(gives, lambda giver, _: gives(giver), cache(source), lambda _: result, keeps, True)


@dataclass(frozen=True)
class Bundles:
    """The nodes, each with its ranks in the order in which they take lanes, and the lanes."""

    size: int
    root: int
    nodes: tuple[Ranks, ...]
    lanes: int

    @classmethod
    def of(cls, view: Topology, composition: str, root: int, apart: bool = False) -> Bundles:
        """Return the bundles of a composition; all but ``lanes`` have one lane.

        A root is the first rank of its node. `apart`: each rank counts as a node.
        """
        found = tuple((rank,) for rank in range(view.size)) if apart else nodes_of(view)
        nodes = tuple(_in_order(view, ranks, root) for ranks in found)
        lanes = min(map(len, nodes)) if composition == "lanes" else 1
        return cls(view.size, root, nodes, lanes)

    @classmethod
    def of_call(cls, view: Topology, signature: Signature, composition: str) -> Bundles:
        """Return the bundles of a call.

        Blocks of own sizes go through shared memory only if ranks can attach each other's.
        """
        apart = signature.own and not view.attach
        return cls.of(view, composition, signature.root, apart)

    @kept
    def _places(self) -> dict[int, tuple[int, int]]:
        places = enumerate(self.nodes)
        return {rank: (n, p) for n, ranks in places for p, rank in enumerate(ranks)}

    def place(self, rank: int) -> tuple[int, int]:
        """Return the number of a rank's node, and its place there."""
        return self._places[rank]

    def lane(self, rank: int) -> int:
        """Return the lane in which a rank's blocks travel."""
        return self._places[rank][1] % self.lanes

    def bundle(self, node: int, lane: int) -> Ranks:
        """Return the ranks of a node whose blocks travel in a lane; the first one carries them."""
        return self.nodes[node][lane :: self.lanes]

    def from_node(self, node: int) -> list[int]:
        """Return the numbers of all nodes, this one first, in the order of a ring."""
        return [(node - k) % len(self.nodes) for k in range(len(self.nodes))]

    @kept
    def most_in_lane(self) -> int:
        """The most ranks whose blocks travel in a lane."""
        nodes = range(len(self.nodes))
        return max(sum(len(self.bundle(n, lane)) for n in nodes) for lane in range(self.lanes))

    @kept
    def largest(self) -> int:
        """The number of ranks of the largest node."""
        return max(map(len, self.nodes))

    @kept
    def all_ranks(self) -> Ranks:
        """All ranks, those of one node far from each other: a flat call meets nodes in turn."""
        places = range(self.largest)
        return tuple(ranks[p] for p in places for ranks in self.nodes if p < len(ranks))

    @property
    def in_order(self) -> bool:
        """Whether each node has consecutive ranks."""
        return all(max(ranks) - min(ranks) < len(ranks) for ranks in self.nodes)

    @property
    def folds(self) -> bool:
        """Whether some ranks have their blocks carried by others."""
        return self.largest > self.lanes


def nodes_of(view: Topology) -> tuple[Ranks, ...]:
    """Return the ranks of each node; each rank is a node where no level inside shares memory."""
    if view.whole is not None:
        return (tuple(range(view.size)),)
    if view.node_level is None:
        return tuple((rank,) for rank in range(view.size))
    return view.node_ranks


def _in_order(view: Topology, ranks: Ranks, root: int) -> Ranks:
    """Return the ranks of a node rail by rail in turn, a root first."""
    found = [ranks[k] for k in in_turn([view.rails[rank] for rank in ranks])]
    return tuple(sorted(found, key=lambda rank: rank != root))


def block_of(buffer: Ref, number: int, signature: Signature) -> Ref:
    """Return where block `number` is in a buffer that holds one for each rank."""
    if signature.counts:  # a program for these sizes only
        return buffer + signature.start(number)
    return buffer.behind(number)
