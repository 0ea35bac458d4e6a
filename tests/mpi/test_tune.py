"""``han tune`` from end to end, and communicators that use what it found."""

import errno
import json
import os
import warnings
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from _jobs import job
from _support import WORLD
from mpi4py import MPI

import han
from han.config.rules import Use
from han.measure.tune import quality, session
from han.measure.tune.session import partial_file, tune, tuned_config
from han.measure.tune.tuner import Input, Plans, Tuner
from han.ranks.machine import fingerprint
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import BUILT_IN
from han.tuning.costs.estimates import Estimate
from han.tuning.rules import TUNED
from han.tuning.search.limits import Limits
from han.tuning.tuned.files import TunedError, as_text, read
from han.tuning.tuned.points import Candidate, MeasuredCall, Point
from han.tuning.tuned.table import of_points

ALL_VARIANTS = True  # the first MPI library runs all of them, the others none
LIMITS = Limits(submodules=("sm",), algorithms=("flat", "knomial"), parameters={})
INPUTS = (Input("bcast", 1024), Input("allreduce", 1024))


def shared_path(tmp_path, name="tuned.json"):
    """Return one path for all ranks."""
    return WORLD.bcast(tmp_path / name)


@pytest.mark.mpi(ranks=[2, 4], timeout=180, unit="s")
def test_a_table_is_made_and_used(mpi_ranks, tmp_path):
    path, config = shared_path(tmp_path), "virtual-2x2" if mpi_ranks == 4 else None
    plans = Plans(INPUTS, "task+heuristic", 4.0, LIMITS)
    told = []
    found = tune(WORLD, config, plans, path, warn=told.append)
    assert not found.problem
    assert {(p.key.collective, p.nbytes) for p in found.table.points} <= {
        (one.collective, one.nbytes) for one in INPUTS
    }
    everyone = WORLD.allgather([(p.key, p.nbytes, p.use, p.keeps) for p in found.table.points])
    assert all(one == everyone[0] for one in everyone), "ranks decide alike"
    assert all(one == found.table.tasks for one in WORLD.allgather(found.table.tasks))
    if found.table.points:
        assert read(path).points
        if config is not None:
            assert {one.shape for one in read(path).tasks} == {(2, 2)}
    WORLD.Barrier()
    # a table that decides for another choice than the built-in one
    if not WORLD.rank and found.table.points:
        forced = [replace(p, keeps=False) for p in found.table.points if p.candidates]
        path.write_text(as_text(of_points(tuple(forced), fingerprint())))
    WORLD.Barrier()
    source = replace(tuned_config(config), tuned=str(path))
    comm = han.Comm(WORLD.Dup(), source)
    for point in read(path).points if path.exists() else ():
        assert comm.explain(point.key.collective, point.nbytes).rule == TUNED
    for n in (1, 128, 200, 5000):
        data = np.arange(n) * (comm.rank == 0)
        comm.Bcast(data)
        assert np.array_equal(data, np.arange(n))
        total = np.empty(n)
        comm.Allreduce(np.full(n, comm.rank + 1.0), total)
        assert np.all(total == mpi_ranks * (mpi_ranks + 1) / 2)
    comm.Free()


@pytest.mark.mpi(ranks=2, timeout=180, unit="s")
def test_strategies_are_compared_on_all_ranks_alike():
    steps, kept = [], []
    plans = Plans(INPUTS, limits=LIMITS)

    def keep(row, found):
        kept.append((row, len(found.left)))

    found = quality.compare(WORLD, None, plans, ("task",), step=steps.append, keep=keep)
    rows = list(found.rows)
    assert WORLD.allgather(rows) == [rows] * WORLD.size
    assert [row.input for row in rows] == [*INPUTS]
    assert kept == [(rows[0], 1), (rows[1], 0)]
    assert len(steps) == 4
    for row in rows:
        assert row.ratio["exhaustive"] == 1.0
        assert row.measured["exhaustive"] == row.candidates
        assert all(one.measured > 0 and one.basis for one in row.predictions)
    # The budget of one rank suffices for the first input alone. Rank 0's is what counts.
    short = replace(plans, budget=None if WORLD.rank else 1e-9)
    found = quality.compare(WORLD, None, short, ("task",))
    assert WORLD.allgather(found.left) == [INPUTS[1:]] * WORLD.size


COMPARED = """
import os, signal, sys
from pathlib import Path
from mpi4py import MPI
from han.cli import endings
from han.cli.main import main
from han.measure.tune import quality
endings.PATIENCE, done = 0.1, []
def measured(lab, plans, memories, step, one):
    lab.control.Barrier()
    if len(done) == 2 and MPI.COMM_WORLD.rank == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    done.append(one)
    each = dict.fromkeys(memories, 1.0)
    return quality.QualityRow(one.collective, one.nbytes, 1, dict.fromkeys(memories, "flat"),
                              each, each, each, (), 1.0)
quality._measured = measured
sys.argv = ["han", "tune", "quality", "bcast,reduce", "64,256",
            "--budget", "1h", "--json", os.environ["HAN_TEST_FOLDER"] + "/quality.json"]
main()
"""


def test_a_comparison_that_is_ended_keeps_its_rows(tmp_path):
    status, output, _ = job(tmp_path, COMPARED, 2)
    assert status, output
    assert "# stopped: 2 inputs of 4" in output
    assert "within 5 %" in output
    rows = json.loads((tmp_path / "quality.json").read_text())["rows"]
    assert [(one["collective"], one["nbytes"]) for one in rows] == [("bcast", 64), ("reduce", 64)]


@pytest.mark.mpi(ranks=2, timeout=180, unit="s")
def test_shared_arrays_are_tuned_by_themselves(tmp_path):
    path, limits = shared_path(tmp_path), Limits(submodules=("solo",), parameters={})
    probe = han.Comm(WORLD.Dup(), {})
    maps = probe._han.parts.planner.maps_arrays
    probe.Free()
    plans = Plans((Input("allreduce", 1 << 18),), "heuristic", None, limits, shared=True)
    if not maps:
        with pytest.raises(han.ArgumentError, match="do not map each other's shared arrays"):
            tune(WORLD, None, plans, path)
        return
    (point,) = tune(WORLD, None, plans, path).table.points
    assert point.key.shared
    (wanted,) = {level.algorithm for level in point.candidates[0].use.levels.values()}
    WORLD.Barrier()
    if not WORLD.rank:
        forced = replace(point, keeps=False)
        path.write_text(as_text(of_points((forced,), fingerprint())))
    WORLD.Barrier()
    comm = han.Comm(WORLD.Dup(), replace(tuned_config(None), tuned=str(path)))
    planned = comm._han.parts.planner.planned(Signature("allreduce", 1 << 15, 8, "sum", "f8"))
    assert planned.decision.choice.rule == BUILT_IN
    assert planned.alternative.choice.rule == TUNED
    assert planned.alternative.choice.levels[0].algorithm == wanted
    comm.Free()


@pytest.mark.mpi(ranks=2, timeout=120, unit="s")
def test_an_interrupted_run_is_resumed(tmp_path):
    path, told = shared_path(tmp_path), []
    plans = Plans(INPUTS, "heuristic", None, LIMITS)

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(WORLD, None, plans, path, step=interrupt, warn=told.append)
    assert WORLD.rank or told.pop() == (
        f"interrupted: 1 input in {partial_file(path)}; the same command goes on from there"
    )
    WORLD.Barrier()
    assert not path.exists()
    assert [p.nbytes for p in read(partial_file(path)).points] == [1024]
    steps = []
    found = tune(WORLD, None, plans, path, step=lambda *one: steps.append(one), warn=told.append)
    assert found.complete
    assert len(steps) == 1, "the first input is known"
    assert len(found.table.points) == 2
    assert WORLD.rank or "resumed: 1 known input" in told[0]
    WORLD.Barrier()
    assert not partial_file(path).exists()


def test_inputs_for_which_nothing_was_compared_are_left(tmp_path, monkeypatch):
    timing = Estimate(1e-6, 1e-6, 1e-6, 9)

    def hurried(tuner, one, seconds):
        return Point(tuner.key(one), one.nbytes, True, (), timing, complete=False)

    monkeypatch.setattr(Tuner, "_tune", hurried)
    path, steps = tmp_path / "tuned.json", []
    found = tune(
        MPI.COMM_SELF, None, Plans(INPUTS), path, step=lambda *one: steps.append(one), warn=print
    )
    assert found.left == INPUTS
    assert not found.complete
    assert found.table.points == ()
    assert not path.exists(), "there is no point to keep"
    assert len(steps) == len(INPUTS)


def unusable():
    """Return tables that are no use, and what is said of them."""
    return {
        "{": "damaged, not JSON",
        json.dumps({"format": "han-choices", "version": 9}): "version 9, this han reads version 2",
        as_text(of_points((), replace(fingerprint(), cores=999))): "another machine: cores",
    }


@pytest.mark.mpi(ranks=2, timeout=120, unit="s")
def test_a_table_that_cannot_take_the_points_is_told_of_before_anything_runs(tmp_path):
    path, other = shared_path(tmp_path), "name another file with --out, or remove this one"
    other_transport = as_text(of_points((), replace(fingerprint(), transport="x")))
    for text, said in {**unusable(), other_transport: "other conditions: transpor"}.items():
        if not WORLD.rank:
            path.write_text(text)
        WORLD.Barrier()
        with pytest.raises(han.ArgumentError, match=f"{said}.*; {other}"):
            tune(WORLD, None, Plans(INPUTS, "exhaustive"), path)
        assert WORLD.rank or path.read_text() == text
        assert not partial_file(path).exists()
        WORLD.Barrier()


def test_what_a_table_cannot_take_is_in_the_partial_file(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "write", Mock(side_effect=TunedError("no room")))
    keeper = session.Keeper(tmp_path / "tuned.json", fingerprint(), True, print)
    timing = Estimate(1e-6, 1e-6, 1e-6, 9)
    key = MeasuredCall("bcast", "", 1, 2, ("node", "network"))
    keeper.add(Point(key, 64, True, (), timing, complete=False))
    assert [p.complete for p in read(partial_file(keeper.path)).points] == [False]
    assert keeper.finish(True) == f"no room; what was found is in {partial_file(keeper.path)}"
    assert [p.nbytes for p in read(partial_file(keeper.path)).points] == [64]
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(session, "write_whole", Mock(side_effect=full))
    told = "No space left on device; make room there, or name another file with --out"
    assert keeper.finish(True).endswith(f".partial: cannot be written: {told}")
    assert [p.nbytes for p in read(partial_file(keeper.path)).points] == [64], "the old one stays"


def interrupted(path, plans, after=1, **how):
    """Interrupt a run after some inputs; return the sizes in the partial file, by collective."""
    left = iter(range(after - 1))

    def step(*_):
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(MPI.COMM_SELF, None, plans, path, step=step, warn=print, **how)
    return {(p.key.collective, p.nbytes) for p in read(partial_file(path)).points}


@pytest.fixture
def searches(monkeypatch):
    """Replace searches; return the inputs that were searched. Those of "task" are not complete."""
    made = []

    def search(tuner, one, seconds):
        made.append(one)
        timing, whole = Estimate(1e-6, 1e-6, 1e-6, 9), tuner.plans.strategy != "task"
        candidate = Candidate(Use("whole", "dataflow", {}), timing)
        told = {"strategy": tuner.plans.strategy, "tried": 2, "complete": whole}
        return Point(tuner.key(one), one.nbytes, True, (candidate,), timing, **told)

    monkeypatch.setattr(Tuner, "_tune", search)
    return made


@pytest.mark.parametrize(
    ("changes", "fresh"),
    [({"limits": Limits(submodules=("solo",))}, False), ({"dtype": "int8"}, False),
     ({"op": "max"}, False), ({"strategy": "exhaustive"}, False), ({}, True)],
)  # fmt: skip
def test_a_run_in_other_conditions_searches_anew(tmp_path, searches, changes, fresh):
    path, inputs = tmp_path / "tuned.json", (Input("allreduce", 64), Input("allreduce", 128))
    plans = Plans(inputs, "heuristic", None, LIMITS)
    interrupted(path, plans)
    searches.clear()
    found = tune(
        MPI.COMM_SELF, None, replace(plans, **changes), path, fresh=fresh, warn=lambda _: None
    )
    assert {*searches} == {*inputs}
    assert found.complete
    assert not partial_file(path).exists()


@pytest.mark.parametrize("change", [{"transport": "x"}, {"quota": 0.5}, {"han": "0.0.1"}])
def test_a_run_of_other_versions_or_conditions_of_the_machine_is_not_resumed(
    tmp_path, searches, change
):
    path, plans = tmp_path / "tuned.json", Plans(INPUTS, "heuristic", None, LIMITS)
    interrupted(path, plans)
    part = partial_file(path)
    part.write_text(as_text(replace(read(part), machine=replace(fingerprint(), **change))))
    searches.clear()
    found = tune(MPI.COMM_SELF, None, plans, path, warn=lambda _: None)
    assert {*searches} == {*INPUTS}
    assert all(p.machine is None for p in found.table.points)


def test_what_another_interrupted_run_found_stays(tmp_path, searches):
    path = tmp_path / "tuned.json"
    first, second = (
        Plans((Input(name, 64), Input(name, 128)), "heuristic", None, LIMITS)
        for name in ("bcast", "allreduce")
    )
    assert interrupted(path, first) == {("bcast", 64)}
    assert interrupted(path, second) == {("bcast", 64), ("allreduce", 64)}
    told = []
    tune(MPI.COMM_SELF, None, second, path, warn=told.append)
    assert {p.key.collective for p in read(path).points} == {"allreduce"}
    assert {p.key.collective for p in read(partial_file(path)).points} == {"bcast"}
    assert any(one == f"of other runs: 1 input in {partial_file(path)}" for one in told)
    searches.clear()
    tune(MPI.COMM_SELF, None, first, path, warn=told.append)
    assert searches == [Input("bcast", 128)]
    assert len(read(path).points) == 4
    assert not partial_file(path).exists()


def test_searches_that_were_not_complete_are_kept_and_go_on(tmp_path, searches):
    path, inputs = tmp_path / "tuned.json", tuple(Input("bcast", 64 << k) for k in range(3))
    plans = Plans(inputs, "task", None, LIMITS)
    assert len(interrupted(path, plans, after=2)) == 2
    searches.clear()
    found = tune(MPI.COMM_SELF, None, replace(plans, budget=0.0), path, warn=print)
    assert len(found.table.points) == len(read(path).points) == 2
    assert len(found.left) == 1
    assert searches == []
    tune(MPI.COMM_SELF, None, plans, path, warn=print)
    assert {*searches} == {*inputs}


@pytest.mark.mpi(ranks=2, timeout=120, unit="s")
def test_tables_that_are_no_use_are_told_of_on_one_rank(tmp_path):
    path = shared_path(tmp_path)
    for text, said in unusable().items():
        if not WORLD.rank:
            path.write_text(text)
        WORLD.Barrier()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            comm = han.Comm(WORLD.Dup(), {"tuned": str(path)})
        heard = [str(one.message) for one in caught if "tuned table" in str(one.message)]
        assert len(heard) == (WORLD.rank == 0)
        assert all(said in one and "built-in choices are used" in one for one in heard)
        total = np.empty(3)
        comm.Allreduce(np.ones(3), total)
        assert np.all(total == 2)
        comm.Free()
        WORLD.Barrier()


@pytest.mark.mpi(ranks=2, timeout=120, unit="s")
def test_ranks_that_find_different_tables_use_none(tmp_path, monkeypatch):
    home = tmp_path / f"home{WORLD.rank}"
    folder = home / "han" / "tuned"
    folder.mkdir(parents=True)
    if WORLD.rank:
        (folder / "a.json").write_text(as_text(of_points((), fingerprint())))
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        comm = han.Comm(WORLD.Dup(), {})
    assert comm._han.parts.planner.tuned is None
    assert "found another tuned table than rank 0" in comm._han.parts.given.tuned.about
    assert comm._han.parts.heritage.given.settings.tuned == "", "children have none either"
    comm.Barrier()
    comm.Free()
