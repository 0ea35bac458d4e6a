"""Ranks do different things while collectives are outstanding, and all of them finish."""

import contextlib
import itertools
import time
from functools import partial

import numpy as np
import pytest
from _support import (
    FLAT,
    LEVELS,
    SECONDS,
    TWO_LEVELS,
    WORLD,
    check_works,
    comms,
    error_of,
    new_comm,
    on_both,
    on_four,
    on_two,
    opened,
    settings,
)
from mpi4py import MPI

import han

usual = on_four
MANY = 300_000  # elements of 8 bytes: a rank cannot finish before its peers enter


def rules(levels, submodule, collective=None):
    """Return rules that set the submodule of the outermost level, for one collective or all."""
    use = {"levels": {levels[-1]["name"]: {"submodule": submodule}}}
    if submodule == "mpi":
        use["segment"] = "whole"
    return [
        {"use": use} if collective is None else {"when": {"collective": collective}, "use": use}
    ]


class Outstanding:
    """Outstanding collectives: nonblocking ones and perhaps a persistent one."""

    def __init__(self, comm, persistent=True):
        self.comm = comm
        self.mine = np.empty(MANY)
        self.sums = np.empty((2, MANY))
        self.data = np.empty(MANY)
        self.lasting = comm.Allreduce_init(self.mine, self.sums[0]) if persistent else None
        self.round = 0

    def start(self):
        """Start all of them, in the same order on all ranks."""
        comm = self.comm
        self.round += 1
        self.sums[:] = -1
        self.mine[:] = comm.rank + self.round
        self.data[:] = self.round if comm.rank == comm.size - 1 else -1
        self.requests = [
            comm.Iallreduce(self.mine, self.sums[1]),
            comm.Ibcast(self.data, root=comm.size - 1),
        ]
        if self.lasting is not None:
            self.lasting.Start()
            self.requests.append(self.lasting)

    def wait(self):
        """Complete them, in reverse order on even ranks, and check the results."""
        size = self.comm.size
        for request in self.requests[:: 1 if self.comm.rank % 2 else -1]:
            request.Wait()
        total = size * (size - 1) // 2 + size * self.round
        assert (self.sums[1] == total).all()
        assert (self.data == self.round).all()
        if self.lasting is not None:
            assert (self.sums[0] == total).all()

    def free(self):
        if self.lasting is not None:
            self.lasting.Free()


def some_first(size):
    """Return sets of ranks that take a step before the others: one, all but one, every other."""
    return {0}, set(range(1, size)), set(range(0, size, 2))


def cross(outstanding, early, step):
    """Let the ranks in `early` take a step and then wait; the others wait and then take it."""
    outstanding.start()
    if outstanding.comm.rank in early:
        made = step()
        outstanding.wait()
    else:
        outstanding.wait()
        made = step()
    return made


# ---- creating communicators and requests ----------------------------------------------------


def all_but_last(comm):
    """Create a communicator of all ranks except the last, which does not call."""
    if comm.rank == comm.size - 1:
        return MPI.COMM_NULL
    return comm.Create_group(comm.group.Excl([comm.size - 1]))


MAKE = {
    "Split": lambda comm: comm.Split(comm.rank % 2, -comm.rank),
    "Split of some": lambda comm: comm.Split(0 if comm.rank else MPI.UNDEFINED),
    "Split_type": lambda comm: comm.Split_type(MPI.COMM_TYPE_SHARED),
    "Dup": lambda comm: comm.Dup(),
    "Clone": lambda comm: comm.Clone(),
    "Create": lambda comm: comm.Create(comm.group.Excl([0])),
    "Create_group": all_but_last,
    "Create_cart": lambda comm: comm.Create_cart([comm.size]),
    "Create_dist_graph": lambda comm: comm.Create_dist_graph([comm.rank], [1], [0]),
}


@on_both
def test_making_communicators_lets_the_others_finish(mpi_ranks):
    for comm in comms():
        outstanding = Outstanding(comm)
        for make in MAKE.values():
            for early in some_first(comm.size):
                made = cross(outstanding, early, partial(make, comm))
                if made != MPI.COMM_NULL:
                    check_works(made)
                    made.Free()
        outstanding.free()


@on_two
def test_making_a_han_comm_lets_the_others_finish(mpi_ranks):
    for comm in comms():
        outstanding = Outstanding(comm)
        for early in some_first(comm.size):
            plain = WORLD.Dup()
            made = cross(outstanding, early, partial(han.Comm, plain, settings(FLAT)))
            check_works(made)
            made.Free()
        outstanding.free()


def two_persistent(comm, mine, total, data):
    return [comm.Allreduce_init(mine, total), comm.Bcast_init(data, root=comm.size - 1)]


@on_two
def test_making_persistent_requests_lets_the_others_finish(mpi_ranks):
    for comm in comms():
        outstanding = Outstanding(comm)
        for n in (1, 500, 50_000):
            for early in some_first(comm.size):
                mine, total = np.full(n, comm.rank), np.empty(n, int)
                data = np.full(n, comm.rank)
                make = partial(two_persistent, comm, mine, total, data)
                made = cross(outstanding, early, make)
                for _ in range(2):
                    han.Request.Startall(made)
                    han.Request.Waitall(made)
                assert (total == comm.size * (comm.size - 1) // 2).all()
                assert (data == comm.size - 1).all()
                for request in made:
                    request.Free()
        outstanding.free()


# ---- calls ----------------------------------------------------------------------------------


def check_calls(comm, n):
    """Make calls of about `n` elements and check the results."""
    mine, total = np.full(n, comm.rank + 1), np.empty(n, int)
    data = np.full(n, comm.rank)
    comm.Bcast(data, root=n % comm.size)
    assert (data == n % comm.size).all()
    comm.Allreduce(mine, total)
    assert (total == comm.size * (comm.size + 1) // 2).all()
    request = comm.Iallreduce(mine[: n // 2 + 1], total[: n // 2 + 1], MPI.MAX)
    request.Wait()
    assert (total[: n // 2 + 1] == comm.size).all()
    largest = np.empty(n, int)
    comm.Reduce(mine, largest, MPI.MAX, root=0)
    assert comm.rank or (largest == comm.size).all()
    comm.Barrier()


def test_checked_calls_let_the_others_finish(mpi_ranks):
    for comm in comms(check=True):
        outstanding = Outstanding(comm)
        for n in (1, 700, 40_000):
            for early in some_first(comm.size):
                cross(outstanding, early, partial(check_calls, comm, n))
        outstanding.free()


def test_first_calls_over_collectives_of_mpi_let_the_others_finish(mpi_ranks):
    cases = itertools.product(
        LEVELS, ("libnbc", "mpi"), ("bcast", "allreduce", None), some_first(WORLD.size)
    )
    for levels, submodule, collective, early in cases:
        with opened(new_comm(levels, rules=rules(levels, submodule, collective))) as comm:
            outstanding = Outstanding(comm, persistent=False)
            for n in (300, 20_000):
                cross(outstanding, early, partial(check_calls, comm, n))


def test_persistent_ones_over_nonblocking_collectives_of_mpi(mpi_ranks):
    """Ranks wait in different orders, and make their first calls before or after that."""
    for levels in LEVELS:
        for early in some_first(WORLD.size):
            with opened(new_comm(levels, rules=rules(levels, "libnbc"))) as comm:
                outstanding = Outstanding(comm)
                for n in (5, 30_000):
                    cross(outstanding, early, partial(check_calls, comm, n))
                outstanding.free()


@on_two
def test_nonblocking_calls_pass_a_rule_for_blocking_collectives_over(mpi_ranks):
    """They return although the last rank enters only after rank 0's calls have returned."""
    for levels in LEVELS:
        with opened(new_comm(levels, rules=rules(levels, "mpi"))) as comm:
            for n in (1, 1000, 100_000):
                mine, total = np.full(n, comm.rank), np.empty(n, int)
                data = np.full(n, comm.rank)
                if comm.rank == comm.size - 1:
                    WORLD.recv(source=0)
                requests = [
                    comm.Iallreduce(mine, total),
                    comm.Ibcast(data, root=comm.size - 1),
                    comm.Ibarrier(),
                ]
                if comm.rank == 0:
                    WORLD.send(None, dest=comm.size - 1)
                for request in requests:
                    request.Wait()
                assert (total == comm.size * (comm.size - 1) // 2).all()
                assert (data == comm.size - 1).all()
                comm.Allreduce(mine, total, MPI.MAX)
                assert (total == comm.size - 1).all()


# ---- a rank does not enter ------------------------------------------------------------------


# the name in the error, the configuration, the call
NEVER = {
    "Split": ("split", {}, lambda comm: comm.Split(0)),
    "Dup": ("dup", {}, lambda comm: comm.Dup()),
    "Allreduce_init": (
        "allreduce",
        {},
        lambda comm: comm.Allreduce_init(np.ones(9), np.zeros(9)),
    ),
    "a checked call": (
        "allreduce",
        {"check": True},
        lambda comm: comm.Allreduce(np.ones(9), np.zeros(9)),
    ),
    "the first call over libnbc": (
        "allreduce",
        {"rules": "libnbc"},
        lambda comm: comm.Allreduce(np.ones(9), np.zeros(9)),
    ),
}


@pytest.mark.parametrize("what", NEVER)
def test_a_rank_that_never_comes_to_a_step_is_told_in_time(mpi_ranks, what):
    levels, (named, more, call) = LEVELS[WORLD.size // 4], NEVER[what]
    missing = WORLD.size // 2  # the leader of the last node
    more = {**more, **({"rules": rules(levels, more["rules"])} if "rules" in more else {})}
    comm = new_comm(levels, timeout=0.5, **more)
    error = ("", "", 0.0)
    if comm.rank != missing:
        error = error_of(partial(call, comm))
    errors = WORLD.allgather(error)
    del errors[missing]
    assert {name for name, _, _ in errors} <= {"CollectiveTimeoutError", "PeerError"}, errors
    assert any(name == "CollectiveTimeoutError" for name, _, _ in errors), errors
    assert all(named in text.lower() for _, text, _ in errors), errors
    assert max(seconds for _, _, seconds in errors) < SECONDS, errors
    if comm.rank == missing:
        with contextlib.suppress(han.PeerError, han.RevokedError):
            comm.Barrier()
    with pytest.raises(han.RevokedError):
        comm.Barrier()
    assert WORLD.allreduce(1) == WORLD.size


# the ranks that wait for all others, the call
FIRST = [
    ("leaders", lambda comm: comm.Bcast(np.zeros(50), root=0)),
    ("leaders", lambda comm: comm.Ibcast(np.zeros(50), root=0).Wait()),
    ("all", lambda comm: comm.Allreduce(np.zeros(50), np.zeros(50))),
    ("all", lambda comm: comm.Iallreduce(np.zeros(50), np.zeros(50)).Wait()),
]


def test_a_rank_that_errs_does_not_leave_the_others_in_a_first_call(mpi_ranks):
    odd = WORLD.size // 2  # the leader of the last node
    for levels, (concerned, first) in itertools.product(LEVELS, FIRST):
        comm = new_comm(levels, rules=rules(levels, "libnbc"))
        call = first
        if comm.rank == odd:
            time.sleep(0.05)  # time for the others to enter their call
            call = partial(han.Comm.Bcast, buf=np.zeros(50), root=77)
        errors = WORLD.allgather(error_of(partial(call, comm)))
        assert errors.pop(odd)[0] == "ArgumentError"
        if concerned == "leaders" and levels is TWO_LEVELS:
            errors = errors[:1]  # the others need not wait for rank `odd`
        for name, text, seconds in errors:
            assert name == "PeerError", errors
            assert f"rank {odd} raised ArgumentError" in text, errors
            assert "root 77" in text, errors
            assert seconds < SECONDS, errors
