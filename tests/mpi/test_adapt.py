"""The branches of ``adapt`` on 1 to 9 ranks: both orders, all roots, both schedules."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from _support import Call, Checker, Reference, comm_with, opened
from mpi4py import MPI

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
    comm = MPI.COMM_WORLD
    reference = Reference(comm.Dup())
    flat, twos = [0] * comm.size, [r // 2 for r in range(comm.size)]
    for algorithm, order in itertools.product(ALGORITHMS, ("fixed", "arrival")):
        for domains in ([flat], [twos, flat]):
            names = use_of(algorithm, order, schedule)
            with opened(comm_with(comm, domains, names)) as ours:
                check = Checker(ours, reference)
                for call in calls_of(comm.size):
                    check(call, (algorithm, order, schedule, len(domains)))
                check.agree()


def matrices(rank, count):
    """Return 2 x 2 matrices, whose product depends on the order."""
    values = np.arange(4 * count, dtype="i8").reshape(count, 2, 2)
    return (values * (rank + 3) + rank) % 7 - 3


def product(a, b, _):
    left, right = (np.frombuffer(x, "i8").reshape(-1, 2, 2) for x in (a, b))
    right[:] = left @ right


@pytest.mark.mpi(ranks=[2, 5, 8], timeout=120, unit="s")
def test_operands_that_do_not_commute_keep_their_order_for_every_root(mpi_ranks):
    comm = MPI.COMM_WORLD
    op, matrix = MPI.Op.Create(product), MPI.INT64_T.Create_contiguous(4).Commit()
    send = matrices(comm.rank, 100)
    expected = matrices(0, 100)
    for rank in range(1, comm.size):
        expected = expected @ matrices(rank, 100)
    for algorithm in ("linear", "in_order_binary", "by_rank"):
        use = use_of(algorithm, "fixed", "dataflow")
        with opened(comm_with(comm, [[0] * comm.size], use)) as ours:
            for root in range(comm.size):
                recv = np.zeros_like(send)
                ours.Reduce([send, 100, matrix], [recv, 100, matrix], op=op, root=root)
                if comm.rank == root:
                    np.testing.assert_array_equal(recv, expected, err_msg=f"{algorithm} {root}")
