"""The branches of ``adapt`` on 1 to 9 ranks: both orders, all roots, both schedules."""

import itertools

import pytest
from _support import WORLD, Call, Checker, Reference, comm_with, opened

ALGORITHMS = ("linear", "binary", "in_order_binary", "binomial", "by_rank", "knomial")
COUNTS = (1, 3001)


def calls_of(size):
    roots = itertools.cycle(range(size))
    for count, collective in itertools.product(COUNTS, ("bcast", "reduce", "allreduce")):
        for in_place in (False, True):
            yield Call(collective, count, root=next(roots), in_place=in_place)


def use_of(algorithm, order, schedule):
    level = {"submodule": "adapt", "algorithm": algorithm, "segment": 1000, "window": 2}
    level["order"] = order
    return {"segment": 9000, "schedule": schedule, "levels": {"network": level}}


@pytest.mark.mpi(ranks=[1, 4, 9], timeout=240, unit="s")
@pytest.mark.parametrize("schedule", ["dataflow", "lockstep"])
def test_every_tree_in_both_orders(mpi_ranks, schedule):
    reference = Reference(WORLD.Dup())
    flat, twos = [0] * WORLD.size, [r // 2 for r in range(WORLD.size)]
    for algorithm, order in itertools.product(ALGORITHMS, ("fixed", "arrival")):
        for domains in ([flat], [twos, flat]):
            names = use_of(algorithm, order, schedule)
            with opened(comm_with(WORLD, domains, names)) as ours:
                about = algorithm, order, schedule, len(domains)
                Checker(ours, reference).every(calls_of(WORLD.size), about)
