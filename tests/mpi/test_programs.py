"""Unchanged programs under ``han run`` and ``han.install``, and their statistics."""

import json
import time

import numpy as np
import pytest
from _jobs import launch
from _support import FLAT, TWO_BY_TWO, new_comm, opened
from mpi4py import MPI
from tensors import OnDevice

import han
from han.counted_calls import DEVICE
from han.model.statistics import UNKNOWN
from han.ranks import last_words as _last_words
from han.ranks.last_words import hear, tell
from han.statistics import Counting

usual = pytest.mark.mpi(ranks=2, timeout=60, unit="s")
HAN_RUN = ["-m", "han", "run"]
FOR_EVER = 1e6  # seconds

# The program's files; each rank writes what it found to a file, as launchers mix their output.
LIBRARY = """
from mpi4py.MPI import COMM_WORLD
from mpi4py import MPI as library

class Settings:
    world, alone = library.COMM_WORLD, library.COMM_SELF
"""
PROGRAM = """
import json, sys
import library
from mpi4py import MPI
import numpy as np

world, alone = MPI.COMM_WORLD, MPI.COMM_SELF
found = {
    "classes": [f"{type(c).__module__}.{type(c).__name__}" for c in (world, alone)],
    "kept": [library.COMM_WORLD is world, library.Settings.world is world,
             library.Settings.alone is alone],
    "argv": sys.argv, "path": sys.path[0], "name": __name__,
}
one, total = np.ones(1000), np.empty(1000)
for _ in range(10):
    world.Allreduce(one, total)
assert (total == world.size).all()
for _ in range(3):
    assert world.bcast({"a": world.rank}) == {"a": 0}
half = world.Split(world.rank % 2)
half.Allreduce(MPI.IN_PLACE, total[:4])
ring = world.Create_cart([world.size], [True])
ring.Neighbor_allgather(one, np.empty(2000))
ring.Free()
blocks = [1] * world.size, [8 * rank for rank in range(world.size)]
types = [MPI.DOUBLE] * world.size
world.Alltoallw([one, blocks, types], [total, blocks, types])
world.Iallreduce(one, total).Wait()
request = world.Allreduce_init(one, total)
for _ in range(5):
    request.Start()
    request.Wait()
request.Free()
alone.Allreduce(one, total)
assert (total == 1).all()
world.Barrier()
with open(f"found-{world.rank}", "w") as file:
    json.dump(found, file)
sys.exit(int(sys.argv[1]))
"""
KIB = 8000  # bytes of 1000 numbers
CALLS = {  # (name, largest size, ranks, by) -> (calls, bytes)
    ("Allreduce", 16384, 3, "han"): (10, 10 * KIB),
    ("Allreduce", 16384, 1, "han"): (3, 3 * KIB),
    ("Allreduce", 64, 2, "han"): (1, 32),
    ("Allreduce", 64, 1, "han"): (1, 32),
    ("Iallreduce", 16384, 3, "han"): (1, KIB),
    ("Allreduce_init", 16384, 3, "han"): (1, KIB),
    ("Allreduce_init: Start", 16384, 3, "han"): (5, 5 * KIB),
    ("Barrier", 0, 3, "han"): (1, 0),
    ("Neighbor_allgather", 16384, 3, "han"): (1, KIB),
    ("Alltoallw", 64, 3, "han"): (1, 8),
    ("bcast", None, 3, "han"): (3, None),
}
OWN_COMM = """
import sys
from mpi4py import MPI
import numpy as np
import han
comm = han.Comm(MPI.COMM_WORLD)
total = np.empty(3)
for _ in range(4):
    comm.Allreduce(np.ones(3), total)
half = comm.Split(comm.rank % 2)
half.Bcast(total)
half.Free()
if sys.argv[1:] == ["finalize"]:
    MPI.Finalize()
"""
INSTALL = """
import json, sys, types, warnings
from mpi4py import MPI
world, alone = MPI.COMM_WORLD, MPI.COMM_SELF
library = sys.modules["early"] = types.ModuleType("early")
library.WORLD, library.OTHER = world, world.Dup()
import han
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with han.install("virtual-2x2") as installed:
        assert type(MPI.COMM_WORLD) is type(MPI.COMM_SELF) is han.Comm
        first = MPI.COMM_WORLD
        assert first == world and "2 ranks" in repr(installed)
        assert han.install() and MPI.COMM_WORLD is first
        assert first.explain("allreduce", 8).graph
        try:
            han.install("flat")
        except han.ConfigError as error:
            assert "another configuration" in str(error)
assert MPI.COMM_WORLD is world and MPI.COMM_SELF is alone
first.Barrier()
han.uninstall()
texts = [str(one.message) for one in caught if "han.install" in str(one.message)]
if world.rank:
    assert not texts, texts
else:
    (text,) = texts
    named = text.partition(" had ")[0]
    assert "early.WORLD" in named and "__main__.world" in named and "__main__.alone" in named
    assert "early.OTHER" not in named and "han.comm" not in named
"""


def write(folder, **sources):
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)


# ---- han run ----------------------------------------------------------------------------------


def test_a_program_runs_unchanged_and_its_calls_are_counted(tmp_path):
    write(tmp_path, program=PROGRAM, library=LIBRARY)
    stats = tmp_path / "stats.json"
    done = launch(tmp_path, 3, *HAN_RUN, "--json", stats, "program.py", "3", "--stats")
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "# han" not in done.stderr
    found = [json.loads((tmp_path / f"found-{rank}").read_text()) for rank in range(3)]
    assert found == [
        {
            "classes": ["han.comm.Comm"] * 2, "kept": [True] * 3,
            "argv": ["program.py", "3", "--stats"], "path": str(tmp_path), "name": "__main__",
        }
    ] * 3  # fmt: skip
    record = json.loads(stats.read_text())
    rows = {(r["call"], r["most_bytes"], r["ranks"], r["by"]): r for r in record["rows"]}
    assert {key: (r["calls"], r["nbytes"]) for key, r in rows.items()} == CALLS
    assert all(r["callers"] == r["ranks"] for r in rows.values() if r["ranks"] > 1)
    assert all(0 < r["least"] <= r["median"] <= r["most"] for r in rows.values())
    assert record["calls"] == sum(calls for calls, _ in CALLS.values())
    assert record["calls_of_han"] == record["calls"]


def test_a_module_prints_on_all_ranks_and_its_statistics_once(tmp_path):
    (tmp_path / "package").mkdir()
    write(tmp_path / "package", __main__="from package import work", __init__="", work=OWN_COMM)
    with open(tmp_path / "package" / "work.py", "a") as file:
        file.write("print(f'<{sys.argv[1:]} {comm is MPI.COMM_WORLD} {comm.rank}>')\n")
    done = launch(tmp_path, 2, *HAN_RUN, "--stats", "-m", "package", "--stats", HAN_STATS="0")
    assert done.returncode == 0, done.stderr
    assert {f"<['--stats'] False {rank}>" in done.stdout for rank in (0, 1)} == {True}
    assert done.stderr.count("# han served 6 of 6 calls") == 1, done.stderr


def test_an_exception_is_printed_and_fails_the_job(tmp_path):
    code = "from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); raise KeyError('mine')"
    done = launch(tmp_path, 2, *HAN_RUN, "-c", code)
    assert done.returncode
    assert "Traceback" in done.stderr
    assert "KeyError: 'mine'" in done.stderr


# ---- HAN_STATS --------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["finalize"]], ids=["exit", "finalize"])
def test_a_program_with_a_comm_of_its_own_is_counted(tmp_path, arguments):
    write(tmp_path, program=OWN_COMM)
    done = launch(tmp_path, 2, "program.py", *arguments, HAN_STATS="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("# han: collectives of 2 ranks.") == 1, done.stderr
    assert done.stderr.count("# han served 6 of 6 calls (100.0 % of the seconds)") == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("Allreduce "))
    assert line.split()[:6] == ["Allreduce", "<=", "64B", "2", "han", "4"]


def test_a_master_that_takes_any_message_gets_only_those_of_the_program(tmp_path):
    code = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
if comm.rank == 0:
    import time
    time.sleep(0.5)
    got = [comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG) for _ in range(comm.size - 1)]
    assert sorted(got) == [1, 2], got
else:
    time = comm.rank == 2 and __import__("time").sleep(1.5)
    comm.send(comm.rank, 0, tag=comm.rank)
"""
    done = launch(tmp_path, 3, *HAN_RUN, "--stats", "-c", code)
    assert done.returncode == 0, done.stderr
    assert "# han served 1 of 1 calls" in done.stderr


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
@pytest.mark.leaves("a message of a rank that came too late")
def test_a_rank_that_does_not_come_is_not_waited_for(mpi_ranks, monkeypatch):
    comm = MPI.COMM_WORLD.Dup()
    monkeypatch.setattr(_last_words, "WAIT", FOR_EVER)
    if comm.rank == 2:
        MPI.COMM_WORLD.recv(source=0)  # until rank 0 has waited
    if comm.rank:
        tell(comm, {"rank": comm.rank})
    else:
        assert hear(comm, time.monotonic() + 1.0) == {1: {"rank": 1}}
        MPI.COMM_WORLD.send(None, 2)


def test_ranks_that_do_not_wait_end_at_once(mpi_ranks, monkeypatch):
    monkeypatch.setattr(_last_words, "WAIT", FOR_EVER)
    comm = MPI.COMM_WORLD.Dup()
    if comm.rank == 1:
        tell(comm, "x" * 100_000, waits=False)
    MPI.COMM_WORLD.Barrier()
    if comm.rank == 0:
        assert hear(comm, time.monotonic() + FOR_EVER) == {1: "x" * 100_000}
    MPI.COMM_WORLD.Barrier()


def test_ranks_agree_about_statistics(mpi_ranks, monkeypatch):
    world = MPI.COMM_WORLD.Dup()
    for value, said in (("maybe", "HAN_STATS = 'maybe'"), ("1", "HAN_STATS differs between")):
        monkeypatch.setenv("HAN_STATS", value if world.rank == 1 else "")
        with pytest.raises(han.ConfigError, match=said):
            han.Comm(world)


@pytest.fixture
def counting():
    """Count the calls of all communicators during a test."""
    counts = Counting()
    counts.start()
    yield counts
    counts.stop()


@pytest.mark.mpi(ranks=4, timeout=60, unit="s")
def test_calls_left_to_mpi_are_counted_with_the_reason(mpi_ranks, counting):
    one, four = np.ones(2), np.empty(8)
    for levels in (FLAT, TWO_BY_TWO):
        with opened(new_comm(levels)) as comm:
            comm.Allgather(one, four)
            comm.Ialltoall(four, four.copy()).Wait()
            comm.Bcast(one)
            comm.scan(comm.rank)
            comm.Alltoallv([four, [2] * 4], [four.copy(), [2] * 4])
            with pytest.raises(han.ArgumentError):
                comm.Bcast(object())
    found = {key: counts.calls for key, counts in counting.record.items()}
    assert sum(found.values()) == 12, found
    assert {(key.call, key.why) for key in found} >= {
        ("Allgather", ""), ("Ialltoall", ""), ("Bcast", ""), ("scan", ""),
        ("Alltoallv", ""),
    }  # fmt: skip
    assert {key.most_bytes for key in found} == {64, UNKNOWN}
    assert {key.ranks for key in found} == {4}


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_calls_on_memory_of_a_device_are_counted_with_the_reason(mpi_ranks, counting, comm):
    one, total = OnDevice(np.ones(4)), OnDevice(np.empty(4))
    comm.Allreduce(one, total)
    comm.Iallreduce(one, total).Wait()
    comm.Allreduce_init(one, total).Free()
    comm.Allreduce(np.ones(4), np.ones(4))
    whys = {(key.call, key.most_bytes, key.why) for key in counting.record}
    assert whys == {
        ("Allreduce", 64, DEVICE), ("Iallreduce", 64, DEVICE), ("Allreduce_init", 64, DEVICE),
        ("Allreduce", 64, ""),
    }  # fmt: skip


OVERLAPPING = """
import numpy as np
from mpi4py import MPI
import han

world, total = MPI.COMM_WORLD, np.empty(1)
for ranks in {groups}:
    if world.rank in ranks:
        group = world.Get_group().Incl(ranks)
        comm = han.Comm(world.Create_group(group))
        comm.Allreduce(np.ones(1), total)
        assert total[0] == len(ranks)
"""


@pytest.mark.parametrize(
    "groups", [((0, 1), (1, 2)), ((1, 2), (0, 1)), ((0, 1), (2, 3), (2, 1))], ids=str
)
def test_ranks_of_communicators_that_overlap_report_once_together(tmp_path, groups):
    size, calls = 1 + max(map(max, groups)), len(groups)
    code = OVERLAPPING.replace("{groups}", str(groups))
    done = launch(tmp_path, size, "-c", code, HAN_STATS="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"# han: collectives of {size} ranks") == 1, done.stderr
    assert f"# han served {calls} of {calls} calls" in done.stderr, done.stderr
    assert "without rank" not in done.stderr


def test_methods_are_as_before_after_counting(mpi_ranks):
    before = {
        name: getattr(han.Comm, name) for name in ("Allreduce", "Alltoallw", "bcast", "_mpi4pys")
    }
    counts = Counting()
    counts.start()
    assert all(getattr(han.Comm, name) is not method for name, method in before.items())
    assert han.Comm.Allreduce.__doc__ == before["Allreduce"].__doc__
    counts.stop()
    assert all(getattr(han.Comm, name) == method for name, method in before.items())
    assert "Alltoallw" not in vars(han.Comm)


# ---- han.install ------------------------------------------------------------------------------


def test_install_from_inside(tmp_path):
    write(tmp_path, program=INSTALL)
    done = launch(tmp_path, 2, "program.py")
    assert done.returncode == 0, done.stderr


def test_install_needs_mpi_that_runs(tmp_path):
    code = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
import han

def tell():
    try:
        han.install()
    except han.HanError as error:
        print(error)

tell()
MPI.Init()
MPI.Finalize()
tell()
"""
    done = launch(tmp_path, 1, "-c", code)
    first, second = done.stdout.splitlines()
    assert "MPI is not initialized" in first
    assert "call MPI.Init()" in first
    assert "MPI is finalized" in second
