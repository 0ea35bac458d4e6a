"""Lanes: which rank of a node carries which share of a message between nodes.

Inside a node, a reduce-scatter on each level cuts a share into smaller ones. A lane is therefore
a path: the number of the share on each level inside nodes, innermost first. On a level, the share
with number i belongs to unit i modulo the number of units, so that a smaller node folds: its ranks
carry several lanes. Units are ranks on the innermost level, and domains of the level below on
others. Ranks are taken rail by rail in turn, so that lane i uses rail i modulo the number of rails.

Source: Jocksch et al., section 2 (nested reduce-scatter and allgather); Träff (lanes).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from math import prod

from han.config.rails import local_ranks
from han.model.topology import Group, Topology
from han.tasks.choice import Choice, LevelChoice

Path = tuple[int, ...]


def inner_levels(view: Topology) -> tuple[int, ...]:
    """Return the levels inside nodes on which ranks communicate, innermost first."""
    node = view.node_level
    return () if node is None else tuple(k for k in view.active if k <= node)


def outer_levels(view: Topology) -> tuple[int, ...]:
    """Return the levels between nodes on which ranks communicate, innermost first."""
    return view.active[len(inner_levels(view)) :]


def sizes_at(view: Topology, level: int) -> tuple[int, int]:
    """Return the least and the largest number of units of a domain of a level: 1 if inactive."""
    return view.unit_numbers.get(level, (1, 1))


def lanes_at(view: Topology, level: int, choice: LevelChoice) -> int:
    """Return into how many shares a level inside nodes cuts: by default its smallest domain's."""
    return choice.get("lanes", 0) or sizes_at(view, level)[0]


def lanes_of(view: Topology, choice: Choice) -> int:
    """Return the number of lanes."""
    return prod(lanes_at(view, level, choice.levels[level]) for level in inner_levels(view))


def folds(view: Topology, choice: Choice) -> bool:
    """Return whether ranks of a small node carry several lanes."""
    inner = inner_levels(view)
    return any(lanes_at(view, k, choice.levels[k]) > sizes_at(view, k)[0] for k in inner)


@dataclass(frozen=True)
class Lanes:
    """The lanes of a view of the topology and a choice."""

    view: Topology
    choice: Choice
    _found: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    _members: dict[tuple[tuple[int, ...], Path], tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def inner(self) -> tuple[int, ...]:
        """The levels inside nodes, innermost first."""
        return inner_levels(self.view)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of shares on each level inside nodes."""
        return tuple(lanes_at(self.view, k, self.choice.levels[k]) for k in self.inner)

    def owners(self, level: int, domain: int) -> tuple[int, ...]:
        """Return the unit of a domain that each share of a level belongs to, by its position."""
        found = self._found.get((level, domain))
        if found is None:
            found = self._found[level, domain] = self._owners(level, domain)
        return found

    def _owners(self, level: int, domain: int) -> tuple[int, ...]:
        units, lanes = self.view.units[level][domain], self.counts[self.inner.index(level)]
        if self.view.rail_count < 2 or level != self.inner[0]:
            return _evenly(lanes, len(units))
        turn = in_turn([self.view.rails[rank] for rank in units])
        return tuple(turn[k % len(units)] for k in range(lanes))

    def carried(self, rank: int) -> list[Path]:
        """Return the lanes of a rank; those of the levels below its last one if it has none.

        A rank without a share on a level has no lane.
        """
        paths: list[Path] = [()]
        for k in range(len(self.inner)):
            paths = [(*path, share) for path in paths for share in self.shares(rank, k)]
        return paths

    def shares(self, rank: int, number: int) -> list[int]:
        """Return the shares of a rank's unit on the inner level with this number."""
        level = self.inner[number]
        domain, me = self.view.domains[level][rank], self.unit(rank, number)
        return [share for share, owner in enumerate(self.owners(level, domain)) if owner == me]

    def unit(self, rank: int, number: int) -> int:
        """Return the position of a rank's unit in its domain on an inner level."""
        level = self.inner[number]
        below = self.view.domains[self.inner[number - 1]][rank] if number else rank
        return self.view.units[level][self.view.domains[level][rank]].index(below)

    def rank_of(self, domain: int, path: Path) -> int:
        """Return the rank that carries a path in a domain of the level of its last share."""
        for k in range(len(path) - 1, -1, -1):
            level = self.inner[k]
            domain = self.view.units[level][domain][self.owners(level, domain)[path[k]]]
        return domain  # the last unit is a rank

    def inside(self, rank: int, number: int) -> Group | None:
        """Return a rank's group on an inner level: ranks whose shares so far are the same.

        None: the rank has no share on the levels below.
        """
        level = self.inner[number]
        prefix = self.prefix(rank, number)
        if prefix is None:
            return None
        units = self.view.units[level][self.view.domains[level][rank]]
        ranks = tuple(self.rank_of(unit, prefix) for unit in units)
        return Group(level, ranks, self.view.slots(level, ranks), 0, self.unit(rank, number))

    def prefix(self, rank: int, number: int) -> Path | None:
        """Return the shares of a rank on the levels below an inner level; None without one."""
        path: Path = ()
        for k in range(number):
            shares = self.shares(rank, k)
            if not shares:
                return None
            path += (shares[0],)
        return path

    def between(self, level: int, rank: int, root: int, path: Path) -> Group | None:
        """Return a lane's group on a level between nodes; None: its node has no part there.

        Where nodes have leaders, their ranks of the lane are members.
        """
        node = self.inner[-1]
        leader = self.view.leader(node, rank, root)
        led = self.view.group(level, leader, root)
        if led is None or led.size < 2:
            return None
        ranks = self._members.get((led.ranks, path))
        if ranks is None:
            domains = self.view.domains[node]
            ranks = tuple(self.rank_of(domains[r], path) for r in led.ranks)
            self._members[led.ranks, path] = ranks
        return Group(level, ranks, self.view.slots(level, ranks), led.root, led.me)


@lru_cache(64)
def _evenly(lanes: int, units: int) -> tuple[int, ...]:
    return tuple(k % units for k in range(lanes))


def in_turn(rails: list[int]) -> list[int]:
    """Return positions in an order in which the rails come one after the other."""
    keys = zip(local_ranks(rails), rails, count(), strict=False)
    return [position for _, _, position in sorted(keys)]
