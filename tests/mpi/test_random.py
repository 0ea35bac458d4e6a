"""Random calls on random topologies by random algorithms, compared with MPI's results."""

from __future__ import annotations

import dataclasses

import pytest
from _support import Call, Checker, Reference, all_pairs, comm_on, opened
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mpi4py import MPI
from strategies import level_choices, topologies

from han.model import loops

WORLD = MPI.COMM_WORLD
reference = Reference(WORLD.Dup())
alike = settings(  # all ranks draw the same; no shrinking, as ranks may fail in different examples
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def small_programs_with_loops(monkeypatch):
    monkeypatch.setattr(loops, "LEAST", 32)


@st.composite
def calls(draw, size):
    collective = draw(st.sampled_from(["bcast", "reduce", "allreduce", "barrier"]))
    dtype, op = draw(st.sampled_from(all_pairs()))
    count = draw(st.one_of(st.integers(0, 20), st.integers(0, 3000), st.integers(0, 50_000)))
    root = draw(st.integers(0, size - 1)) if collective in ("bcast", "reduce") else 0
    return Call(collective, count, dtype, op, root, draw(st.booleans()))


@st.composite
def uses(draw, topology):
    """Draw the decision of a rule; it need not be able to serve the calls."""
    levels = {}
    for level, name in enumerate(topology.names):
        if draw(st.booleans()):
            choice = draw(level_choices(topology.widest(level)))
            levels[name] = {
                "submodule": choice.submodule,
                "algorithm": choice.algorithm,
                **dict(choice.parameters),
            }
    segment = draw(st.sampled_from(["whole", 1000, 4096, 30_000, 100_000]))
    schedule = draw(st.sampled_from(["dataflow", "lockstep"]))
    return {"segment": segment, "schedule": schedule, "levels": levels}


# The three libraries together run every number of ranks from 1 to 9, so turns select nothing here.
ALL_VARIANTS = True
RANKS = {"MPICH": [1, 4, 7], "Open MPI": [2, 5, 8]}.get(MPI.get_vendor()[0], [3, 6, 9])


@pytest.mark.mpi(ranks=RANKS, timeout=240, unit="s")
@alike
@given(st.data())
def test_random_calls(mpi_ranks, data):
    topology = data.draw(topologies(st.just(WORLD.size)))
    use = data.draw(uses(topology))
    several = data.draw(st.lists(calls(WORLD.size), min_size=1, max_size=8))
    memory = data.draw(st.sampled_from(["64KiB", "1MiB", "16MiB"]))
    drawn = WORLD.allgather(repr((topology, use, several)))
    assert len(set(drawn)) == 1, "the ranks draw different cases"
    with opened(comm_on(WORLD, topology, use, memory=memory)) as comm:
        check = Checker(comm, reference)
        for call in several:
            if call.nbytes > 400_000:
                call = dataclasses.replace(call, count=call.count // 8)
            check(call, (topology, use))
        check.agree()
