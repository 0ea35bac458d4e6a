"""Ranks of one flat group whose programs are alike: they do the same with other peers.

In a call that all ranks carry out in one group of messages, the place of a rank in the group says
which peers it has. What it does with each task follows from the size of the task. So a few tasks of
each size are lowered for each rank, and compared: ranks whose operations are alike there have one
role. Offsets in buffers are not compared: each member of an exchange combines a block of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt

from han.common.grouped import grouped
from han.model.opcodes import PEERS, Code
from han.model.program import CHANNELS, Program
from han.tasks.compositions import composition
from han.tasks.graph import Task
from han.tasks.lower import batches, lower_batch
from han.tasks.plan import Plan
from han.tasks.stream import Builder

Kind = tuple[Hashable, list[int]]  # what tells a role from others, and the ranks that it may name
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


def compared(program: Program, ends: Hashable) -> Kind:
    """Return what tells a program from others but for its peers, and the peers as it names them."""
    rows = naming(program)
    named = program.code["peer"][rows]
    _, first, numbers = np.unique(named, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    records = [program.code[name].tobytes() for name in ALIKE]
    streams = tuple([(s.name, s.start, s.stop) for s in program.streams])
    key = (*records, rows.tobytes(), order[numbers].tobytes(), streams, program.requests, ends)
    return key, named[np.sort(first)].tolist()


def lowered(plan: Plan, rank: int, some: Iterable[list[Task]]) -> Kind | None:
    """Lower some of a rank's tasks; return what tells them from those of others, and the peers.

    None: they are not only messages.
    """
    whole = plan.largest or plan  # the plan that is lowered
    builder = Builder(whole, rank)
    places = composition(whole.choice.composition).places(whole, builder)
    for tasks in some:
        lower_batch(whole, builder, places, tasks)
    ends = [(*s.done.values(), *chain(*map(dict.values, s.parts.values()))) for s in builder.made]
    program = builder.program(whole.footprint())
    if plan.largest is not None:
        program = program.at(plan.signature.nbytes)
    own = (program.code["base"] < CHANNELS).all()
    return compared(program, tuple(ends)) if own else None


def kinds_in_flat(plan: Plan) -> Callable[[int], Kind | None] | None:
    """Return what tells the kind of a rank in one level of messages; None: each is to be lowered.

    In a shorter message of a class, tasks of one size in the longest one may differ in size.
    """
    active, some = plan.topology.active, batches(plan.largest or plan)
    if len(active) != 1 or plan.geometries[active[0]] is not None:
        return None
    apart = plan.lockstep or plan.repeats or plan.signature.canonical or plan.shortened
    small = plan.topology.size < LEAST or max(map(len, some), default=0) < LEAST
    return None if apart or small else partial(_kind, plan, [_some(tasks) for tasks in some])


def _kind(plan: Plan, some: list[list[Task]], rank: int) -> Kind | None:
    found = lowered(plan, rank, some)
    return None if found is None else ((rank == plan.signature.root, found[0]), found[1])


def _some(tasks: Sequence[Task]) -> list[Task]:
    """Return the first tasks of each size."""
    sizes = grouped((task.nbytes, task) for task in tasks)
    return [task for some in sizes.values() for task in some[:TRIED]]
