"""Programs of ranks that have the same role: one of them is lowered, the others' follow from it.

In a tree, what a rank does follows from its groups: how many members they have, the rank's place
among them, their slots and sockets. Two ranks whose groups are alike in all of this have the same
program up to the numbers of their peers. So the ranks of a node that lead nothing have the programs
of those in the same places of another node. A rank that leads its node has a place of its own
between nodes. A submodule says by `by_place` that its programs follow from places.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from han.model.opcodes import PEERS, Code
from han.model.program import Program
from han.model.topology import Group
from han.tasks.compositions import TREE
from han.tasks.lower import lower
from han.tasks.plan import Plan

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Role:
    """A rank, and the program of the first rank with its role.

    Operations number `rows` of the first program name peers; `peers` are those of this rank, and
    None on the first rank itself. `alone`: no other rank has the role.
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
        return replace(self.first, rank=self.rank, code=self.moved(self.first.code))

    def moved(self, code: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Return the operations of the first rank with the peers of this one."""
        if self.peers is None:
            return code
        found: npt.NDArray[np.void] = code.copy()
        found["peer"][self.rows] = self.peers
        return found


@dataclass(frozen=True)
class _Class:
    """The ranks of a role: the first program, and which members of its groups it names."""

    program: Program
    rows: Numbers
    members: Numbers

    @classmethod
    def of(cls, program: Program, groups: list[Group]) -> _Class:
        place: dict[int, int] = {}
        for k, rank in enumerate(_ranks(groups)):
            place.setdefault(rank, k)
        rows = _naming(program)
        named = program.code["peer"][rows].tolist()
        return cls(program, rows, np.array([place[rank] for rank in named], np.int64))


def _ranks(groups: list[Group]) -> list[int]:
    return list(chain.from_iterable(group.ranks for group in groups))


def _naming(program: Program) -> Numbers:
    """Return the operations that name a peer; the test of a receive has the peer of its message."""
    codes, slots = program.code["code"], program.code["slot"].tolist()
    found = np.isin(codes, PEERS)
    talks = np.flatnonzero(np.isin(codes, (Code.IRECV, Code.ISEND, Code.TEST))).tolist()
    for stream in program.streams:
        receives: set[int] = set()
        for row in (r for r in talks if stream.start <= r < stream.stop):
            if codes[row] == Code.IRECV:
                receives.add(slots[row])
            elif codes[row] == Code.ISEND:
                receives.discard(slots[row])
            elif slots[row] in receives:
                found[row] = True
    return np.flatnonzero(found)


def roles(plan: Plan) -> Iterator[Role]:
    """Yield the role of each rank, in order."""
    shares, known = _shares(plan), dict[Hashable, _Class]()
    for rank in range(plan.topology.size):
        groups = _groups(plan, rank) if shares else None
        if groups is None:
            yield Role(rank, lower(plan, rank))
            continue
        key = _key(plan, rank, groups)
        if key not in known:
            known[key] = one = _Class.of(lower(plan, rank), groups)
            yield Role(rank, one.program, alone=False)
            continue
        one = known[key]
        peers = np.array(_ranks(groups), np.int64)[one.members]
        yield Role(rank, one.program, one.rows, peers, alone=False)


def _shares(plan: Plan) -> bool:
    """Return whether programs follow from places, and some ranks lead nothing."""
    if plan.signature.by_blocks or plan.choice.composition not in (TREE, "flat"):
        return False
    active = plan.topology.active
    return len(active) > 1 and all(plan.parts[level].by_place for level in active)


def _groups(plan: Plan, rank: int) -> list[Group] | None:
    """Return a rank's groups, innermost first; None if it leads up to the outermost of them."""
    topology, root = plan.topology, plan.signature.root
    found: list[Group] = []
    for level in topology.active:
        if level and topology.leader(level - 1, rank, root) != rank:
            return found
        if level == topology.active[-1]:
            return None
        group = topology.group(level, rank, root)
        if group is not None:
            found.append(group)
    return found


def _key(plan: Plan, rank: int, groups: list[Group]) -> Hashable:
    """Return all on which the program of a rank depends, besides the plan."""
    sockets = plan.topology.sockets
    return rank == plan.signature.root, tuple(
        (g.level, g.me, g.root, g.slots, tuple(sockets[r] - sockets[g.ranks[0]] for r in g.ranks))
        for g in groups
    )
