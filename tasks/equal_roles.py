"""Programs of ranks that have the same role: one of them is lowered, the others' follow from it.

In a tree, what a rank does follows from its groups: how many members they have, the rank's place
among them, their slots and sockets. Two ranks whose groups are alike in all of this have the same
program up to the numbers of their peers. So the ranks of a node that lead nothing have the programs
of those in the same places of another node. A rank that leads its node has a place of its own
between nodes. A submodule says by `by_place` that its programs follow from places.

In lanes, every rank takes part between nodes. There ranks have the same role if their operations
between nodes are alike (:mod:`han.tasks.equal_lanes`). In a ring, nodes have the same role if
pieces of the same sizes come to them (:mod:`han.tasks.equal_rings`), and in one flat group ranks
that do the same with other peers (:mod:`han.tasks.equal_messages`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt

from han.model.program import Program
from han.tasks.compositions import TREE
from han.tasks.equal_lanes import LaneRoles, groups_inside, place_of
from han.tasks.equal_messages import Kind, kinds_in_flat, naming
from han.tasks.equal_rings import RingRoles
from han.tasks.lower import lower
from han.tasks.plan import Plan

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Role:
    """A rank, and the program of the first rank with its role.

    Operations number `rows` of the first program name peers; `peers` are those of this rank, and
    None on the first rank itself. `alone`: no other rank has the role. Except in trees of several
    levels, operations may have other offsets in buffers and scratch memory than those of the first.
    """

    rank: int
    first: Program
    rows: Numbers | None = None
    peers: Numbers | None = None
    alone: bool = True

    @property
    def program(self) -> Program:
        """The rank's program."""
        if self.peers is None:
            return self.first
        code = self.first.code.copy()
        code["peer"][self.rows] = self.peers
        return replace(self.first, rank=self.rank, code=code)

    def peers_at(self, rows: Numbers) -> Numbers:
        """Return the peers that some operations of this rank name."""
        found: Numbers = self.first.code["peer"][rows].astype(np.int64)
        if self.rows is not None and self.peers is not None and len(self.rows):
            at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
            named = self.rows[at] == rows
            found[named] = self.peers[at[named]]
        return found


@dataclass(frozen=True)
class _Class:
    """The ranks of a role: the first program, and which of the ranks in a list it names."""

    program: Program
    rows: Numbers
    members: Numbers

    @classmethod
    def of(cls, program: Program, ranks: list[int]) -> _Class:
        place: dict[int, int] = {}
        for k, rank in enumerate(ranks):
            place.setdefault(rank, k)
        rows = naming(program)
        named = program.code["peer"][rows].tolist()
        return cls(program, rows, np.array([place[rank] for rank in named], np.int64))


def roles(plan: Plan) -> Iterator[Role]:
    """Yield the role of each rank, in order."""
    kinds, known = _kinds(plan), dict[Hashable, _Class]()
    for rank in range(plan.topology.size):
        kind = None if kinds is None else kinds(rank)
        if kind is None:
            yield Role(rank, lower(plan, rank))
            continue
        key, ranks = kind
        if key not in known:
            known[key] = one = _Class.of(lower(plan, rank), ranks)
            yield Role(rank, one.program, alone=False)
            continue
        one = known[key]
        peers = np.array(ranks, np.int64)[one.members]
        yield Role(rank, one.program, one.rows, peers, alone=False)


def _kinds(plan: Plan) -> Callable[[int], Kind | None] | None:
    """Return what tells the kind of a rank, or None if no rank may share its program."""
    active, name = plan.topology.active, plan.choice.composition
    own = plan.signature.by_blocks or plan.signature.prefix
    if own or not all(plan.parts[level].by_place for level in active):
        return None
    flat = kinds_in_flat(plan)
    if flat is not None or len(active) < 2:
        return flat
    if name in (TREE, "flat"):
        return partial(_kind, plan)
    found = _OF[name](plan) if name in _OF else None
    return None if found is None else found.kind


_OF: dict[str, Callable[[Plan], LaneRoles | RingRoles | None]] = {
    "lanes": LaneRoles.of,
    "ring": RingRoles.of,
}


def _kind(plan: Plan, rank: int) -> Kind | None:
    """Return the kind of a rank in a tree; None if it leads up to the outermost of its groups."""
    view, root = plan.topology, plan.signature.root
    if view.leader(view.active[-1] - 1, rank, root) == rank:
        return None
    groups = groups_inside(view, rank, root)
    key = rank == root, tuple([place_of(g, view.sockets) for g in groups])
    return key, list(chain.from_iterable(group.ranks for group in groups))
