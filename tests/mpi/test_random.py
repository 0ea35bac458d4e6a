"""Random calls on random topologies by random algorithms, compared with MPI's results."""

from random import Random

import pytest
from _support import WORLD, Call, Checker, Reference, all_pairs, comm_on, opened
from mpi4py import MPI
from random_plans import TARGETS, draw_level, draw_topology

from han.model import loops
from han.tasks.signature import Signature

EXAMPLES = 20


def draw_call(draw, size):
    collective = draw.choice(["bcast", "reduce", "allreduce", "barrier"])
    dtype, op = draw.choice(all_pairs())
    count = draw.randint(0, draw.choice([20, 3000, 50_000]))
    root = draw.randrange(size) if collective in ("bcast", "reduce") else 0
    return Call(collective, count, dtype, op, root, draw.random() < 0.5)


def draw_use(draw, topology):
    """Draw the decision of a rule; it need not be able to serve the calls."""
    levels = {}
    for level, name in enumerate(topology.names):
        if draw.random() < 0.5:
            part, members = draw.choice(TARGETS), topology.widest(level)
            call = Signature("barrier")
            choice = draw_level(draw, part.submodule, part.algorithm, call, members)
            own = {"submodule": choice.submodule, "algorithm": choice.algorithm}
            levels[name] = own | dict(choice.parameters)
    segment = draw.choice(["whole", 1000, 4096, 30_000, 100_000])
    return {
        "segment": segment, "schedule": draw.choice(["dataflow", "lockstep"]), "levels": levels,
    }  # fmt: skip


# The three libraries together run every number of ranks from 1 to 9, so turns select nothing here.
ALL_VARIANTS = True
RANKS = {"MPICH": [1, 4, 7], "Open MPI": [2, 5, 8]}.get(MPI.get_vendor()[0], [3, 6, 9])


@pytest.mark.mpi(ranks=RANKS, timeout=240, unit="s")
def test_random_calls(mpi_ranks, monkeypatch):
    monkeypatch.setattr(loops, "LEAST", 32)  # small programs with loops
    reference = Reference(WORLD.Dup())
    for number in range(EXAMPLES):
        draw = Random(f"{number} {WORLD.size}")  # the same on all ranks
        topology = draw_topology(draw, [(WORLD.size, WORLD.size)])
        use, memory = draw_use(draw, topology), draw.choice(["64KiB", "1MiB", "16MiB"])
        with opened(comm_on(WORLD, topology, use, memory=memory)) as comm:
            check = Checker(comm, reference)
            for _ in range(draw.randint(1, 8)):
                check(draw_call(draw, WORLD.size), (number, topology, use))
            check.agree()
