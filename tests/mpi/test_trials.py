"""Large calls within a node try two ways while the program runs; all ranks go the same one."""

from __future__ import annotations

import time

import numpy as np
import pytest
from _support import FLAT, error_of, new_comm, on_two, opened
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
COUNT = 66_001  # elements of 8 bytes: beyond all least sizes, and no whole pieces


def attached(comm):
    """Return `comm` where its ranks may reach into each other's memory; skip elsewhere."""
    if comm._han.attach_refused:
        pytest.skip(f"this machine refuses single copies: {comm._han.attach_refused}")
    return comm


def ways(comm):
    """Return how often each plan went either way on this rank, by collective and size."""
    plans = [p for p in comm._han.plans.living.values() if p.rival]
    told = {}
    for p in plans:
        rival = p.native.rival
        key = p.signature.collective, p.signature.nbytes, p.signature.root
        told[key] = p.native.counts[0], rival.counts[0] if rival else 0
    return told


def agree(comm):
    """Return what `ways` says on all ranks alike."""
    told = WORLD.allgather(ways(comm))
    assert all(t == told[0] for t in told)
    return told[0]


class Calls:
    """Random calls, the same on all ranks, with what has to come of them."""

    def __init__(self, comm, seed):
        self.comm, self.rng = comm, np.random.default_rng(seed)
        self.rank, self.size = comm.rank, comm.size

    def draw(self, step):
        """Return the method's name, its arguments, the result, and what it has to be."""
        name = ("Bcast", "Allreduce", "Allgather", "Scatter", "Alltoall", "Reduce")[
            self.rng.integers(6)
        ]
        root, n = int(self.rng.integers(self.size)), COUNT if self.rng.integers(3) else 2 * COUNT
        base, every = np.arange(n), range(self.size)
        mine = base * (self.rank + 2) + step
        of = [base * (r + 2) + step for r in every]
        if name == "Bcast":
            data = mine if self.rank == root else np.zeros(n, int)
            return name, (data, root), data, of[root]
        if name == "Allreduce":
            result = np.zeros(n, int)
            return name, (mine, result), result, sum(of)
        if name == "Reduce":
            result = np.zeros(n, int)
            wanted = sum(of) if self.rank == root else np.zeros(n, int)
            return name, (mine, result, MPI.SUM, root), result, wanted
        if name == "Allgather":
            result = np.zeros(n * self.size, int)
            return name, (mine, result), result, np.concatenate(of)
        if name == "Scatter":
            result = np.zeros(n, int)
            send = np.concatenate([base + 7 * r + step for r in every])
            at = (send if self.rank == root else None, result, root)
            return name, at, result, base + 7 * self.rank + step
        result = np.zeros(n * self.size, int)
        send = np.concatenate([base + 100 * self.rank + r + step for r in every])
        wanted = np.concatenate([base + 100 * r + self.rank + step for r in every])
        return name, (send, result), result, wanted


def mix(comm, seed, rounds):
    calls, step = Calls(comm, seed), 0
    for _ in range(rounds):
        flying = []
        for _ in range(int(calls.rng.integers(1, 4))):
            flying.append(calls.draw(step))
            step += 1
        if calls.rng.integers(2):
            for name, arguments, result, wanted in flying:
                getattr(comm, name)(*arguments)
                np.testing.assert_array_equal(result, wanted, name)
        else:
            requests = [getattr(comm, f"I{name.lower()}")(*args) for name, args, *_ in flying]
            for request, (name, _, result, wanted) in zip(requests, flying, strict=True):
                request.Wait()
                np.testing.assert_array_equal(result, wanted, name)


@pytest.mark.mpi(ranks=[2, 5], timeout=120, unit="s")
def test_whatever_is_tried_the_result_is_right_and_all_ranks_go_the_same_way(mpi_ranks):
    with opened(attached(new_comm(FLAT))) as comm:
        mix(comm, 11, 120)
        told = agree(comm)
        assert {kind for kind, *_ in told} >= {"bcast", "allgather", "scatter", "alltoall"}
        assert ("allreduce" in {kind for kind, *_ in told}) == (comm.size == 2)
        assert "reduce" not in {kind for kind, *_ in told}
        assert sum(other for _, other in told.values()) > 0


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_plans_that_are_dropped_on_some_ranks_only(mpi_ranks):
    """Arrays that are not plain are looked for in the cache, on their rank alone."""
    with opened(attached(new_comm(FLAT, plans=2))) as comm:
        odd = comm.rank == 1
        arrays = [np.zeros(COUNT + 8 * k) for k in range(3)]
        for step in range(120):
            a = arrays[step * step % 7 % 3]
            a[:] = step if comm.rank == 0 else -1
            comm.Bcast([a, MPI.DOUBLE] if odd and step % 2 else a)
            assert (a == step).all()
        hits = WORLD.allgather(comm.cache_info().misses)
        assert min(hits) > 3, "plans were dropped"


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
def test_ranks_that_are_late_and_a_leader_that_runs_ahead(mpi_ranks):
    with opened(attached(new_comm(FLAT))) as comm:
        data, few = np.zeros(COUNT), np.zeros(1)
        for turn in range(6):
            if comm.rank == turn % 3:
                time.sleep(0.02)
            for k in range(30):
                data[:] = k if comm.rank == turn % 2 else -1
                comm.Bcast(data, turn % 2)
                assert (data == k).all()
                few[0] = k if comm.rank == 0 else -1
                comm.Bcast(few)
                assert few[0] == k
        told = agree(comm)
        assert all(usual and other for usual, other in told.values())


@on_two
def test_switched_off_nothing_is_tried_and_shared_arrays_go_their_own_way(mpi_ranks):
    with opened(new_comm(FLAT, trials=False)) as comm:
        a = np.zeros(COUNT)
        for _ in range(30):
            comm.Bcast(a)
        assert not ways(comm)
        assert "trials" not in str(comm.explain("bcast", a.nbytes))
    with opened(attached(new_comm(FLAT))) as comm:
        plain, shared = np.zeros(COUNT), comm.zeros(COUNT)
        for k in range(60):
            comm.Allgather(shared if k % 3 else plain, comm.zeros((2, COUNT)))
        usual, other = agree(comm)["allgather", shared.nbytes, 0]
        assert usual + other == 20
        assert comm._han.engine.alternatives == 40
        text = str(comm.explain("allgather", shared.nbytes))
        told = f"where trials find it quicker: everyone: solo blocks (chunk 4MiB), as {other} of"
        assert told in text


@pytest.mark.mpi(ranks=3, timeout=40, unit="s")
def test_a_leader_that_does_not_come_is_named_and_one_that_errs_is_followed_by_nobody(mpi_ranks):
    comm = attached(new_comm(FLAT))
    data = np.zeros(COUNT)
    for _ in range(15):
        comm.Bcast(data, 1)
    name, text, _ = error_of(lambda: comm.Bcast(data, 1 if comm.rank != 1 else 17))
    assert name == ("ArgumentError" if comm.rank == 1 else "PeerError"), text
    comm = new_comm(FLAT, timeout=1.0)
    comm.Bcast(data, 1)
    if comm.rank != 1:
        name, text, _ = error_of(lambda: comm.Bcast(data, 1))
        if name == "CollectiveTimeoutError":
            assert "to hear which way rank 1 goes" in text
            assert "rank(s) 1 have not entered this call" in text
        else:  # the other one was quicker
            assert name in ("PeerError", "RevokedError"), text
    WORLD.Barrier()
