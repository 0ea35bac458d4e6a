"""Calibrations on ranks: what they measure, who makes one, and whose file decides."""

import math
import os
import warnings
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from _support import WORLD, opened

import han
from han.ranks import calibration
from han.ranks.machine import fingerprint
from han.ranks.meeting import Meeting
from han.runtime import calibrating, probes
from han.runtime.calibrating import calibrate
from han.runtime.roots import Roots
from han.tuning.profile import NETWORK, UNKNOWN, Profile
from han.tuning.tuned.calibrated import Calibration, file_of, find, write

BESIDE = {"flag", "copy", "reduce"}  # what two ranks of a node can measure
BETWEEN = {"latency", "bandwidth", "injection"}
KEPT = Profile(cores=4, copy=8000.0, reduce=5000.0, memory=6e4, flag=0.1)


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    """Calibrate as often as a test wants, in three rounds that count however they differ.

    No communicator is the root of another.
    """
    monkeypatch.setattr("han.runtime.making.ROOTS", Roots(0))
    monkeypatch.setattr(calibrating, "ROUNDS", 3)
    for name in ("DISTURBED", "SLOW"):
        monkeypatch.setattr(f"han.tuning.tuned.combined.{name}", math.inf)
    monkeypatch.setattr(calibration, "_tried", [])
    monkeypatch.setattr(calibration, "_problems", [])


@pytest.fixture
def shared_home(tmp_path, monkeypatch):
    """Let all ranks have one data folder."""
    monkeypatch.setenv("XDG_DATA_HOME", WORLD.bcast(str(tmp_path)))


def measured(memory):
    own = WORLD.Dup()
    try:
        return calibrate(Meeting(own, 60.0), memory)
    finally:
        own.Free()


def alike(value):
    return all(one == value for one in WORLD.allgather(value))


@contextmanager
def told(*texts):
    """Expect warnings with these texts on rank 0, and no others."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    said = [str(one.message) for one in found if "calibration" in str(one.message)]
    wanted = texts if WORLD.rank == 0 else ()
    assert len(said) == len(wanted), said
    assert all(text in one for text, one in zip(wanted, said, strict=True)), said


def first_comm():
    with mock.patch.dict(os.environ, {"HAN_CALIBRATE": "first" if not WORLD.rank else "off"}):
        return han.Comm(WORLD.Dup())


def check(comm):
    total = np.empty(100)
    comm.Allreduce(np.full(100, 1.0), total)
    assert (total == comm.size).all()


@pytest.mark.mpi(ranks=[1, 2, 4], timeout=120, unit="s")
def test_a_node_is_measured(mpi_ranks):
    found = measured(0)
    profile = found.values.profile
    known = {*profile.known()}
    crowded = mpi_ranks > len(os.sched_getaffinity(0))
    assert known == {"cores", *(BESIDE if mpi_ranks > 1 else ()), *(() if crowded else ["memory"])}
    assert profile.cores == os.cpu_count()
    assert found.values.problems == ()
    assert found.nodes == (tuple(range(mpi_ranks)),)
    assert alike((profile, found.values, found.rounds))


@pytest.mark.mpi(ranks=[2, 3, 4], timeout=120, unit="s")
@pytest.mark.parametrize("ppn", [1, 2, 3])
def test_nodes_are_measured(mpi_ranks, ppn):
    """Virtual nodes, of which the last has fewer ranks in places."""
    found = measured(WORLD.rank // ppn)
    profile = found.values.profile
    several = len(found.nodes) > 1
    assert {*profile.known()} >= BETWEEN if several else not profile.has_network
    assert bool(profile.copy) == (ppn > 1), "its own cache is faster than that of another core"
    assert alike((profile, found.values))


@pytest.mark.mpi(ranks=3, timeout=120, unit="s")
def test_some_ranks_of_a_job_do_not_say_what_whole_nodes_send(mpi_ranks):
    own = WORLD.Split(WORLD.rank // 2)
    found = calibrate(Meeting(own, 60.0), own.rank)
    own.Free()
    assert {*found.values.profile.known()} & BETWEEN == (
        BETWEEN - {"injection"} if WORLD.rank < 2 else set()
    )


@pytest.mark.mpi(ranks=[2, 4], timeout=120, unit="s")
def test_of_long_links_the_latency_is_measured(mpi_ranks, monkeypatch):
    monkeypatch.setattr("han.tuning.profile.LONG_LINK", 1e-9)
    profile = measured(WORLD.rank // 2 if mpi_ranks > 2 else WORLD.rank).values.profile
    assert {*profile.known()} & {*NETWORK} == {"latency"}
    assert alike(profile)


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
@pytest.mark.parametrize(("said", "found"), [("", True), ("off", False)])
def test_rank_0_tells_all_ranks_that_links_are_long(mpi_ranks, monkeypatch, said, found):
    monkeypatch.setattr("han.ranks.discover._host", lambda: WORLD.rank)
    with mock.patch.dict(os.environ, {"HAN_CALIBRATE": "off" if WORLD.rank else said}):
        with opened(han.Comm(WORLD.Dup())) as comm:
            assert comm._han.parts.planner.traits.latency == 0, "these links are short"
        monkeypatch.setattr("han.tuning.profile.LONG_LINK", 1e-9)
        with opened(han.Comm(WORLD.Dup())) as comm:
            latency = comm._han.parts.planner.traits.latency
            assert (latency > 0) == found
            with opened(comm.Split(0, -comm.rank)) as other:
                assert other._han.parts.planner.traits.latency == latency
            assert alike(latency)
            check(comm)


@pytest.mark.mpi(ranks=[2, 4], timeout=120, unit="s")
def test_the_first_communicator_calibrates_if_rank_0_says_so(mpi_ranks, shared_home):
    with told(), opened(first_comm()) as comm:
        profile = comm._han.parts.planner.traits.profile
        assert profile.copy > 0
        assert alike(profile)
        kept = find(fingerprint()).profile
        assert profile == pytest.approx(kept, rel=1e-3)
        check(comm)
        half = comm.Split(comm.rank % 2)
        assert half._han.parts.planner.traits.profile == profile
    with mock.patch.object(calibrating, "calibrate", side_effect=AssertionError):
        calibration._tried[:] = []
        with opened(first_comm()) as comm:  # it has the file
            assert alike(comm._han.parts.planner.traits.profile)


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_rank_0_decides_which_calibration_holds(mpi_ranks, tmp_path, monkeypatch):
    """Each rank has a data folder and a file of its own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / str(WORLD.rank)))
    mine = KEPT._replace(copy=1000.0 * (1 + WORLD.rank))
    write(file_of(fingerprint()), Calibration(fingerprint(), mine, "2026-01-01"))
    with told(), opened(han.Comm(WORLD.Dup())) as comm:
        profile = comm._han.parts.planner.traits.profile
        assert profile.copy == 1000.0
        assert alike(profile)
        check(comm)


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
@pytest.mark.parametrize(("rank", "tells"), [(0, ["damaged"]), (1, [])])
def test_a_damaged_file_counts_on_rank_0_only(mpi_ranks, tmp_path, monkeypatch, rank, tells):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / str(WORLD.rank)))
    write(file_of(fingerprint()), Calibration(fingerprint(), KEPT, "2026-01-01"))
    if WORLD.rank == rank:
        file_of(fingerprint()).write_text("{")
    with told(*tells), opened(han.Comm(WORLD.Dup())) as comm:
        assert comm._han.parts.planner.traits.profile.copy == (0 if rank == 0 else KEPT.copy)
        check(comm)


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_nodes_that_differ_use_no_calibration(mpi_ranks, shared_home, monkeypatch):
    if WORLD.rank == 0:
        write(file_of(fingerprint()), Calibration(fingerprint(), KEPT, "2026-01-01"))
    WORLD.Barrier()
    monkeypatch.setattr("han.ranks.discover._kind", lambda: WORLD.rank)
    with opened(han.Comm(WORLD.Dup())) as comm:
        assert comm._han.parts.planner.traits.profile == UNKNOWN
        check(comm)


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_other_processors_spoil_a_calibration(mpi_ranks, shared_home, monkeypatch):
    other = replace(fingerprint(), cpu=f"cpu {WORLD.rank}")
    monkeypatch.setattr(calibrating, "fingerprint", lambda: other)
    with told("nodes differ"), opened(first_comm()) as comm:
        assert comm._han.parts.planner.traits.profile.copy == 0
        check(comm)
    assert find(fingerprint()).found is None


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_a_disturbed_calibration_is_not_kept(mpi_ranks, shared_home, monkeypatch):
    monkeypatch.setattr("han.tuning.tuned.combined.DISTURBED", 0.0)
    monkeypatch.setattr(calibrating, "outnumber_processors", lambda places: False)
    with told("not kept: disturbed: "), opened(first_comm()) as comm:
        assert comm._han.parts.planner.traits.profile.copy == 0
        check(comm)
    with told(), opened(first_comm()) as comm:  # there is no second try
        check(comm)
    assert find(fingerprint()).found is None


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_no_shared_memory_for_a_calibration(mpi_ranks, shared_home, monkeypatch):
    if WORLD.rank == 0:
        refusal = mock.Mock(side_effect=OSError(28, "no room"))
        monkeypatch.setattr("han.runtime.probes.memory_of", _refused(refusal))
    else:
        monkeypatch.setattr("han.runtime.probes.memory_of", _refused(lambda: None))
    with told("no room"), opened(first_comm()) as comm:
        check(comm)
    assert find(fingerprint()).found is None


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_no_memory_for_a_calibration_on_one_rank(mpi_ranks, shared_home, monkeypatch):
    if WORLD.rank == 1:
        refusal = mock.Mock(side_effect=MemoryError)
        monkeypatch.setattr(probes, "np", SimpleNamespace(**{**vars(np), "ones": refusal}))
    with told("MemoryError"), opened(first_comm()) as comm:
        check(comm)
    assert find(fingerprint()).found is None


def _refused(make):
    def memory_of(meeting, ranks, nbytes, step):
        meeting.share(make, step)
        raise AssertionError

    return memory_of


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_an_interrupted_calibration_leaves_the_file_as_it_was(mpi_ranks, shared_home, monkeypatch):
    if WORLD.rank == 0:
        write(file_of(fingerprint()), Calibration(fingerprint(), KEPT, "2026-01-01"))
    WORLD.Barrier()
    broken = SimpleNamespace(meeting=None, amounts=mock.Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(calibrating, "Probes", lambda *about: broken)
    with pytest.raises(KeyboardInterrupt):
        measured(0)
    assert find(fingerprint()).profile == KEPT


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_a_folder_that_cannot_be_written_spoils_nothing(mpi_ranks, shared_home):
    if WORLD.rank == 0:
        with open(f"{os.environ['XDG_DATA_HOME']}/han", "w") as file:
            file.write("a file")
    WORLD.Barrier()
    with told("cannot be written"), opened(first_comm()) as comm:
        assert alike(comm._han.parts.planner.traits.profile)
        assert comm._han.parts.planner.traits.profile.copy > 0
        check(comm)
