"""Traces and explanations of a communicator of one rank."""

import subprocess
import sys

import numpy as np
import pytest
from mpi4py import MPI
from processes import python
from threaded import run_in_threads, switching

import han
from han import _native
from han.common.errors import SetupError
from han.trace.recording import EVENT
from han.trace.timeline_files import load


@pytest.fixture
def alone(alone):
    comm = han.Comm(MPI.COMM_SELF.Dup())  # with new engines, whose calls are counted from 0
    yield comm
    comm.Free()


def test_a_rank_that_is_alone_is_traced(alone):
    with alone.trace() as trace:
        alone.Allreduce(np.ones(4), np.empty(4))
        alone.Bcast(np.ones(4))
        alone.Barrier()
    (time,) = trace.times
    assert (time.task, time.collective, time.nbytes) == ("copy", "allreduce", 32)
    assert time.begin <= time.start <= time.end
    assert 0 < time.copying <= time.end - time.begin + 1e-9  # seconds
    assert time.reducing == 0
    with alone.trace() as trace:
        pass
    assert trace.times == []


def test_times_are_those_of_the_monotonic_clock(alone):
    import time

    before = time.monotonic()
    with alone.trace() as trace:
        alone.Allreduce(np.ones(4), np.empty(4))
    (task,) = trace.times
    assert before - 1e-5 <= task.begin <= task.end <= time.monotonic() + 1e-5


def test_tasks_without_room_are_counted(alone):
    with alone.trace(events=3) as trace:
        for _ in range(5):
            alone.Allreduce(np.ones(4), np.empty(4))
    assert len(trace.times) == 3
    assert trace.dropped == 2
    assert trace.timeline().dropped == 2
    with pytest.raises(han.ArgumentError, match="events = 0"):
        alone.trace(events=0)


def test_nested_traces_record_independently(alone):
    def call():
        alone.Allreduce(np.ones(4), np.empty(4))

    with alone.trace() as outer:
        call()
        with alone.trace() as inner:
            call()
        call()
    assert [t.call for t in inner.times] == [1]
    assert [t.call for t in outer.times] == [0, 1, 2]


def test_threads_may_trace_at_the_same_time(alone):
    traces = []

    def work():
        for _ in range(200):
            with alone.trace(events=16) as trace:
                pass
            traces.append(trace)

    with switching():
        run_in_threads(work, (), (), ())
    alone.Allreduce(np.ones(4), np.empty(4))
    assert len(traces) == 600
    assert all(trace.times == [] for trace in traces)
    assert alone._han.parts.engines.own.issued == 1


def test_an_engine_releases_the_memory_of_a_trace(alone):
    """Threads replace the memory of an engine: each reference is released exactly once."""
    engine = alone._han.parts.engines.own
    memories = [np.zeros(16, EVENT) for _ in range(3)]
    before = [sys.getrefcount(memory) for memory in memories]

    def work():
        for k in range(20_000):
            engine.trace(memories[k % 3])

    with switching():
        run_in_threads(work, (), (), ())
    engine.trace(None)
    assert [sys.getrefcount(memory) for memory in memories] == before


def test_traces_need_not_nest(alone):
    def call():
        alone.Allreduce(np.ones(4), np.empty(4))

    first, second, third = alone.trace(), alone.trace(), alone.trace(events=1)
    first.__enter__()
    call()
    second.__enter__()
    call()
    first.__exit__()
    third.__enter__()
    call()
    second.__exit__()
    call()
    third.__exit__()
    call()
    assert [t.call for t in first.times] == [0, 1]
    assert [t.call for t in second.times] == [1, 2]
    assert [t.call for t in third.times] == [2]
    assert (first.dropped, second.dropped, third.dropped) == (0, 0, 1)


def test_a_trace_that_is_entered_twice_at_once_is_refused(alone):
    with alone.trace() as trace, pytest.raises(han.ArgumentError, match="entered already"), trace:
        pass


def test_freed_persistent_requests_stay_in_the_trace(alone):
    send, recv = np.ones(4), np.empty(4)
    early = alone.Allreduce_init(send, recv)
    with alone.trace() as trace:
        early.Start()
        early.Wait()
        with alone.Allreduce_init(send, recv) as freed:
            for _ in range(2):
                freed.Start()
                freed.Wait()
        dropped = alone.Allreduce_init(send, recv)
        dropped.Start()
        dropped.Wait()
        del dropped
    early.Free()
    calls = [(1, 0), (2, 0), (2, 1), (2, 2)]  # the last request took over the slot of the freed one
    assert [(t.request, t.call) for t in trace.times] == calls
    assert {t.collective for t in trace.times} == {"allreduce"}


def test_a_timeline_is_merged_after_the_block(alone, tmp_path):
    with alone.trace() as trace:
        alone.Allreduce(np.ones(4), np.empty(4))
        with pytest.raises(han.ArgumentError, match="after the trace's with block"):
            trace.timeline()
    timeline = trace.timeline()
    assert timeline.times == tuple(trace.times)
    assert (timeline.title, timeline.uncertainty) == ("1 rank on 1 node", 0)
    trace.save(tmp_path)
    (path,) = tmp_path.iterdir()
    assert load(path) == timeline
    with pytest.raises(SetupError, match="the writing of a trace to /nowhere"):
        trace.save("/nowhere")


def test_an_engine_refuses_memory_smaller_than_a_header(alone):
    engine = alone._han.parts.engines.own
    with pytest.raises(ValueError, match="at least 72 bytes"):
        engine.trace(bytearray(63))
    with pytest.raises((TypeError, BufferError)):
        engine.trace(b"read only" * 64)
    assert isinstance(engine, _native.Engine)


PROGRAM = """
import contextlib, sys, numpy as np, han
from mpi4py import MPI
comm = han.Comm(MPI.COMM_SELF.Dup())
with comm.trace() if "inside" in sys.argv else contextlib.nullcontext():
    comm.Allreduce(np.ones(4), np.empty(4))
    if "inside" in sys.argv:
        with comm.trace():
            comm.Free()
if "free" in sys.argv:
    comm.Free()
if "fail" in sys.argv:
    raise SystemExit("on purpose")
"""


@pytest.mark.parametrize("how", ["free", "exit", "fail", "inside"])
def test_files_are_written_however_a_program_ends(tmp_path, how):
    done = python("-c", PROGRAM, how, HAN_TRACE=str(tmp_path))
    assert (done.returncode, done.stderr.strip()) == (
        (1, "on purpose") if how == "fail" else (0, "")
    )
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("trace-")
    (time,) = load(path).times
    assert time.collective == "allreduce"


def test_a_folder_removed_before_the_end_is_reported(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    program = f"import os\n{PROGRAM}\nos.rmdir({str(folder)!r})"
    done = python("-c", program, HAN_TRACE=str(folder))
    assert f"han: HAN_TRACE: no trace is written in {folder}: No such file" in done.stderr


def test_a_full_disk_is_reported_and_changes_nothing_else(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(tmp_path)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a small file system: {made.stderr.strip()}")
    try:
        (tmp_path / "full").write_bytes(bytes(4096))
        for how in ("free", "exit", "fail"):
            done = python("-c", PROGRAM, how, HAN_TRACE=str(tmp_path))
            assert done.returncode == (how == "fail")
            text = f"han: HAN_TRACE: no trace is written in {tmp_path}: No space left on device"
            assert text in done.stderr.splitlines()
            assert [path.name for path in tmp_path.iterdir()] == ["full"], "nothing by halves"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_folder_that_cannot_take_traces_is_refused_at_once(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    world = MPI.COMM_SELF.Dup()
    for place in (file, file / "below"):
        monkeypatch.setenv("HAN_TRACE", str(place))
        with pytest.raises(han.ConfigError, match=f"HAN_TRACE = '{place}': the folder cannot be"):
            han.Comm(world)
    monkeypatch.setattr(han.rc, "trace", file / "nor-this")
    with pytest.raises(han.ConfigError, match=r"han\.rc\.trace = .*nor-this': the folder cannot"):
        han.Comm(world)
    monkeypatch.setattr(han.rc, "trace", "")  # off, although HAN_TRACE is set
    comm = han.Comm(world)
    assert comm._han.parts.tracing.file is None
    comm.Free()


def test_a_folder_that_does_not_exist_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("HAN_TRACE", str(tmp_path / "new" / "one"))
    comm = han.Comm(MPI.COMM_SELF.Dup())
    comm.Barrier()
    comm.Allreduce(np.ones(3), np.empty(3))
    comm.Free()
    assert len([*(tmp_path / "new" / "one").iterdir()]) == 1


def test_explain_takes_sizes_with_units(alone):
    assert str(alone.explain("bcast", "4MiB")) == str(alone.explain("bcast", 4 << 20))
    for wrong, error in (("4 apples", han.ArgumentError), (4.5, han.ArgumentTypeError)):
        with pytest.raises(error, match="nbytes"):
            alone.explain("bcast", wrong)
    with pytest.raises(han.ArgumentError, match="did you mean 'allreduce'"):
        alone.explain("alreduce", 8)
    with pytest.raises(han.ArgumentError, match="a size is missing"):
        alone.explain("bcast")
    assert "in short" in str(alone.explain("barrier"))
