"""Communicators whose channels lie in the arena of their first rank."""

import contextlib
import errno
import resource
import time
from functools import partial
from unittest import mock

import numpy as np
import pytest
from _support import (
    LEVELS,
    SECONDS,
    WORLD,
    check_works,
    descriptors,
    impatient,
    mapped,
    new_comm,
    on_both,
    on_four,
    on_two,
    opened,
    outcome,
    own_memory,
    run,
    taken,
)

import han

usual = on_both
ODD = 1  # the rank that errs
MANY = 1000  # communicators
FILES = 256  # descriptors that a process may have
EACH = 64 << 10  # bytes that a used communicator takes for each of its ranks at most
SIZES = (8, 5000, 100, 70_000, 8, 300_000, 5000, 1 << 20, 8, 70_000)  # bytes


def forget(comm):
    """Give back what freed children left to later ones."""
    comm._han.parts.nest.clear()


@contextlib.contextmanager
def at_most(files):
    """Allow this process only so many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def allreduce(comm, nbytes, nonblocking=False):
    send, recv = np.full(nbytes // 8, comm.rank + 1.0), np.empty(nbytes // 8)
    if nonblocking:
        comm.Iallreduce(send, recv).Wait()
    else:
        comm.Allreduce(send, recv)
    assert (recv == comm.size * (comm.size + 1) / 2).all()


@pytest.mark.any_library
@on_four
def test_many_used_communicators_take_little(mpi_ranks, monkeypatch):
    with own_memory(monkeypatch) as place, opened(new_comm()) as comm:
        first = comm.Split(comm.rank % 2)  # maps what the others use too
        check_works(first)
        files, descriptors_before, before = mapped(place), descriptors(), taken()
        with at_most(FILES):
            many = [comm.Split(comm.rank % 2) if k % 2 else comm.Dup() for k in range(MANY)]
            for child in many:
                allreduce(child, 8)
        lent, ranks = taken() - before, sum(child.size for child in many if not child.rank)
        assert lent <= EACH * ranks
        assert (mapped(place), descriptors()) == (files, descriptors_before)
        for child in many:
            allreduce(child, 16)
            child.Free()
        forget(comm)
        assert taken() == before
        first.Free()


def test_rings_grow_when_a_call_needs_them(mpi_ranks):
    for levels, nonblocking in ((one, how) for one in LEVELS for how in (False, True)):
        with opened(new_comm(levels)) as comm, opened(comm.Dup()) as child:
            child.Barrier()
            for turn, nbytes in enumerate(SIZES):
                if turn % comm.size == comm.rank:
                    time.sleep(0.005)
                allreduce(child, nbytes, nonblocking)
                data = np.full(nbytes, child.rank, np.uint8)
                child.Bcast(data, root=child.size - 1)
                assert (data == child.size - 1).all()
            for _ in range(200):  # more runs than the rings remember
                allreduce(child, 5000)
                allreduce(child, 40)
            check_works(child)


@on_two
def test_a_nonblocking_call_that_needs_memory_waits_for_nobody(mpi_ranks, comm):
    """The lender may come late: the other rank's run begins when there is memory."""
    with opened(comm.Dup()) as child:
        child.Barrier()
        data = np.full(50_000, child.rank)
        if child.rank == 0:
            comm.recv(source=1)
        request = child.Ibcast(data, root=1)
        if child.rank:
            comm.send(None, dest=0)
        request.Wait()
        assert (data == 1).all()


def check_no_room(child, call):
    """Use a child; then make a call for which the lender has no memory."""
    full = OSError(errno.ENOSPC, "No space left on device")
    allreduce(child, 8)
    with mock.patch("han.memory.arena.Arena.fill", side_effect=full):
        error, _ = outcome(call)
    assert type(error) is (han.PeerError if child.rank else han.SharedMemoryError), error
    assert "no room for" in str(error)


def test_no_room_when_rings_grow(mpi_ranks, comm):
    for nonblocking in (False, True):
        child = comm.Dup()
        check_no_room(child, partial(allreduce, child, 100_000, nonblocking))
        assert type(outcome(child.Barrier)[0]) is han.RevokedError
        child.Free()
    check_works(comm)


def test_no_room_for_the_rings_of_a_persistent_request(mpi_ranks, comm):
    """The lender raises in the call that makes the request; the others in it or at its start."""
    child = comm.Dup()
    send, recv = np.ones(20_000), np.empty(20_000)

    def use():
        request = child.Allreduce_init(send, recv)
        run(request)

    check_no_room(child, use)
    child.Free()
    check_works(comm)


def test_different_calls_are_noticed_while_ranks_wait_for_rings(mpi_ranks, comm):
    """The lender makes a call that needs no cells, so the others would wait for ever."""
    child = comm.Dup()
    allreduce(child, 8)
    error, seconds = outcome(lambda: allreduce(child, 64_000) if child.rank else child.Barrier())
    assert type(error) is han.MismatchError, error
    assert seconds < SECONDS
    WORLD.Barrier()
    child.Free()


def test_persistent_requests_give_their_memory_back(mpi_ranks, comm):
    first, before = comm.Dup(), taken()
    check_works(first)
    first.Free()
    forget(comm)
    for _ in range(3):
        child = comm.Dup()
        data = np.full(1000, child.rank)
        with child.Bcast_init(data, root=0) as request:
            run(request)
        child.Free()
    forget(comm)
    assert taken() == before


def test_memory_stays_until_the_last_rank_has_closed_it(mpi_ranks, comm):
    """A rank that frees a communicator early leaves the others at work in it."""
    first, before = comm.Dup(), taken()
    check_works(first)
    first.Free()
    for late in range(comm.size):
        child = comm.Dup()
        data = np.full(20_000, child.rank)
        child.Bcast(data, root=0)
        if comm.rank == late:
            time.sleep(0.02)
        child.Free()
        again = comm.Dup()  # may get the same memory
        allreduce(again, 80_000)
        again.Free()
        forget(comm)
    assert taken() == before


def test_a_communicator_works_after_the_one_it_was_made_from(mpi_ranks):
    comm = new_comm()
    child = comm.Split(0, -comm.rank)
    child.Barrier()
    grandchild = child.Dup()
    grandchild.Barrier()
    comm.Free()
    for nbytes in SIZES:
        allreduce(child, nbytes)
    child.Free()
    for nbytes in SIZES:
        allreduce(grandchild, nbytes)
    grandchild.Free()


@impatient
@on_two
def test_a_notice_reaches_the_communicator_that_it_is_about(mpi_ranks, comm):
    """Communicators share the messages that tell of errors: another one may receive them first."""
    for levels_of in (lambda c: c.Dup(), lambda c: c.Split(0, c.rank)):
        one, other = levels_of(comm), levels_of(comm)
        one.Barrier()
        other.Barrier()
        if comm.rank == ODD:
            wrong, _ = outcome(lambda c=one: c.Bcast(np.zeros(4), root=7))
            assert "root" in str(wrong)
            time.sleep(0.02)
            other.Barrier()
        else:
            other.Barrier()  # waits, and receives the notice about `one`
            error, _ = outcome(lambda c=one: c.Bcast(np.zeros(4), root=0))
            assert type(error) in (han.PeerError, type(None))
            error, _ = outcome(one.Barrier) if error is None else (error, 0)
            assert type(error) is han.PeerError
            assert "root" in str(error)
        WORLD.Barrier()
        check_works(other)
        one.Free()
        other.Free()


@on_four
def test_no_duplicate_is_made_for_a_communicator_that_sends_no_messages(mpi_ranks, comm):
    with opened(comm.Dup()) as child:
        check_works(child)
        assert child._han.health.meeting.own is None
        rule = {"rules": [{"use": {"levels": {"everyone": {"submodule": "adapt"}}}}]}
        with opened(new_comm(**rule)) as talker, opened(talker.Dup()) as other:
            other.Barrier()
            assert other._han.health.meeting.own is not None
            check_works(other)


@on_two
def test_an_arena_that_is_too_small_lends_nothing(mpi_ranks, monkeypatch):
    with own_memory(monkeypatch) as place, opened(new_comm()) as comm, opened(comm.Dup()) as child:
        before = mapped(place)
        with mock.patch("han.memory.loans.PART", 1 << 40):
            check_works(child)
        assert mapped(place) > before
