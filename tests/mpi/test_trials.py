"""Trials: large calls within a node try two plans during the program, the same on all ranks."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest
from _support import FLAT, NETWORK, error_of, new_comm, on_two, opened
from mpi4py import MPI

import han
from han.ranks.machine import fingerprint
from han.runtime.learning import LEARNER
from han.tasks.signature import Signature
from han.tuning.heuristics import BUILT_IN
from han.tuning.rules import TUNED
from han.tuning.tuned.files import as_text, read
from han.tuning.tuned.learnt import STRATEGY, Learnt
from han.tuning.tuned.points import Timing
from han.tuning.tuned.table import of_points

WORLD = MPI.COMM_WORLD
COUNT = 66_001  # elements of 8 bytes: above all least sizes, and not a multiple of a piece


def attached(comm):
    """Return `comm` if its ranks may attach to each other's memory, else skip the test."""
    if comm._han.shared.attach_refused:
        pytest.skip(f"this machine refuses single copies: {comm._han.shared.attach_refused}")
    return comm


@contextlib.contextmanager
def rc_of(**settings):
    """Change han.rc, and restore it at the end."""
    before = {name: getattr(han.rc, name) for name in settings}
    han.rc(**settings)
    try:
        yield
    finally:
        han.rc(**before)


def ways(comm):
    """Return how often this rank ran each plan and its rival, by collective, size and root."""
    plans = [p for p in comm._han.binder.living.values() if p.planned and p.planned.rival]
    told = {}
    for p in plans:
        rival = p.native.rival
        key = p.signature.collective, p.signature.nbytes, p.signature.root
        told[key] = p.native.counts[0], rival.counts[0] if rival else 0
    return told


def sized(comm, array):
    """Return the bytes of the largest message of an array's class of sizes."""
    return comm._han.planner.sized(Signature("bcast", array.nbytes)).nbytes


def agree(comm):
    """Return the result of `ways`, and check that it is the same on all ranks."""
    told = WORLD.allgather(ways(comm))
    assert all(t == told[0] for t in told)
    return told[0]


NAMES = ("Bcast", "Allreduce", "Allgather", "Scatter", "Alltoall", "Reduce")


class Calls:
    """Random calls, the same on all ranks, with their expected results."""

    def __init__(self, comm, seed, names=NAMES, roots=None):
        self.comm, self.rng = comm, np.random.default_rng(seed)
        self.names, self.roots = names, roots or comm.size
        self.rank, self.size = comm.rank, comm.size

    def draw(self, step):
        """Draw a call; return the method's name, the arguments, the result and its values."""
        name = self.names[self.rng.integers(len(self.names))]
        root, n = int(self.rng.integers(self.roots)), COUNT if self.rng.integers(3) else 2 * COUNT
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
        assert "reduce" in {kind for kind, *_ in told}, "of whole numbers, in any order"
        assert sum(other for _, other in told.values()) > 0


@pytest.mark.mpi(ranks=[2, 4], timeout=60, unit="s")
@pytest.mark.parametrize("persistent", [False, True])
def test_senders_run_ahead_of_a_root_that_has_trials(mpi_ranks, persistent):
    """The leader announces what later runs take, in blocking calls and persistent requests too."""
    with opened(attached(new_comm(FLAT))) as comm:
        mine, last = np.zeros(COUNT, int), comm.size - 1
        result, every = np.zeros(COUNT, int), np.zeros(COUNT * comm.size, int)
        here = comm.rank == last
        made = (
            (comm.Reduce, comm.Reduce_init, (mine, result if here else None, MPI.SUM, last)),
            (comm.Gather, comm.Gather_init, (mine, every if here else None, last)),
        )
        for call, init, arguments in made:
            request = init(*arguments) if persistent else None
            for step in range(60):
                mine[:] = step + comm.rank
                if here and step % 20 == 0:
                    time.sleep(0.005)
                call(*arguments) if request is None else request.Start()
                if request is not None:
                    request.Wait()
                if here and call == comm.Reduce:
                    assert (result == comm.size * step + sum(range(comm.size))).all()
                elif here:
                    assert (every.reshape(comm.size, -1).T - np.arange(comm.size) == step).all()
            if request is not None:
                request.Free()
        told = agree(comm)
        assert {kind for kind, *_ in told} == {"reduce", "gather"}
        assert all(other >= 4 for _, other in told.values())


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_plans_that_are_dropped_on_some_ranks_only(mpi_ranks):
    """A rank with a new plan follows the choice of a leader that has kept its plan."""
    with opened(attached(new_comm(FLAT))) as comm:
        state, a = comm._han, np.zeros(COUNT)
        for step in range(80):
            if comm.rank == 1:
                state.plans._kept.clear()
                state.calls.clear()
            a[:] = step if comm.rank == 0 else -1
            comm.Bcast(a)
            assert (a == step).all()
        assert comm.rank or ways(comm)["bcast", sized(comm, a), 0][1] > 0
        assert state.plans.info().misses == (80 if comm.rank == 1 else 1)


def fly(calls, rounds):
    """Start many calls before any is waited for; ranks wait in orders of their own, some late."""
    comm, own, step = calls.comm, np.random.default_rng(calls.rank), 0
    for _ in range(rounds):
        flying = []
        for _ in range(int(calls.rng.integers(1, 18))):
            name, args, result, wanted = calls.draw(step)
            flying.append((getattr(comm, f"I{name.lower()}")(*args), name, result, wanted))
            step += 1
        if own.integers(4) == 0:
            time.sleep(float(own.random()) * 2e-3)
        for at in own.permutation(len(flying)):
            request, name, result, wanted = flying[at]
            request.Wait()
            np.testing.assert_array_equal(result, wanted, name)


@pytest.mark.mpi(ranks=[2, 4], timeout=120, unit="s")
def test_nonblocking_calls_take_the_plan_that_was_announced_on_all_ranks(mpi_ranks):
    with opened(attached(new_comm(FLAT))) as comm:
        if comm.size == 2:
            fly(Calls(comm, 5), 40)
        else:
            fly(Calls(comm, 5, ("Bcast", "Scatter", "Reduce"), 1), 10)
        told = agree(comm)
        assert sum(other for _, other in told.values()) > 0
        assert "reduce" in {kind for kind, *_ in told}


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_nonblocking_calls_whose_plans_are_dropped_on_some_ranks_only(mpi_ranks):
    with opened(attached(new_comm(FLAT))) as comm:
        state, a, requests = comm._han, np.zeros((6, COUNT)), []
        for step in range(60):
            if comm.rank == 1:
                state.plans._kept.clear()
                state.calls.clear()
            a[step % 6] = step if comm.rank == 0 else -1
            requests.append(comm.Ibcast(a[step % 6]))
            if step % 6 == 5:
                MPI.Request.Waitall(requests)
                assert (a == np.arange(step - 5, step + 1)[:, None]).all()
                requests.clear()
        usual, other = comm.explain("bcast", a[0].nbytes).tried
        assert comm.rank == 1 or (other >= 4 and usual + other == 59)


@on_two
def test_what_nonblocking_calls_find_is_told_and_learnt(mpi_ranks):
    with opened(attached(new_comm(FLAT))) as comm:
        a = np.zeros(COUNT)
        for _ in range(50):
            comm.Ibcast(a).Wait()
        told = [p.native.learnt for p in comm._han.binder.living.values() if p.planned]
        assert all(one is None or (not comm.rank and one[1] == 1) for one in told)
        text = str(comm.explain("bcast", a.nbytes))
        assert f"which {ways(comm)['bcast', sized(comm, a), 0][1]} of 49" in text
    with opened(new_comm(FLAT, trials=False)) as comm:
        for _ in range(30):
            comm.Ibcast(a).Wait()
        assert not ways(comm)
    nodes = {"name": "node", "symbol": "s", "scope": {"size": 1}}, NETWORK
    with opened(new_comm([*nodes])) as comm:
        for k in range(30):
            a[:] = k if comm.rank == 0 else -1
            comm.Ibcast(a).Wait()
            assert (a == k).all()
        assert not ways(comm), "no trials between nodes"


SPECIAL = (0.0, -0.0, 1.0, -1.5, 1e-30, 3e38, float("inf"), float("-inf"), float("nan"))


@on_two
def test_both_ways_round_alike(mpi_ranks):
    """Plan and rival give the same bits for all pairs of special values, in place or not."""
    with opened(attached(new_comm(FLAT))) as comm:
        tried = set()
        for dtype, ops in (("f4", 4), ("f8", 4), ("c16", 2)):
            pairs = np.array([(x, y) for x in SPECIAL for y in SPECIAL])
            mine = np.resize(pairs[:, comm.rank], 2 * COUNT).astype(dtype)
            mine += np.random.default_rng(comm.rank).random(mine.size).astype(dtype) / 3
            for op in (MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX)[:ops]:
                results = set()
                for k in range(24):
                    result = mine.copy()
                    comm.Allreduce(MPI.IN_PLACE if k % 2 else mine, result, op)
                    results.add(result.tobytes())
                assert len(results) == 1, (dtype, op)
                assert len(set(WORLD.allgather(results.pop()))) == 1, (dtype, op)
                for root in range(2):
                    for _ in range(30):
                        comm.Reduce(mine, result, op, root)
                        results.add(result.tobytes() if comm.rank == root else b"")
                    assert len(results) == 1, (dtype, op, root)
                    results.clear()
            tried |= {min(told) > 0 for told in agree(comm).values()}
        assert tried == {True}


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
def test_who_sleeps_is_woken_by_the_leader(mpi_ranks):
    with opened(attached(new_comm(FLAT, wait={"policy": "futex", "timeout": 20}))) as comm:
        data = np.zeros((3, COUNT))
        for k in range(40):
            if comm.rank == 0 and k % 10 == 0:
                time.sleep(0.02)
            comm.Allgather(np.full(COUNT, k + comm.rank, float), data)
            assert (data == k + np.arange(3)[:, None]).all()


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
        usual, other = agree(comm)["allgather", sized(comm, shared), 0]
        assert usual + other == 19
        assert comm._han.engines.own.alternatives == 40
        text = str(comm.explain("allgather", shared.nbytes))
        way = comm.explain("allgather", shared.nbytes).rival.choice.levels[0].describe()
        assert f"where trials find it quicker: everyone: {way}, which {other} of" in text


@on_two
def test_a_blocking_call_that_meets_a_nonblocking_one_is_told(mpi_ranks):
    for leader in range(2):
        for count in (8192, COUNT):  # trials begin at 64 KiB
            comm, data = attached(new_comm(FLAT)), np.zeros(count)

            def mixed(comm=comm, leader=leader, data=data):
                for _ in range(30):
                    if comm.rank == leader:
                        comm.Bcast(data, leader)
                    else:
                        comm.Ibcast(data, leader).Wait()

            name, text, _ = error_of(mixed)
            assert name in ("MismatchError", "PeerError"), text
            told = WORLD.allgather(text)
            assert any("blocking and nonblocking calls do not match" in t for t in told), told


@pytest.mark.mpi(ranks=3, timeout=40, unit="s")
def test_a_leader_that_does_not_come_is_named_and_one_that_errs_is_followed_by_nobody(mpi_ranks):
    comm = attached(new_comm(FLAT))
    data = np.zeros(COUNT)
    for _ in range(15):
        comm.Bcast(data, 1)
    name, text, _ = error_of(lambda: comm.Bcast(data, 1 if comm.rank != 1 else 17))
    assert name == ("ArgumentError" if comm.rank == 1 else "PeerError"), text
    comm = new_comm(FLAT, timeout=2.0)
    comm.Bcast(data, 1)
    WORLD.Barrier()
    name, text, _ = error_of(lambda: comm.Bcast(data, 1)) if comm.rank != 1 else ("", "", 0)
    told = WORLD.allgather((name, text))
    late = [text for name, text in told if name == "CollectiveTimeoutError"]
    assert late, "at least one rank reaches its time limit"
    for text in late:
        assert "for rank 1 to choose a plan" in text
        assert "rank(s) 1 have not entered this call" in text
    assert {name for name, _ in told} <= {"", "CollectiveTimeoutError", "PeerError", "RevokedError"}


@on_two
def test_a_program_begins_with_what_trials_found_and_tries_the_built_in_choice(tmp_path):
    path, size = WORLD.bcast(tmp_path / "tuned.json"), 1 << 20
    for rule in (BUILT_IN, TUNED):
        comm = attached(han.Comm(WORLD.Dup(), {"learn": True, "tuned": str(path)}))
        data = np.zeros(size // 8)
        for k in range(120):
            data[:] = k if not comm.rank else 0
            comm.Bcast(data)
            assert data[0] == data[-1] == k
            comm.Barrier()
        said = comm.explain("bcast", size)
        assert said.rule == rule
        assert {rule, said.rival.choice.rule} in ({BUILT_IN, "rival"}, {BUILT_IN, TUNED})
        assert sum(said.tried) == 119
        told = [p.native.learnt for p in comm._han.binder.living.values() if p.planned]
        assert all(one is None or one[1] for one in told)
        comm.Free()
        LEARNER.write()
        WORLD.Barrier()
        if path.exists():
            assert {p.strategy for p in read(path).points} == {STRATEGY}
        WORLD.Barrier()
        if not WORLD.rank:  # whatever the trials found, the next program begins with the rival
            times = (Timing(2e-4, 2e-4, 2e-4, 14), Timing(1e-4, 1e-4, 1e-4, 14))
            won = Learnt(said.plan, said.decision.choice, said.rival.choice, times, True)
            path.write_text(as_text(of_points((won.point("today"),), fingerprint())))
        WORLD.Barrier()
