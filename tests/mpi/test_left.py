"""Calls by blocks between nodes are MPI's own, made as a program without han makes them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from _support import APART, FORMS, TWO_BY_TWO, WAIT, finish, method_of, new_comm, opened
from mpi4py import MPI

import han

WORLD = MPI.COMM_WORLD
on_ranks = pytest.mark.mpi(ranks=[2, 3, 4], timeout=90, unit="s")
N = 5  # elements of a block


def calls(comm):
    """Return calls by name: the arguments, which of them is the result, and the expected one."""
    size, rank = comm.Get_size(), comm.Get_rank()
    one, every = np.full(N, float(rank)), np.arange(float(size * N))
    mine = every[rank * N : (rank + 1) * N]
    gathered = np.repeat(np.arange(float(size)), N)
    return {
        "Gather": ((one, np.zeros(size * N)), 1, gathered if rank == 0 else np.zeros(size * N)),
        "Scatter": ((every, np.zeros(N)), 1, mine),
        "Allgather": ((one, np.zeros(size * N)), 1, gathered),
        "Alltoall": ((every, np.zeros(size * N)), 1, np.tile(mine, size)),
        "Reduce_scatter_block": (
            (every, np.zeros(N)), 1, size * mine,
        ),
        "Reduce_scatter": (
            (every, np.zeros(N), [N] * size), 1, size * mine,
        ),
        "Allgatherv": (
            (one, [np.zeros(size * N), [N] * size]), (1, 0), gathered,
        ),
    }  # fmt: skip


def made(comm, name, form):
    """Make a call in one form; return its result, the expected one, and its request."""
    arguments, place, expected = calls(comm)[name]
    request = method_of(comm, form, name)(*arguments)
    finish(request)
    result = arguments[1][0] if isinstance(place, tuple) else arguments[place]
    return result, expected, request


@on_ranks
def test_they_give_the_results_of_mpi_and_its_own_requests(mpi_ranks):
    with opened(new_comm(APART)) as comm:
        assert comm._han.calls.leaves
        for name in calls(comm):
            for form in FORMS:
                result, expected, request = made(comm, name, form)
                assert result.tolist() == expected.tolist(), (name, form)
                assert not isinstance(request, han.Request)
        wrapped = np.zeros(comm.size)
        comm.Allgather([np.full(1, float(comm.rank))], [wrapped])  # han's own spelling
        assert wrapped.tolist() == [*map(float, range(comm.size))]
        with pytest.raises((TypeError, ValueError, BufferError)):
            comm.Allgather(object(), wrapped)


@on_ranks
def test_what_is_left_depends_on_the_levels_and_on_the_helper_of_all_ranks(mpi_ranks):
    for levels, more, leaves in (
        ([TWO_BY_TWO[-1]], {}, False),
        (APART, {}, True),
        (APART, {"check": True}, False),
        (APART, {"wait": {**WAIT, "progress": "off" if WORLD.rank == 1 else "auto"}}, False),
    ):
        with opened(new_comm(levels, **more)) as comm:
            assert comm._han.calls.leaves == leaves
            for name in calls(comm):
                result, expected, _ = made(comm, name, "{}")
                assert result.tolist() == expected.tolist(), name


@on_ranks
def test_runs_under_way_progress_while_a_rank_is_in_the_mpi_library(mpi_ranks):
    """Rank 0 waits for the others in a gather; they wait for its part of an allreduce first."""
    with opened(new_comm(APART)) as comm, opened(new_comm(APART)) as other:
        for n in (1, 1000, 100_000):
            for where in (comm, other):
                total, got = np.empty(n), np.empty(comm.size)
                request = where.Iallreduce(np.ones(n), total)
                if comm.rank:
                    request.Wait()
                    time.sleep(0.001)
                comm.Gather(np.ones(1), got)
                request.Wait()
                assert (total == comm.size).all()
                assert comm.rank or (got == 1).all()


@on_ranks
def test_a_communicator_without_helper_leaves_that_of_others_at_work(mpi_ranks):
    """The helper is one for the process; a communicator that needs it may be made first or last."""
    silent = {"wait": {**WAIT, "progress": "off"}}
    n = 1_000_000  # elements: peers need this rank's part more than once
    for first, last, before in (({}, silent, False), (silent, {}, True)):
        with opened(new_comm(APART, **first)) as a:
            total, got = np.empty(n), np.empty(a.size)
            request = a.Iallreduce(np.ones(n), total) if before else None
            with opened(new_comm(APART, **last)) as b:
                leaving = a if a._han.calls.leaves else b
                request = request or a.Iallreduce(np.ones(n), total)
                if a.rank:
                    request.Wait()
                leaving.Gather(np.ones(1), got)
                request.Wait()
            assert (total == a.size).all()


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_after_an_error_they_raise_as_all_calls_do(mpi_ranks):
    comm = new_comm(APART)
    comm.Allgather(np.ones(1), np.zeros(2))
    comm._han.health.give_up(RuntimeError("enough"))
    for name in ("Allgather", "Iallgather", "Allgather_init"):
        with pytest.raises(han.RevokedError, match="enough"):
            getattr(comm, name)(np.ones(1), np.zeros(2))
    comm.Free()
