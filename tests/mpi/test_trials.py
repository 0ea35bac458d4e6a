"""Trials: all ranks run the same of two plans, without a word that they share."""

import time

import numpy as np
import pytest
from _support import TWO_LEVELS, WORLD, check_works, error_of, opened, run, settings
from mpi4py import MPI

import han
from han.config.rules import LevelUse, Use
from han.ranks.machine import fingerprint
from han.tasks.call import call_signature
from han.tuning.built_in.choosing import BUILT_IN
from han.tuning.costs.estimates import Estimate
from han.tuning.rules import TUNED
from han.tuning.tuned.files import as_text
from han.tuning.tuned.points import Candidate, Point, key_of
from han.tuning.tuned.table import of_points

FEW, MANY = 32, 4096  # elements of 8 bytes: the largest of their classes of sizes
FIRST = 101  # runs before a trial of a rival that takes next to no time
TRIAL = FIRST + 8 + 4  # runs up to its end
BURST = 64  # runs between two meetings of a broadcast
MET = 4 * FIRST + 2 * BURST + 5  # runs of one up to the end of its trial
OTHER = Use("whole", "dataflow", {"network": LevelUse("adapt", "binary", {"segment": 8192})})
BY_ROWS = ("bcast", "reduce", "allreduce")

usual = pytest.mark.mpi(ranks=[2, 3, 4], timeout=60, unit="s")


def timing(seconds):
    return Estimate(seconds, seconds, seconds, 40)


def table(comm, keeps=False, usual=1e-4, other=1e-6):
    """Return a table of OTHER and the built-in choice; `usual` is the time of what it decides."""
    default, found = (usual, other) if keeps else (other, usual)
    points = [
        Point(
            key_of(call_signature(collective, n, dtype="i8"), comm._han.parts.topology), n, keeps,
            (Candidate(OTHER, timing(found)),), timing(default),
        )
        for collective in BY_ROWS for n in (8 * FEW, 8 * MANY)
    ]  # fmt: skip
    return of_points(tuple(points), fingerprint())


def tuned_comm(tmp_path, keeps=False, times=(), **more):
    """Return a communicator of two nodes whose calls a table decides."""
    path = WORLD.bcast(tmp_path / "tuned.json")
    with opened(han.Comm(WORLD.Dup(), settings(TWO_LEVELS, tuned="off"))) as comm:
        if not comm.rank:
            path.write_text(as_text(table(comm, keeps, *times)))
    WORLD.Barrier()
    return han.Comm(WORLD.Dup(), settings(TWO_LEVELS, tuned=str(path), **more))


def ways(comm):
    """Return how often this rank ran each plan and its rival, by collective, size and root."""
    plans = [p for p in comm._han.parts.maker.living.values() if p.planned and p.planned.rival]
    told = {}
    for p in plans:
        rival, key = p.native.rival, (p.signature.collective, p.signature.nbytes, p.signature.root)
        usual, other = told.get(key, (0, 0))
        told[key] = usual + p.native.counts[0], other + (rival.counts[0] if rival else 0)
    return told


def agree(comm):
    """Return the result of `ways`, and check that it is the same on all ranks."""
    told = WORLD.allgather(ways(comm))
    assert all(t == told[0] for t in told), told
    return told[0]


def call(comm, name, step, n=FEW, root=0):
    """Return the arguments of a call, the array of its result, and the values expected there."""
    every = range(comm.size)
    mine, total = np.arange(n) * (comm.rank + 2) + step, sum(np.arange(n) * (r + 2) for r in every)
    if name == "Bcast":
        data = mine if comm.rank == root else np.zeros(n, int)
        return (data, root), data, np.arange(n) * (root + 2) + step
    result = np.zeros(n, int)
    if name == "Allreduce":
        return (mine, result), result, total + comm.size * step
    wanted = total + comm.size * step if comm.rank == root else np.zeros(n, int)
    return (mine, result, MPI.SUM, root), result, wanted


NAMES = ("Bcast", "Reduce", "Allreduce")


def make(comm, steps, name="Allreduce", n=FEW):
    """Make so many calls, and check each result."""
    for step in range(steps):
        arguments, result, wanted = call(comm, name, step, n)
        getattr(comm, name)(*arguments)
        np.testing.assert_array_equal(result, wanted, name)


def mix(comm, steps):
    """Make random calls."""
    rng = np.random.default_rng(5)
    for step in range(steps):
        name, root = NAMES[rng.integers(3)], int(rng.integers(2)) * (comm.size - 1)
        arguments, result, wanted = call(comm, name, step, FEW if rng.integers(4) else MANY, root)
        getattr(comm, name)(*arguments)
        np.testing.assert_array_equal(result, wanted, name)


@pytest.mark.mpi(ranks=[2, 4, 8], timeout=120, unit="s")
@pytest.mark.parametrize("keeps", [False, True])
def test_all_ranks_run_the_same_plan_and_the_result_is_right(mpi_ranks, tmp_path, keeps):
    with opened(tuned_comm(tmp_path, keeps)) as comm:
        for name in NAMES:
            make(comm, TRIAL + 5 if name == "Allreduce" else MET, name)
        mix(comm, 8 * TRIAL if comm.size < 8 else 20)
        told = agree(comm)
        assert {kind for kind, *_ in told} == {"allreduce", "bcast", "reduce"}
        for name in ("allreduce", "bcast", "reduce"):
            assert any(other >= 4 for key, (_, other) in told.items() if key[0] == name), told
        said = comm.explain("allreduce", 8 * FEW, dtype="i8")
        assert said.rule == (BUILT_IN if keeps else TUNED)
        assert said.rival.choice.rule == ("rival" if keeps else BUILT_IN)
        way = f"network: {said.rival.choice.levels[1].describe()}"
        assert way in str(said).partition("where trials find it quicker: ")[2]
        assert f"which {said.tried[1]} of {sum(said.tried)} calls ran" in str(said)


def test_the_look_up_finds_the_second_call(mpi_ranks, tmp_path):
    with opened(tuned_comm(tmp_path)) as comm:
        for name in NAMES:
            make(comm, 1, name)
            found = comm._han.calls.hits
            make(comm, 2, name)
            assert comm._han.calls.hits == found + 2, name


def test_ranks_that_are_late_meet_before_and_after_a_burst(mpi_ranks, tmp_path):
    """Ranks of broadcasts and reductions run ahead of each other, but in meetings."""
    with opened(tuned_comm(tmp_path)) as comm:
        own = np.random.default_rng(comm.rank)
        for name in ("Bcast", "Reduce"):
            for step in range(MET + 40):
                if own.integers(60) == 0:
                    time.sleep(0.002)
                arguments, result, wanted = call(comm, name, step)
                if step % 7 == 3:
                    getattr(comm, f"I{name.lower()}")(*arguments).Wait()
                else:
                    getattr(comm, name)(*arguments)
                np.testing.assert_array_equal(result, wanted, name)
        request = comm.Bcast_init(data := np.zeros(FEW, int), comm.size - 1)
        for step in range(MET + 5):
            data[:] = step if comm.rank == comm.size - 1 else -1
            run(request)
            assert (data == step).all()
        request.Free()
        assert len(agree(comm)) == 3


def test_persistent_requests_have_trials_of_their_own(mpi_ranks, tmp_path):
    with opened(tuned_comm(tmp_path)) as comm:
        pairs = [(np.zeros(n, int), np.zeros(n, int)) for n in (FEW, MANY)]
        requests = [comm.Allreduce_init(*pair) for pair in pairs]
        requests.append(comm.Bcast_init(data := np.zeros(FEW, int), comm.size - 1))
        for step in range(2 * TRIAL):
            data[:] = step if comm.rank == comm.size - 1 else -1
            for send, _ in pairs:
                send[:] = comm.rank + step
            for request in requests:
                request.Start()
            MPI.Request.Waitall(requests)
            for _, result in pairs:
                assert (result == sum(range(comm.size)) + comm.size * step).all()
            assert (data == step).all()
        told = agree(comm)
        assert len(told) == 3
        del told["bcast", 8 * FEW, comm.size - 1]  # its trial begins later
        assert all(other >= 4 and usual + other == 2 * TRIAL for usual, other in told.values())
        for request in requests:
            request.Free()


def test_nonblocking_calls_that_overlap(mpi_ranks, tmp_path):
    """Ranks wait in orders of their own, some late; no start of a call waits."""
    with opened(tuned_comm(tmp_path)) as comm:
        rng, own, step = np.random.default_rng(3), np.random.default_rng(comm.rank), 0
        while step < 6 * TRIAL:
            flying = []
            for _ in range(int(rng.integers(1, 12))):
                name = NAMES[rng.integers(3)]
                arguments, result, wanted = call(comm, name, step)
                if rng.integers(6) == 0:
                    getattr(comm, name)(*arguments)
                    np.testing.assert_array_equal(result, wanted, name)
                else:
                    request = getattr(comm, f"I{name.lower()}")(*arguments)
                    flying.append((request, name, result, wanted))
                step += 1
            if own.integers(20) == 0:
                time.sleep(0.002)
            for k in own.permutation(len(flying)):
                request, name, result, wanted = flying[k]
                request.Wait()
                np.testing.assert_array_equal(result, wanted, name)
        told = agree(comm)
        assert sum(other for _, other in told.values()) >= 4


def test_plans_that_are_dropped_on_some_ranks_only(mpi_ranks, tmp_path):
    """A rank with a new plan counts the runs of those that it has dropped."""
    with opened(tuned_comm(tmp_path)) as comm:
        state, last, dropped = comm._han, comm.rank == comm.size - 1, []
        for k in range(MET + TRIAL):
            if last and k % 3 == 0:
                dropped += state.parts.maker.living.values()  # their runs count
                state.parts.plans._kept.clear()
                state.calls.clear()
            make(comm, 1, "Bcast" if k < MET else "Allreduce")
        assert min(other for _, other in agree(comm).values()) >= 4
        assert state.parts.plans.info().misses >= (TRIAL if last else 2)


def test_communicators_that_are_freed_in_the_middle_of_a_trial(mpi_ranks, tmp_path):
    """Those made later for the same ranks work, whatever they take over."""
    path = WORLD.bcast(tmp_path / "tuned.json")
    tuned_comm(tmp_path).Free()
    for steps in (FIRST + 3, TRIAL - 2, TRIAL, TRIAL + 1, TRIAL):
        comm = han.Comm(WORLD.Dup(), settings(TWO_LEVELS, tuned=str(path)))
        make(comm, steps)
        requests = [comm.Iallreduce(*call(comm, "Allreduce", 1)[0]) for _ in range(3)]
        MPI.Request.Waitall(requests)
        comm.Free()
    with opened(han.Comm(WORLD.Dup(), settings(TWO_LEVELS, tuned=str(path)))) as comm:
        make(comm, 2 * TRIAL)
        assert agree(comm)


def test_a_call_that_errs_in_place_of_the_one_in_which_the_ranks_agree(mpi_ranks, tmp_path):
    comm = tuned_comm(tmp_path)
    make(comm, TRIAL)
    data = np.zeros(FEW, int)
    wrong = comm.rank == comm.size - 1
    name, text, _ = error_of(lambda: comm.Allreduce(data, data[: 3 if wrong else FEW].copy()))
    assert name == ("ArgumentError" if wrong else "PeerError"), text
    comm = tuned_comm(tmp_path)
    make(comm, TRIAL)
    for _ in range(2):  # all ranks err: the communicator stays usable
        name, text, _ = error_of(lambda: comm.Allreduce(data, data[:3].copy()))
        assert name == "ArgumentError", text
    make(comm, 2 * TRIAL)
    agree(comm)
    comm.Free()


@pytest.mark.parametrize(("kind", "runs"), [("Allreduce", TRIAL), ("Bcast", 4 * FIRST)])
def test_a_rank_that_does_not_come_is_named(mpi_ranks, tmp_path, kind, runs):
    """In the agreement after a trial, and in the meeting before a burst.

    Ranks that wait for it directly or not reach the limit at the same time; one is the first.
    """
    comm = tuned_comm(tmp_path, timeout=1.0)
    make(comm, runs, kind)
    WORLD.Barrier()
    late = comm.size - 1
    name, text = "", ""
    if comm.rank != late:
        name, text, _ = error_of(lambda: make(comm, 1, kind))
    told = WORLD.allgather((name, text))
    assert {name for name, _ in told} <= {"", "CollectiveTimeoutError", "PeerError", "RevokedError"}
    named = (f"for rank {late} to agree on a trial", f"rank(s) {late} have not entered this call")
    waited = [text for _, text in told if "to agree on a trial" in text]
    assert any(name in text for text in waited for name in named), told
    check_works(tuned_comm(tmp_path))


def test_calls_that_have_no_trials(mpi_ranks, tmp_path):
    with opened(tuned_comm(tmp_path, trials=False)) as comm:
        make(comm, 5)
        assert comm.explain("allreduce", 8 * FEW, dtype="i8").rule == TUNED
        assert not ways(comm), "they are switched off"
    with opened(tuned_comm(tmp_path)) as comm:
        x, total = np.random.default_rng(comm.rank).random(FEW), np.zeros(FEW)
        results = set()
        for _ in range(3):
            comm.Allreduce(x, total)
            results.add(total.tobytes())
        assert not ways(comm), "a repeated sum of floating numbers gives the same bits"
        assert len(results) == 1
    with opened(han.Comm(WORLD.Dup(), settings(TWO_LEVELS, tuned="off"))) as comm:
        make(comm, 5)
        assert not ways(comm), "no table compares anything"


def test_the_first_trial_comes_later_the_more_its_rival_is_known_to_cost(mpi_ranks, tmp_path):
    for times, first in (((1e-4, 1e-4), 200), ((1e-4, 2e-4), 700)):
        with opened(tuned_comm(tmp_path, times=times)) as comm:
            make(comm, first + 8)
            assert [other for _, other in agree(comm).values()] == [0]
            make(comm, 5)
            assert [other >= 4 for _, other in agree(comm).values()] == [True]
