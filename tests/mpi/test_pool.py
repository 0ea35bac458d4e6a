"""The pool of ranks: it reports tests that fail or leave something, and then starts new ranks."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO

TESTS = Path(__file__).resolve().parents[1]
CONFTEST = """
import pytest, pool.job, pool.plugin

pool.job.GRACE = 2.0

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.addinivalue_line("markers", "own_job(reason): apart")
    config.addinivalue_line("markers", "leaves(text): on purpose")
    pool.plugin.register(config)
"""
PRELUDE = """
import os, signal, time
from pathlib import Path
import numpy as np
import pytest
from mpi4py import MPI

import han
from han import attached

WORLD = MPI.COMM_WORLD
on_two = pytest.mark.mpi(ranks=2, timeout=60, unit="s")

@pytest.fixture(autouse=True)
def note(request):
    with open(Path(__file__).with_name("pids"), "a") as file:
        file.write(f"{request.node.originalname} {os.getpid()}\\n")
"""


def start(folder: Path, source: str, output: IO[str], *options: str) -> subprocess.Popen[bytes]:
    """Start a pytest session with tests of this source."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_inner.py").write_text(PRELUDE + source)
    (folder / "pytest.ini").write_text("[pytest]\n")  # not that of the project
    environment = {k: v for k, v in os.environ.items() if k not in ("HAN_TEST_CASES", "COLUMNS")}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS / "helpers"), str(TESTS.parent)])
    environment["HAN_TEST_POOL"] = "yes"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [f"--rootdir={folder}", "-c", str(folder / "pytest.ini"), *options, str(folder)]
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)


def noted(folder: Path) -> list[tuple[str, int]]:
    """Return the name of each test that has begun, with the process that ran it."""
    path = folder / "pids"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(name, int(pid)) for name, pid in map(str.split, lines)]


class Outcome:
    """The output of a session under the pool, and the processes that ran its tests."""

    def __init__(self, folder: Path, source: str, *options: str) -> None:
        with (folder / "said").open("w+") as output:
            self.status = start(folder, source, output, *options).wait(280)
        self.text = (folder / "said").read_text()
        self.pids: dict[str, set[int]] = {}
        for name, pid in noted(folder):
            self.pids.setdefault(name, set()).add(pid)

    def shares(self, one: str, other: str) -> bool:
        """Return whether two tests ran in the same processes; they must share all or none."""
        both = self.pids[one] & self.pids[other]
        assert both in (set(), self.pids[one]), (one, other, self.pids)
        return bool(both)


LEFTOVERS = """
@on_two
def test_leaves_communicators(mpi_ranks):
    comm = han.Comm(WORLD.Dup())
    comm.Allreduce(np.ones(3), np.empty(3))

@on_two
def test_leaves_a_message(mpi_ranks):
    assert attached.kept(WORLD) is None
    if WORLD.rank:
        WORLD.isend("unheard", 0, 7)

@on_two
def test_leaves_a_variable(mpi_ranks):
    os.environ["HAN_TIMEOUT"] = str(WORLD.rank + 1)

@on_two
def test_leaves_descriptors(mpi_ranks):
    for _ in range(20):
        os.dup(1)

@on_two
@pytest.mark.leaves("changed: HAN_TIMEOUT")
def test_leaves_another_variable(mpi_ranks):
    os.environ["HAN_TIMEOUT"] = "7"

@pytest.mark.mpi(ranks=[1, 2], timeout=60, unit="s")
@pytest.mark.own_job("as it wants")
def test_apart(mpi_ranks):
    assert WORLD.size == mpi_ranks
"""


def test_ranks_are_shared_until_something_is_left(tmp_path):
    found = Outcome(tmp_path, LEFTOVERS)
    assert found.status == 1, found.text
    assert found.shares("test_leaves_communicators", "test_leaves_a_message")
    for bad, after, said in (
        ("test_leaves_a_message", "test_leaves_a_variable", "a message of rank 1 on COMM_WORLD"),
        ("test_leaves_a_variable", "test_leaves_descriptors", "changed: HAN_TIMEOUT"),
        ("test_leaves_another_variable", "test_apart", "changed: HAN_TIMEOUT"),
        ("test_leaves_descriptors", "test_leaves_another_variable", r"open descriptors: \d+ "),
    ):
        assert not found.shares(bad, after)
        assert re.search(rf"left by .*{bad}.*{said}", found.text), found.text
    assert len(found.pids["test_apart"]) == 3


FAILURES = """
@on_two
def test_fails(mpi_ranks):
    print("said by", WORLD.rank)
    assert WORLD.rank != 1, "the reason"

@on_two
def test_fails_while_the_other_waits(mpi_ranks):
    assert WORLD.rank != 1, "left alone"
    WORLD.recv(source=1)

@pytest.mark.mpi(ranks=2, timeout=3, unit="s")
def test_hangs(mpi_ranks):
    WORLD.recv(source=1 - WORLD.rank)

@on_two
def test_crashes(mpi_ranks):
    if WORLD.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    WORLD.Barrier()

@on_two
def test_fails_in_a_fixture(mpi_ranks, no_such_fixture):
    pass

@on_two
def test_last(mpi_ranks):
    assert WORLD.allreduce(1) == 2
"""


def block(text: str, name: str) -> str:
    """Return the part of the output about a failed test."""
    return re.split(r"\n_{3,} .* _{3,}\n", text.partition(f" {name}[2] ___")[2])[0]


def test_failures_are_told_and_the_next_test_gets_new_ranks(tmp_path):
    found = Outcome(tmp_path, FAILURES)
    assert "4 failed, 1 passed, 1 error" in found.text, found.text
    fails = block(found.text, "test_fails")
    for part in ("the reason", "said by 1", "rank 1 failed first of [1]; [0] did not fail"):
        assert part in fails, found.text
    waits = block(found.text, "test_fails_while_the_other_waits")
    assert "left alone" in waits, found.text
    assert "rank(s) 0 did not finish" in waits, found.text
    assert "no rank finished (time limit: 3 s)" in block(found.text, "test_hangs"), found.text
    assert "rank(s) " in block(found.text, "test_crashes"), found.text
    assert "ended" in block(found.text, "test_crashes"), found.text
    assert "no_such_fixture" in found.text
    names = ["test_fails", "test_fails_while_the_other_waits", "test_hangs", "test_crashes"]
    for one, other in zip(names, [*names[1:], "test_last"], strict=True):
        assert not found.shares(one, other)
