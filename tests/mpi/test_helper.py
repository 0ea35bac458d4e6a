"""Nonblocking collectives complete while their ranks compute, or wait inside MPI.

Each of these programs hangs if a rank has to call han before its peers can finish.
"""

import time
import warnings

import numpy as np
import pytest
from _support import (
    LEVELS,
    SECONDS,
    WORLD,
    comms,
    impatient,
    new_comm,
    on_both,
    on_two,
    opened,
    settings,
)
from mpi4py import MPI

import han
from han import _native
from han.runtime import waiting

usual = on_both
SIZES = (1, 1000, 300_000)  # elements of 8 bytes
WAYS = ("auto", "thread")


def starts(comm, n):
    """Yield a started request of each kind, and the check of its result."""
    size, last = comm.size, comm.size - 1
    total, data, every = np.zeros(n), np.full(n, float(comm.rank)), np.zeros((size, n))
    yield comm.Iallreduce(np.ones(n), total), lambda: (total == size).all()
    yield comm.Ibcast(data, root=last), lambda: (data == last).all()
    gathers = comm.Iallgather(data, every)
    if isinstance(gathers, han.Request):  # else it is MPI's own, and progresses as MPI does
        yield gathers, lambda: (every == last).all()
    else:
        gathers.Wait()
    lasting = comm.Reduce_init(np.ones(n), total, root=0)
    for _ in range(2):
        total[:] = -1
        lasting.Start()
        yield lasting, lambda: comm.rank or (total == size).all()
    lasting.Free()


def programs(comm, wait):
    """Make ranks wait in `wait(request)` for what a peer sends after its own collective."""
    for n in SIZES:
        for request, good in starts(comm, n):
            wait(comm, request)
            request.Wait()
            assert good(), (n, request)


def receive_first(comm, request):
    """Rank 0 hears from the others only when they have finished."""
    if comm.rank:
        request.Wait()
        WORLD.send(None, dest=0, tag=1)
    else:
        for r in range(1, comm.size):
            WORLD.recv(source=r, tag=1)


def wait_in_mpi(comm, request):
    """Even ranks wait in MPI, odd ones in han."""
    MPI.Request.Wait(request) if comm.rank % 2 == 0 else request.Wait()


def compute(comm, request):
    """Rank 0 computes, and calls neither MPI nor han, until its peers have finished.

    They count their calls in shared memory, as every other way would be a call that makes progress.
    """
    if comm.rank:
        request.Wait()
        comm.done[comm.rank] += 1
        return
    comm.done[0] += 1
    until = time.monotonic() + SECONDS
    while min(comm.done) < comm.done[0]:
        assert time.monotonic() < until, "the peers wait for a rank that computes"
        sum(range(1000))


def test_a_receive_before_the_wait(mpi_ranks):
    for way in WAYS:
        for comm in comms(wait={"progress": way, "timeout": 20}):
            programs(comm, receive_first)
            assert comm.rank or _native.helper_runs()


def test_a_wait_in_mpi(mpi_ranks):
    for way in (*WAYS, "off"):
        for comm in comms(wait={"progress": way, "timeout": 20}):
            programs(comm, wait_in_mpi)


def test_a_rank_that_computes(mpi_ranks):
    window = MPI.Win.Allocate_shared(WORLD.size if WORLD.rank == 0 else 0, 1, comm=WORLD)
    done = np.frombuffer(window.Shared_query(0)[0], np.uint8)
    if WORLD.rank == 0:
        done[:] = 0
    WORLD.Barrier()
    for way in WAYS:
        for comm in comms(wait={"progress": way, "timeout": 20}):
            comm.done = done
            programs(comm, compute)
    window.Free()


@on_two
def test_threads_below_multiple_are_told_once(mpi_ranks, monkeypatch):
    monkeypatch.setattr(waiting, "_any_thread_may", lambda: False)
    monkeypatch.setattr(waiting, "_told", [])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for comm in comms():
            for n in (1, 2, 3):
                comm.Iallreduce(np.ones(n), np.empty(n)).Wait()
    monkeypatch.undo()
    said = [str(one.message) for one in caught if "MPI_THREAD_MULTIPLE" in str(one.message)]
    assert len(said) == 1
    with opened(new_comm()) as comm:  # lets the helper call MPI again
        comm.Barrier()


@impatient
@on_two
def test_errors_are_told_by_mpi(mpi_ranks):
    """A rank that waits in MPI for a collective hears that a peer made none, and why."""
    for levels in LEVELS:
        comm = han.Comm(WORLD.Dup(), config=settings(levels))
        if comm.rank:
            request = comm.Iallreduce(np.ones(9), np.empty(9))
            with pytest.raises(MPI.Exception, match="has no buffer"):
                MPI.Request.Wait(request)
        else:
            with pytest.raises(TypeError):
                comm.Iallreduce(object(), np.empty(9))
        WORLD.Barrier()
        comm.Free()


@on_two
def test_a_request_under_way_for_long_is_no_error(mpi_ranks):
    """The time limit is for ranks that wait for it: this one waits for a message."""
    one, two = (new_comm(levels, timeout=0.3) for levels in LEVELS)
    with opened(one), opened(two):
        if WORLD.rank:
            time.sleep(1)
            WORLD.send(None, dest=0, tag=2)
            requests = [one.Ibarrier(), two.Ibarrier()]
        else:
            requests = [one.Ibarrier(), two.Ibarrier()]
            WORLD.recv(source=1, tag=2)
        for request in requests:
            request.Wait()
