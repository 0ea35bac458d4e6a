"""Who sends to whom in the node-aware parallel allreduce (NAP).

Nodes form nested subgroups. In round t, the subgroups of each group exchange their partial results:
local rank j of a node receives that of subgroup j, and the local rank whose number is that of its
own subgroup has the node's partial result already. An allreduce inside the node then combines them.
So every node combines the subgroups in the same order, and all ranks get the same bits.

The subgroups of a group have nearly the same size. A node of a larger one has a place that a
smaller subgroup lacks; it receives from the rank of another place that has nothing to exchange.

Source: Bienz, Olson, Gropp, Node-aware improvements to allreduce, Algorithm 1 and sections III and
III-A (figures 6 to 9).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from han.model.topology import Topology
from han.tasks.choice import Choice
from han.tasks.lanes import inner_levels

Nodes = tuple[tuple[int, ...], ...]


def steps_of(count: int, base: int) -> int:
    """Return the least number of steps with ``base ** steps >= count``."""
    steps, held = 0, 1
    while held < count:
        steps, held = steps + 1, held * base
    return steps


class Round(NamedTuple):
    """A node's place in a round: its group is cut into `bounds`, it is in subgroup `own`."""

    bounds: tuple[tuple[int, int], ...]
    own: int
    position: int  # of the node in its subgroup

    @property
    def parts(self) -> int:
        """How many subgroups there are; with one there is nothing to exchange."""
        return len(self.bounds)


@dataclass(frozen=True)
class Nap:
    """The rounds of an allreduce among `nodes`, the ranks of each node, of `base` subgroups each.

    A node has at least `base` ranks; with a base of 2, one rank suffices.
    """

    nodes: Nodes
    base: int

    def __post_init__(self) -> None:
        if self.base < 2:
            raise ValueError(f"base {self.base}: 2 or more expected")

    @cached_property
    def rounds(self) -> int:
        """The least number with ``base ** rounds >= nodes``."""
        return steps_of(len(self.nodes), self.base)

    def round(self, node: int, number: int) -> Round:
        """Return a node's place in a round; the first is 1, which joins neighbours."""
        first, stop = 0, len(self.nodes)
        for level in range(self.rounds, 0, -1):
            bounds = tuple(self._cut(first, stop, level))
            own = next(k for k, (_, end) in enumerate(bounds) if node < end)
            if level == number:
                return Round(bounds, own, node - bounds[own][0])
            first, stop = bounds[own]
        raise ValueError(f"round {number} of {self.rounds}")

    def _cut(self, first: int, stop: int, level: int) -> Iterator[tuple[int, int]]:
        """Cut a group of a level into the fewest subgroups that the rounds below can serve."""
        most = self.base ** (level - 1)
        parts = -(-(stop - first) // most)
        edges = [first + (stop - first) * k // parts for k in range(parts + 1)]
        return pairwise(edges)

    def receives(self, node: int, number: int) -> dict[int, tuple[int, int]]:
        """Return what a node receives: (local rank, sending rank) by subgroup."""
        here = self.round(node, number)
        found = {}
        for part in range(here.parts):
            if part != here.own:
                sender, local = self._sender(here, part)
                found[part] = self._local(node, part), self._rank(sender, local)
        return found

    def _sender(self, here: Round, part: int) -> tuple[int, int]:
        """Return the node of another subgroup that sends to this place, and which local rank."""
        first, stop = here.bounds[part]
        if here.position < stop - first:
            return first + here.position, here.own
        return first + here.own % (stop - first), part

    def sends(self, node: int, number: int) -> list[tuple[int, int]]:
        """Return what a node sends: (local rank, receiving rank) of each message."""
        there = self.round(node, number)
        first, stop = there.bounds[there.own]
        size, found = stop - first, []
        for part, (begin, end) in enumerate(there.bounds):
            if part == there.own:
                continue
            if there.position < end - begin:
                receiver = self._rank(begin + there.position, there.own)
                found.append((self._local(node, part), receiver))
            if end - begin > size and there.position == part % size:  # a place that is lacking here
                receiver = self._rank(begin + size, there.own)
                found.append((self._local(node, there.own), receiver))
        return found

    def _local(self, node: int, number: int) -> int:
        return number % len(self.nodes[node])

    def _rank(self, node: int, number: int) -> int:
        return self.nodes[node][self._local(node, number)]


def nap_of(view: Topology, choice: Choice) -> Nap:
    """Return the rounds of a choice."""
    return Nap(view.node_ranks, base_of(view, choice))


def base_of(view: Topology, choice: Choice) -> int:
    """Return how many subgroups a round brings together: the ranks of the smallest node, or 2."""
    return choice.levels[view.active[-1]].get("base", 0) or largest_base(view)


def largest_base(view: Topology) -> int:
    """Return the largest base with which every local rank receives one message in a round.

    It is 2 where trees inside nodes have different shapes: with three operands, they would add them
    in different orders, and nodes would get different bits.
    """
    if len(inner_levels(view)) > 1 and not view.nodes_alike:
        return 2
    return max(2, min(map(len, view.node_ranks)))
