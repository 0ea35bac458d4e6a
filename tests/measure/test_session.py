"""Sessions of measurements on one rank, with a clock that the test sets."""

import json
import os
import pty
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from commands import call
from mpi4py import MPI

from han.cli import progress as bars
from han.common.errors import WrongResultError
from han.common.version import __version__
from han.measure import session as module
from han.measure.bench import alike
from han.measure.bench_calls import Buffers, Case
from han.measure.session import (
    MOST_CALLS,
    REFERENCE,
    WARM_UP,
    Session,
    Used,
    in_order,
    note,
    now,
    others,
    used_since,
)
from han.ranks import clocks

COMMANDS = {
    "han-bench 1": ("bench", "bcast", "8", "--rounds", "1", "--time", "0"),
    "han-bench-programs 1": ("bench", "--programs", "solver", "--rounds", "1", "--time", "0"),
    "han-ablation 1": ("ablation", "bcast", "8", "--rounds", "1", "--iterations", "1"),
    "han-limits 1": ("limits", "allreduce", "8", "--rounds", "1", "--time", "0"),
    "han-setup-costs 3": ("setup-costs", "bcast", "8", "--rounds", "1", "--iterations", "1"),
    "han-waits 1": ("waits", "bcast", "8", "--rounds", "1", "--time", "0"),
}


class Clock:
    """A clock that advances only during calls."""

    def __init__(self) -> None:
        self.now, self.made = 0.0, []

    def __call__(self) -> float:
        return self.now

    def call(self, name, *seconds):
        """Return a call that takes these times in turn, and then always the last one."""
        left = list(seconds)

        def run():
            self.made.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


@pytest.fixture
def clock():
    return Clock()


def session(clock, rounds, calls=None):
    return Session(MPI.COMM_SELF, rounds, calls, clock)


def test_candidates_take_turns_round_by_round(clock):
    with session(clock, 3) as measuring:
        calls = {name: clock.call(name, 1e-3) for name in "ab"}
        found = measuring.in_turns(calls, {"a": 1, "b": 2})
    assert "".join(clock.made) == "abb" + "bba" + "bba"
    assert {name: us.tolist() for name, us in found.items()} == {
        name: pytest.approx([1000.0] * 3) for name in "ab"
    }


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_each_candidate_comes_directly_after_each_other_one_equally_often(names):
    turns = 2 * len(names)
    found = Counter(p for k in range(turns) for p in pairwise(in_order(names, k)))
    assert found == dict.fromkeys(permutations(names, 2), turns // len(names))


def test_times_are_the_median_the_least_and_the_greatest_of_the_rounds(clock):
    with session(clock, 3, calls=1) as measuring:
        warm = [9.0] * WARM_UP
        found = measuring.times({"a": clock.call("a", *warm, 3e-6, 1e-6, 8e-6)}, 1.0)
    times = found["a"]
    assert (times.median, times.low, times.high) == pytest.approx((3, 1, 8))
    assert times.calls == 1


@pytest.mark.parametrize(("each", "wanted", "expected"), [(1e-3, 0.1, 100), (1.0, 0.1, 1)])
def test_a_batch_takes_about_as_long_as_is_wanted(clock, each, wanted, expected):
    with session(clock, 1) as measuring:
        assert measuring.batch_size(clock.call("a", each), wanted) == expected


def test_a_batch_of_calls_that_take_no_time_ends(clock):
    with session(clock, 1) as measuring:
        assert measuring.batch_size(clock.call("a", 1e-9), 1.0) == MOST_CALLS


def test_a_result_that_is_not_mpis_is_told_with_who_and_where(clock):
    buffers = Buffers(Case("allreduce", 16), 0, 1)

    def right():
        buffers.recv[...] = buffers.send

    def wrong():
        buffers.recv[...] = buffers.send
        buffers.recv.view(np.uint8)[5] ^= 1

    with session(clock, 1) as measuring:
        measuring.compare(buffers, {REFERENCE: right, "same": right})
        match = r"allreduce of 16B: .* differs from MPI's: rank 0: 1 bytes differ, .* 5 \(odd\)"
        with pytest.raises(WrongResultError, match=match):
            measuring.compare(buffers, {REFERENCE: right, "same": right, "odd": wrong})


def test_communicators_are_freed_at_the_end_but_not_after_an_error(clock):
    with session(clock, 1) as measuring:
        made = measuring.add_mpi(), measuring.add_han(None)
    assert all(comm == MPI.COMM_NULL for comm in (*made, measuring.control))
    with pytest.raises(KeyError), session(clock, 1) as measuring:
        raise KeyError
    assert measuring.control != MPI.COMM_NULL
    measuring.control.Free()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_writes_its_format_version_and_machine(name, tmp_path):
    path = tmp_path / "found.json"
    text = call(*COMMANDS[name], "--json", path)
    record = json.loads(path.read_text())
    assert f"{record['format']} {record['version']}" == name
    assert (record["unit"], record["han"], record["machine"]["ranks"]) == ("us", __version__, 1)
    assert record["rows"]
    assert text.startswith("# han ")
    assert f" {COMMANDS[name][0]}" in text.splitlines()[0]
    assert any(line.startswith("# machine ") for line in text.splitlines())
    json.loads(call(*COMMANDS[name], "--json", "-"))  # and nothing else on standard output


# ---- progress ---------------------------------------------------------------------------------

STEPS = """
from han.cli.progress import progress
with progress(2, "testing") as advance:
    advance()
    advance()
"""


def test_a_terminal_shows_a_bar():
    parent, child = pty.openpty()
    subprocess.run([sys.executable, "-c", STEPS], stderr=child, check=True)
    os.close(child)
    told = os.read(parent, 1 << 16).decode()
    os.close(parent)
    assert "testing" in told
    assert "100%" in told


def test_a_pipe_shows_nothing():
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, check=True)
    assert done.stdout + done.stderr == b""


def test_under_a_launcher_its_terminal_shows_the_bar(tmp_path):
    parent, child = pty.openpty()
    path = os.ttyname(child)
    for pid, name, above, stderr in (
        (7, "python", 6, "pipe:[1]"),
        (6, "hydra_pmi_proxy", 5, "pipe:[2]"),
        (5, "mpiexec", 4, path),
        (4, "bash", 1, "/dev/pts/0"),
    ):
        folder = tmp_path / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "comm").write_text(name + "\n")
        (folder / "stat").write_text(f"{pid} ({name}) S {above} 0")
        (folder / "fd" / "2").symlink_to(stderr)
    assert str(bars.launchers_terminal(7, tmp_path)) == path
    assert bars.launchers_terminal(5, tmp_path) is None, "a shell is no launcher"
    (tmp_path / "5" / "fd" / "2").unlink()
    (tmp_path / "5" / "fd" / "2").symlink_to("/tmp/errors.txt")
    assert bars.launchers_terminal(7, tmp_path) is None, "its errors go to a file"
    os.close(parent)
    os.close(child)


def test_batches_of_tuned_and_built_in_choices_have_as_many_calls():
    assert alike({"han": 50, "default": 20, "mpi": 5}) == {"han": 50, "default": 50, "mpi": 5}
    assert alike({"han": 7, "mpi": 9}) == {"han": 7, "mpi": 9}
    assert alike({"mpi": 9}) == {"mpi": 9}


# ---- processors that other programs use ---------------------------------------------------------


def test_what_the_ranks_of_a_machine_use_is_not_of_others():
    one = [Used("a", 10.0, 25.0, 9.0), Used("a", 10.0, 25.0, 8.0)]
    assert others(one) == pytest.approx(0.8)
    assert others([*one, Used("b", 10.0, 30.0, 10.0)]) == pytest.approx(2.0)
    assert others([Used("a", 10.0, 9.0, 10.0)]) == 0.0  # the kernel counts in steps
    assert others([Used("a", 0.1, 9.0, 0.1)]) == 0.0  # too short to tell


def test_only_a_load_that_is_worth_it_is_told():
    assert note(0.0) == note(0.19) == ""
    assert note(1.26).startswith("# others    other programs used 1.3 of ")


def test_this_process_is_seen(monkeypatch, tmp_path):
    start = now()
    begun = time.process_time()
    while time.process_time() - begun < 0.05:
        pass
    found = used_since(start)
    assert found.own >= 0.03
    assert found.elapsed > 0

    monkeypatch.setattr(module, "STAT", tmp_path / "none")
    monkeypatch.setattr(clocks, "BOOT", tmp_path / "none")
    found = used_since(now())
    assert (found.busy, found.kernel) == (0.0, MPI.Get_processor_name())


def test_a_bench_tells_of_other_programs(monkeypatch):
    monkeypatch.setattr(Session, "others", lambda self: 1.5)
    small = ("8", "--rounds", "1", "--time", "0")
    assert "other programs used 1.5 of " in call("bench", "barrier", *small)
    assert '"others": 1.5' in call("bench", "barrier", *small, "--json", "-")
    assert '"others": 1.5' in call("bench", "--programs", "solver", "--rounds", "1", "--time", "0",
                                   "--json", "-")  # fmt: skip
