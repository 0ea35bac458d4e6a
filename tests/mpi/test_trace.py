"""Traces of several ranks: on one clock, complete, and in a possible order."""

import json
import os
import shutil
import tempfile
import time
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from _support import WORLD, run
from mpi4py import MPI
from typer.testing import CliRunner

import han
from han.cli.main import app
from han.common.errors import SetupError
from han.model import loops
from han.model.timeline import shares
from han.ranks import clocks
from han.ranks.meeting import TAG_LAST
from han.runtime.alike import ALIKE
from han.tasks import samples
from han.tasks.lower import lower
from han.tasks.samples import lower_with_loops
from han.trace.timeline_files import load
from han.trace.timeline_parts import merge
from han.tuning import planner

usual = pytest.mark.mpi(ranks=4, timeout=120, unit="s")
MIB = np.ones(1 << 20, np.uint8)


@pytest.fixture
def folder():
    """Yield a folder that rank 0 has created for all ranks, as pytest's differ between ranks."""
    path = WORLD.bcast(tempfile.mkdtemp(prefix="han-trace-") if WORLD.rank == 0 else None)
    yield Path(path)
    WORLD.Barrier()
    if WORLD.rank == 0:
        shutil.rmtree(path)


def trace_of(comm, calls=1, **arguments):
    with comm.trace(**arguments) as trace:
        for _ in range(calls):
            comm.Bcast(MIB)
    return trace


def named(times, task, rank, call):
    return [t for t in times if (t.task, t.rank, t.call) == (task, rank, call)]


def segments(times, kind, rank, call):
    return [t for t in times if (t.kind, t.rank, t.call) == (kind, rank, call)]


def test_a_broadcast_on_two_levels_is_complete_and_in_order(mpi_ranks):
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config="virtual-2x2")
    comm.Bcast(MIB)
    trace = trace_of(comm, calls=3)
    found = comm.gather(trace.times)
    timeline = trace.timeline()
    assert (timeline is not None) == (comm.rank == 0)
    if timeline is None:
        return
    assert sorted(timeline.times, key=repr) == sorted(chain(*found), key=repr)
    assert (timeline.nodes, timeline.dropped) == ((0, 0, 1, 1), 0)
    assert {t.call for t in timeline.times} == {1, 2, 3}
    count = len(segments(timeline.times, "sb", 0, 1))
    assert count > 1
    for call in (1, 2, 3):
        for rank in range(4):
            check_rank(timeline.times, rank, call, count)
        check_data(timeline, call, count)
    for share in shares(timeline).ranks.values():
        assert share.waiting + share.copying + share.reducing == pytest.approx(1)
        assert share.copying > 0


def check_rank(times, rank, call, count):
    """Check that every segment is there, in order, and that a task contains its parts."""
    for kind in ("ib", "sb") if rank in (0, 2) else ("sb",):
        mine = segments(times, kind, rank, call)
        assert [t.task for t in mine] == [f"{kind}({k})" for k in range(count)]
        assert all(a.end <= b.begin for a, b in pairwise(mine))
        for t in mine:
            assert t.begin <= t.start <= t.end
            assert t.copying + t.reducing <= (t.end - t.begin) * 1.001 + 1e-7


def check_data(timeline, call, count):
    """Check that no data arrives before it is sent, within the uncertainty of the clocks."""
    slack = timeline.uncertainty + 1e-6
    for kind, root, child in (("sb", 0, 1), ("sb", 2, 3), ("ib", 0, 2), ("ib", 0, 3)):
        for k in range(count):
            (sent,) = named(timeline.times, f"{kind}({k})", root, call)
            (came,) = named(timeline.times, f"{'ib' if child == 2 else 'sb'}({k})", child, call)
            assert came.end >= sent.start - slack, (kind, root, child, k)


def test_clocks_that_start_at_other_times_are_put_on_one(mpi_ranks, monkeypatch):
    """Ranks 2 and 3 get a clock of their own that is hours behind."""
    away = 9_876_543_210_000
    rank = MPI.COMM_WORLD.rank
    real = time.monotonic_ns
    if rank >= 2:
        monkeypatch.setattr(clocks, "identity", lambda: ("elsewhere", "", ""))
        monkeypatch.setattr(clocks.time, "monotonic_ns", lambda: real() - away)
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config="virtual-2x2")
    requests = [comm.Iallreduce(np.ones(1 << 14), np.empty(1 << 14)) for _ in range(3)]
    first, second = comm._han.parts.tracing.read_clock(), comm._han.parts.tracing.read_clock()
    han.Request.Waitall(requests)
    for reading in (first, second):
        if rank < 2:
            assert (reading.offset, reading.uncertainty) == (0, 0)
        else:
            assert reading.uncertainty > 0
            assert abs(reading.offset - away) <= reading.uncertainty
    assert second.at >= first.at
    everyone = comm.allgather((first.offset, first.uncertainty))
    assert everyone[2] == everyone[3]


def test_a_clock_read_at_both_ends_tells_the_drift(mpi_ranks, monkeypatch):
    if MPI.COMM_WORLD.rank == 1:
        monkeypatch.setattr(clocks, "identity", lambda: ("elsewhere", "", ""))
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config="virtual-2x2")
    trace = trace_of(comm, align=True)
    timeline = trace.timeline()
    assert len(trace._clock.readings) == 2
    if timeline is not None:
        assert 0 < timeline.uncertainty < 1
        assert timeline.ranks == [0, 1, 2, 3]


def test_whoever_fails_to_save_is_named_by_all(mpi_ranks, folder):
    comm = han.Comm(MPI.COMM_WORLD.Dup())
    trace = trace_of(comm)
    with pytest.raises(SetupError, match="rank 1 raised"):
        trace.save(folder if comm.rank != 1 else folder / "none")
    trace.save(folder)
    comm.Barrier()
    (timeline,) = merge(load(path) for path in folder.glob("trace-*"))
    assert timeline.ranks == [0, 1, 2, 3]


@pytest.mark.any_library
def test_a_folder_of_traces_is_read_by_the_command(mpi_ranks, folder, monkeypatch):
    monkeypatch.setenv("HAN_TRACE", str(folder))
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config="virtual-2x2")
    comm.Bcast(MIB)
    with comm.Allreduce_init(np.ones(100), np.empty(100)) as request:
        run(request)
    requests = [comm.Iallreduce(np.ones(100), np.empty(100)) for _ in range(2)]
    han.Request.Waitall(requests)
    half = comm.Split(comm.rank % 2)
    half.Barrier()
    half.Free()
    comm.Free()
    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.rank == 0:
        check_folder(folder)
    MPI.COMM_WORLD.Barrier()


def check_folder(folder):
    assert len(list(folder.iterdir())) == 8
    picture = folder / "call.svg"
    done = CliRunner().invoke(app, ["trace", str(folder), "--json", "--plot", str(picture)])
    assert done.exit_code == 0, done.output
    records = json.loads(done.stdout)
    whole, *halves = sorted(records, key=lambda r: -len(r["shares"]["ranks"]))
    assert [len(r["shares"]["ranks"]) for r in records].count(2) == len(halves) == 2
    assert {row["collective"] for row in whole["streams"]} == {"bcast", "allreduce"}
    assert {row["kind"] for row in whole["streams"]} >= {"ib", "sb", "sr"}
    assert b"<svg" in picture.read_bytes()
    timelines = merge(load(path) for path in folder.glob("trace-*"))
    whole_times = next(line for line in timelines if len(line.nodes) == 4).times
    assert {(t.request, t.call) for t in whole_times} == {(0, 0), (0, 1), (0, 2), (1, 0)}


FOR_EVER = 1e6  # seconds: a rank that waits for so long does not end


@pytest.mark.mpi(ranks=3, timeout=120, unit="s")
def test_ranks_that_free_late_are_not_waited_for_and_do_not_wait(mpi_ranks, folder, monkeypatch):
    """Other ranks wait briefly for a late one, which learns at once that they have left."""
    monkeypatch.setenv("HAN_TRACE", str(folder))
    rank = MPI.COMM_WORLD.rank
    monkeypatch.setattr(clocks, "identity", lambda: (str(rank), "", ""))
    for late, there in ((None, [0, 1, 2]), (0, [0]), (2, [0, 1])):
        comm = han.Comm(MPI.COMM_WORLD.Dup())
        others = 0.5 if late == 2 else FOR_EVER
        monkeypatch.setattr(clocks, "WAIT_FOR_OTHERS", others)
        monkeypatch.setattr(clocks, "WAIT", 0.5 if late == 0 else FOR_EVER)
        if rank == late:
            for other in {0, 1, 2} - {late}:
                MPI.COMM_WORLD.recv(source=other)
        if late == 2 and rank == 0:
            comm._han.parts.health.meeting.comm.Probe(1, TAG_LAST)
        comm._han.parts.tracing.end()
        monkeypatch.setattr(comm._han.parts.tracing, "end", lambda: None)
        if late not in (None, rank):
            MPI.COMM_WORLD.send(None, late)
        found = MPI.COMM_WORLD.allgather(len(comm._han.parts.tracing.file.readings))
        assert found == [1 + (r in there) for r in range(3)], late
        comm.Free()


def test_bad_folders_are_refused_by_all_ranks(mpi_ranks, folder, monkeypatch):
    rank = MPI.COMM_WORLD.rank
    other, file = folder / "other", folder / "file"
    if rank == 0:
        other.mkdir()
        file.touch()
    MPI.COMM_WORLD.Barrier()
    cases = [
        (file / "none", "HAN_TRACE = '.*none': the folder cannot be made: Not a directory"),
        (file if rank == 2 else folder, "rank 2: HAN_TRACE = '.*file': the folder cannot"),
        (other if rank == 3 else folder, r"HAN_TRACE differs between ranks: rank\(s\) 3 have"),
        ("" if rank == 1 else folder, r"HAN_TRACE differs between ranks: rank\(s\) 1 have"),
    ]
    world = MPI.COMM_WORLD.Dup()
    for place, said in cases:
        monkeypatch.setenv("HAN_TRACE", str(place))
        with pytest.raises(han.ConfigError, match=said):
            han.Comm(world)
    monkeypatch.delenv("HAN_TRACE")
    comm = han.Comm(world)
    comm.Barrier()
    comm.Free()
    assert not list(folder.glob("trace-*")), os.listdir(folder)


@pytest.mark.mpi(ranks=3, timeout=120, unit="s")
@pytest.mark.leaves("a message of rank")
def test_a_rank_that_does_not_come_is_not_waited_for_for_ever(mpi_ranks):
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config={"wait": {"timeout": 1}})
    trace = trace_of(comm)
    if comm.rank == 2:
        MPI.COMM_WORLD.recv(source=0)
        return
    with pytest.raises(han.HanError, match=r"the comparison of clocks|rank \d"):
        trace.timeline()
    MPI.COMM_WORLD.Isend(bytearray(0), 2) if comm.rank else MPI.COMM_WORLD.send(None, 2)


def test_a_program_with_loops_has_the_trace_of_one_without(mpi_ranks, monkeypatch):
    def traced(change):
        monkeypatch.setattr(planner, "lower_with_loops", change)
        ALIKE.clear()
        comm = han.Comm(world.Dup(), config="virtual-2x2")
        comm.Allreduce(send, recv)
        with comm.trace() as trace:
            comm.Allreduce(send, recv)
        assert (recv == world.size).all()
        comm.Free()
        return sorted((t.task, t.call) for t in trace.times)

    world, made = MPI.COMM_WORLD, []
    monkeypatch.setattr(samples, "MANY", 64)
    monkeypatch.setattr(loops, "LEAST", 64)
    send, recv = np.ones(1 << 20), np.zeros(1 << 20)
    with_loops = traced(lambda *about: made.append(lower_with_loops(*about)) or made[-1])
    assert made[0].strides is not None
    assert len(with_loops) > 100
    assert traced(lower) == with_loops
