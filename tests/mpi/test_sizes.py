"""Sizes that change from call to call: few plans serve all of them, with right results."""

from __future__ import annotations

import numpy as np
import pytest
from _support import FLAT, comm_with, error_of, interleaved, new_comm, opened
from mpi4py import MPI

import han
from han.tasks.signature import Signature

WORLD = MPI.COMM_WORLD
MOST = 40_000  # elements of 8 bytes
PLANS = 70  # at most, for each collective


def counts(number: int, most: int = MOST) -> list[int]:
    """Draw counts, the same on all ranks: few elements, many, and those around the bounds."""
    draw = np.random.default_rng(number)
    near = [(1 << k) // 8 * m // 2 + d for k in range(4, 18) for m in (2, 3) for d in (-1, 0, 1)]
    found = [*range(40), *draw.integers(1, most, 60).tolist(), *near]
    return [int(n) for n in draw.permutation(found) if 0 <= n <= most]


def mine(count: int, rank: int) -> np.ndarray:
    return np.arange(count, dtype="i8") + 1000 * rank


def signature(count: int) -> Signature:
    return Signature("allreduce", count, 8, "sum", "int64")


def check_allreduce(comm, count):
    got = np.zeros(count, "i8")
    comm.Allreduce(mine(count, comm.rank), got)
    assert (got == sum(mine(count, r) for r in range(comm.size))).all()


def check_bcast(comm, count):
    root = count % comm.size
    data = mine(count, comm.rank)
    comm.Bcast(data, root)
    assert (data == mine(count, root)).all()


def check_reduce(comm, count):
    root, got = count % comm.size, np.zeros(count, "i8")
    comm.Reduce(mine(count, comm.rank), got if comm.rank == root else None, MPI.MAX, root)
    assert comm.rank != root or (got == mine(count, comm.size - 1)).all()


def check_blocks(comm, count):
    count //= comm.size
    everything = np.array([mine(count, r) for r in range(comm.size)])
    got = np.zeros_like(everything)
    comm.Allgather(mine(count, comm.rank), got)
    assert (got == everything).all()
    comm.Alltoall(everything + 7 * comm.rank, got)
    shift = 7 * np.arange(comm.size)[:, None]
    assert (got == mine(count, comm.rank) + shift).all()
    one = np.zeros(count, "i8")
    comm.Reduce_scatter_block(everything, one)
    assert (one == comm.size * mine(count, comm.rank)).all()
    root = count % comm.size
    comm.Scatter(everything if comm.rank == root else None, one, root)
    assert (one == mine(count, comm.rank)).all()
    got[:] = 0
    comm.Gather(one, got if comm.rank == root else None, root)
    assert comm.rank != root or (got == everything).all()


CHECKS = (check_allreduce, check_bcast, check_reduce, check_blocks)


@pytest.mark.mpi(ranks=[1, 2, 4, 5], timeout=120, unit="s")
@pytest.mark.parametrize("levels", ["one node", "nodes"])
def test_few_plans_serve_all_sizes(mpi_ranks, levels):
    domains = [[0] * WORLD.size] if levels == "one node" else interleaved(WORLD.size)
    with opened(_made(levels, domains)) as comm:
        for number, check in enumerate(CHECKS):
            for count in counts(number, MOST if levels == "one node" else MOST // 4):
                check(comm, count)
        kept = comm.cache_info()
    plans = PLANS * (len(CHECKS) + 4) + WORLD.size * 2 * PLANS  # plans differ by root
    assert kept.misses < plans
    assert kept.hits > kept.misses


def _made(levels, domains):

    return new_comm(FLAT) if levels == "one node" else comm_with(WORLD, domains)


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_calls_of_one_class_are_outstanding_at_a_time(mpi_ranks):
    with opened(new_comm(FLAT)) as comm:
        for base in (2, 300, 3000, 20_000):
            sizes = [base + k * base // 12 for k in range(4)] * 2
            sent = [mine(n, comm.rank) for n in sizes]
            got = [np.zeros(n, "i8") for n in sizes]
            requests = [comm.Iallreduce(s, g) for s, g in zip(sent, got, strict=True)]
            requests += [comm.Ibcast(s, 1) for s in sent[:2]]
            han.Request.Waitall(requests)
            for n, g in zip(sizes, got, strict=True):
                assert (g == sum(mine(n, r) for r in range(comm.size))).all()
            assert (sent[0] == mine(sizes[0], 1)).all()


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_another_size_of_the_same_class_is_a_mismatch(mpi_ranks):
    """The sizes are in one class, so that the ranks run the same plan."""
    for count in (1000, 30_000):
        with opened(new_comm(FLAT)) as comm:
            for _ in range(50):
                check_allreduce(comm, count)
            wrong = count - (comm.rank == 1)
            name, text, _ = error_of(lambda n=wrong: check_allreduce(comm, n))
            assert name in ("MismatchError", "PeerError"), text
            assert all(signature(n).describe() in text for n in (count, count - 1)), text


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_persistent_requests_take_over_slots(mpi_ranks):
    with opened(new_comm(FLAT)) as comm:
        engines = set()
        for count in (4, 5, 300, 6, 5000, 7, 4000):
            sent, got = mine(count, comm.rank), np.zeros(count, "i8")
            request = comm.Allreduce_init(sent, got)
            engines.add(id(request._engine))
            for _ in range(3):
                got[:] = 0
                request.Start()
                request.Wait()
                assert (got == sum(mine(count, r) for r in range(comm.size))).all()
            request.Free()
        # A rank may have to leave a slot yet when the first one makes the next request.
        assert len(engines) <= 4
        alive = [comm.Bcast_init(mine(9, comm.rank), 0) for _ in range(5)]
        assert len({id(one._engine) for one in alive}) == 5
        for one in alive[:: 1 if comm.rank else -1]:
            one.Start()
        for one in alive:
            one.Wait()
            one.Free()
