"""Ranks of one flat group whose programs are alike: they do the same with other peers.

In a call that all ranks carry out in one group of messages, the place of a rank in the group says
which peers it has. What it does with each task follows from the size of the task. So a few tasks of
each size are lowered for each rank, and compared: ranks whose operations are alike there have one
role. Offsets in buffers are not compared: each member of an exchange combines a block of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from han.model.opcodes import PEERS, Code
from han.model.program import CHANNELS, Program
from han.tasks.compositions import composition
from han.tasks.graph import Task
from han.tasks.lower import batches, lower_batch
from han.tasks.plan import Plan
from han.tasks.stream import Builder

ALIKE = ("code", "stream", "slot", "task", "n")  # of operations in messages
TRIED = 3  # tasks of each size that are lowered: the second ones meet requests of the first ones
LEAST = 32  # ranks and tasks from which on it pays

_TALKS = (Code.IRECV, Code.ISEND, Code.TEST)


def naming(program: Program) -> npt.NDArray[np.int64]:
    """Return the operations that name a peer; the test of a receive has the peer of its message."""
    codes, slots = program.code["code"], program.code["slot"].tolist()
    found = np.isin(codes, PEERS)
    talks = np.flatnonzero(np.isin(codes, _TALKS)).tolist()
    kinds = codes.tolist()
    for stream in program.streams:
        receives: set[int] = set()
        for row in (r for r in talks if stream.start <= r < stream.stop):
            if kinds[row] == Code.IRECV:
                receives.add(slots[row])
            elif kinds[row] == Code.ISEND:
                receives.discard(slots[row])
            elif slots[row] in receives:
                found[row] = True
    return np.flatnonzero(found)


def compared(program: Program, ends: Hashable) -> tuple[Hashable, list[int]]:
    """Return what tells a program from others but for its peers, and the peers as it names them."""
    rows = naming(program)
    named = program.code["peer"][rows]
    _, first, numbers = np.unique(named, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    records = [program.code[name].tobytes() for name in ALIKE]
    streams = tuple([(s.name, s.start, s.stop) for s in program.streams])
    key = (*records, rows.tobytes(), order[numbers].tobytes(), streams, program.requests, ends)
    return key, named[np.sort(first)].tolist()


class FlatRoles:
    """The roles of ranks in a plan with one level of messages."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.whole = plan, plan.largest or plan  # the plan that is lowered
        self.batches = [_some(tasks) for tasks in batches(self.whole)]

    @classmethod
    def of(cls, plan: Plan) -> FlatRoles | None:
        """Return the roles of a plan, or None if each rank is to be lowered.

        In a shorter message of a class, tasks of one size in the longest one may differ in size.
        """
        active, tasks = plan.topology.active, max(map(len, batches(plan)), default=0)
        if len(active) != 1 or plan.geometries[active[0]] is not None:
            return None
        apart = plan.lockstep or plan.repeats or plan.signature.canonical or plan.shortened
        small = plan.topology.size < LEAST or tasks < LEAST
        return None if apart or small else cls(plan)

    def kind(self, rank: int) -> tuple[Hashable, list[int]] | None:
        """Return what tells the role of a rank from others, and the ranks that it may name."""
        builder = Builder(self.whole, rank)
        found = composition(self.whole.choice.composition).places(self.whole, builder)
        for tasks in self.batches:
            lower_batch(self.whole, builder, found, tasks)
        program = builder.program(self.whole.footprint())
        if self.plan.largest is not None:
            program = program.at(self.plan.signature.nbytes)
        if (program.code["base"] >= CHANNELS).any():
            return None
        ends = tuple(chain.from_iterable(s.done.values() for s in builder.made))
        key, peers = compared(program, ends)
        return (rank == self.plan.signature.root, key), peers


def _some(tasks: Sequence[Task]) -> list[Task]:
    """Return the first tasks of each size."""
    found: dict[int, list[Task]] = {}
    for task in tasks:
        found.setdefault(task.nbytes, []).append(task)
    return [task for some in found.values() for task in some[:TRIED]]
