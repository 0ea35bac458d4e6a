"""Programs of algorithms that are given as steps of messages, for the simulator."""

from dataclasses import dataclass, replace

import numpy as np
from machines import topology_of

from han.model.program import INSTRUCTION, Area, Base, Code, StreamInfo
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tuning.costs.stages import stage_seconds

FLAGS = Base.CHANNEL + Area.FLAGS


@dataclass(frozen=True)
class Row:
    """An operation; a flag is one of the first channel."""

    code: Code
    peer: int = 0
    n: int = 0
    slot: int = 0
    flag: int = 0


def plan_for(nodes, ppn):
    """Return a plan that only gives a topology: `ppn` consecutive ranks on each node."""
    node = [rank // ppn for rank in range(nodes * ppn)]
    topology = topology_of([node, [0] * len(node)], 0)
    choice = Choice((level_choice("sm", "flat"), level_choice("adapt", "linear")))
    return plan_of_choice(topology, Signature("bcast", 8), choice, 1 << 16)


def program_of(plan, rank, *streams):
    """Return a program with other streams, lists of rows."""
    code, infos = [], []
    for number, rows in enumerate(streams):
        start = len(code)
        code += [
            (r.code, number, r.peer, (FLAGS, 1, 1, 1), (64 * r.flag, 0, 0, 0), r.n, r.slot, 0)
            for r in rows
        ]
        infos.append(StreamInfo(f"stream {number}", "bcast", 1, start, len(code)))
    made = np.array(code, INSTRUCTION)
    return replace(lower(plan, rank), code=made, streams=tuple(infos), tasks=("t",), requests=999)


def stage_times(plan, spans):
    """Return the seconds of each stage of a simulated plan, by rank."""
    stage_of = {str(task): k for task, k in plan.stages.items()}
    ranks = [
        stage_seconds([t for t in spans if t.rank == rank], stage_of, 0.0)
        for rank in range(plan.topology.size)
    ]
    return list(zip(*ranks, strict=True))


def seconds_of(machine, nodes, ppn, rows):
    """Simulate programs; ``rows[rank]`` are the streams of a rank, or the rows of one stream."""
    plan = plan_for(nodes, ppn)
    streams = [one if one and isinstance(one[0], list) else [one] for one in rows]
    programs = [program_of(plan, rank, *one) for rank, one in enumerate(streams)]
    return simulate(plan, machine, machine.place(nodes, ppn), programs=programs).seconds


def run_steps(machine, nodes, ppn, steps, reduces=0, before=0, after=0):
    """Simulate steps, lists of (source, target, bytes): each rank ends a step before the next one.

    The first `reduces` steps reduce what arrives. `before` and `after` are bytes to copy.
    """
    rows = [[Row(Code.COPY, n=before)] if before else [] for _ in range(nodes * ppn)]
    for number, step in enumerate(steps):
        slots = [0] * len(rows)
        tests, reductions = [[] for _ in rows], [[] for _ in rows]
        for kind, (one, other) in ((Code.ISEND, (0, 1)), (Code.IRECV, (1, 0))):
            for message in step:
                rank, peer, n = message[one], message[other], message[2]
                rows[rank].append(Row(kind, peer, n, slots[rank]))
                tests[rank].append(Row(Code.TEST, slot=slots[rank]))
                slots[rank] += 1
                if kind == Code.IRECV and number < reduces:
                    reductions[rank].append(Row(Code.REDUCE, n=n))
        for rank in range(len(rows)):
            rows[rank] += tests[rank] + reductions[rank]
    if after:
        for row in rows:
            row.append(Row(Code.COPY, n=after))
    return seconds_of(machine, nodes, ppn, rows)
