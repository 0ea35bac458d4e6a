"""Ranks of lanes whose programs are alike: in like places of their nodes, and alike between them.

Inside its node, what a rank does follows from its place, as in a tree. Between nodes it follows
from its place in the groups of its lanes and from the sizes of its shares. Many places do the same
there, with other peers: in a recursive halving of equal blocks, all do. So the operations between
nodes are lowered apart for each such place, and compared. Offsets in buffers are not: each member
of an exchange combines a block of its own.

A rank between nodes waits for its node, and its node for it, at ends of tasks and of their parts;
ranks have the same role only if these ends are at the same operations.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain
from typing import NamedTuple

from han.model.topology import Group, Topology, number_domains
from han.tasks.equal_messages import Kind, lowered
from han.tasks.lanes import Path, outer_levels
from han.tasks.lower import batches
from han.tasks.places import LanePlaces
from han.tasks.plan import Plan
from han.tasks.stream import Builder


def place_of(group: Group, sockets: tuple[int, ...]) -> Hashable:
    """Return all that a program may depend on of a rank's place in a group that shares memory."""
    first = sockets[group.ranks[0]]
    relative = tuple([sockets[r] - first for r in group.ranks])
    return group.level, group.me, group.root, group.slots, relative


def groups_inside(view: Topology, rank: int, root: int) -> list[Group]:
    """Return a rank's groups below the outermost active level, innermost first."""
    groups = (view.group(level, rank, root) for level in view.active[:-1])
    return [group for group in groups if group is not None]


class _Between(NamedTuple):
    """What a rank does between nodes: what tells it from others, and its members in their order.

    Members are numbers in the list of the ranks of all its groups between nodes.
    """

    key: Hashable
    members: tuple[int, ...]


class LaneRoles:
    """The roles of ranks in a plan of lanes."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.outer = plan, outer_levels(plan.topology)
        self.whole = plan.largest or plan  # the plan that is lowered
        self._sizes: dict[Path, Hashable] = {}
        self._between: dict[Hashable, _Between | None] = {}

    @classmethod
    def of(cls, plan: Plan) -> LaneRoles | None:
        """Return the roles of a plan, or None if each rank is to be lowered."""
        apart = plan.lockstep or plan.repeats or plan.signature.canonical
        return None if apart else cls(plan)

    def kind(self, rank: int) -> Kind | None:
        """Return what tells the role of a rank from others, and the ranks that it may name.

        None: no other rank has the role.
        """
        places = LanePlaces(self.whole, Builder(self.whole, rank))
        groups = [group for group in places.between.values() if group is not None]
        outside = list(chain.from_iterable(group.ranks for group in groups))
        between = self._known(places, outside)
        if between is None:
            return None
        inside = [group for group in places.inside.values() if group is not None]
        ranks = list(chain.from_iterable(group.ranks for group in inside))
        ranks += [outside[member] for member in between.members]
        same = tuple(number_domains(ranks))  # which of them are one rank
        return (rank == self.plan.signature.root, self._inner(places), between.key, same), ranks

    def _inner(self, places: LanePlaces) -> Hashable:
        """Return the place of a rank inside its node, and its paths."""
        view, found = self.plan.topology, []
        for level, group in places.inside.items():
            owners = places.lanes.owners(level, view.domains[level][places.rank])
            place = None if group is None else place_of(group, view.sockets)
            found.append((place, owners, places.with_root(level)))
        prefix = places.lanes.prefix(places.rank, len(places.inside) - 1)
        return tuple(places.paths), prefix, tuple(found)

    def _known(self, places: LanePlaces, outside: list[int]) -> _Between | None:
        """Return what a rank does between nodes; None if it is not to be compared.

        `outside` are the ranks of its groups there: some may be in several of them.
        """
        groups = tuple([
            (level, self._size_of(places, path))
            + (() if group is None else (group.size, group.me, group.root, group.leads))
            for (level, path), group in places.between.items()
        ])  # fmt: skip
        same = tuple(number_domains(outside)) if len(groups) > 1 else ()
        operands = tuple([places.where[level].base for level in self.outer])
        key = groups, same, operands, places.work.base
        if key not in self._between:
            self._between[key] = self._lowered(places.rank, outside)
        return self._between[key]

    def _size_of(self, places: LanePlaces, path: Path) -> Hashable:
        """Return the sizes of the parts of tasks on a path; in a smaller message, where they are.

        They follow from their places there (:meth:`Plan.of_size`).
        """
        if self.plan.largest is not None:
            return path
        if path not in self._sizes:
            streams = self.whole.streams.items()
            tasks = [tasks for (_, level), tasks in streams if level in self.outer]
            parts = [places.parts(some, path) for some in tasks]
            self._sizes[path] = tuple([tuple([part.nbytes for part in some]) for some in parts])
        return self._sizes[path]

    def _lowered(self, rank: int, outside: list[int]) -> _Between | None:
        """Lower what a rank does between nodes, and nothing else."""
        some = (tasks for tasks in batches(self.whole) if tasks[0].level in self.outer)
        found = lowered(self.plan, rank, some)
        if found is None:
            return None
        key, peers = found
        return _Between(key, tuple([outside.index(peer) for peer in peers]))
