"""Quotas of control groups, read from files that the tests make, and what follows from them."""

import math
import os

import numpy as np
import pytest
from mpi4py import MPI

import han
from han import _native
from han.config.arrange import Facts
from han.config.parts import POLICIES, Wait
from han.measure.bench_machine import describe_wait
from han.memory.arena import LEAST, limit, open_arena
from han.memory.channel import _create
from han.ranks.discover import Conditions, conditions
from han.ranks.quota import memory, memory_groups, processors, room
from han.runtime.waiting import Waiting, naps


@pytest.fixture
def cgroup(tmp_path):
    """Return a function that writes groups' files and returns the processors of a process there."""

    def make(own, files):
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        (tmp_path / "own").write_text(own)
        return processors(tmp_path / "cgroup", tmp_path / "own")

    return make


NONE = math.inf
CASES = [
    ("0::/", {}, NONE),
    ("0::/", {"cpu.max": "max 100000"}, NONE),
    ("0::/", {"cpu.max": "150000 100000"}, 1.5),
    ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, 2),
    ("0::/a/b", {"a/b/cpu.max": "400000 100000", "cpu.max": "50000 100000"}, 0.5),
    ("0::/a", {"b/cpu.max": "10000 100000"}, NONE),
    ("0::/../../x", {"cpu.max": "300000 100000"}, 3),
    ("0::/a", {"unified/a/cpu.max": "100000 100000"}, 1),
    ("4:cpu,cpuacct:/d\n0::/", {
        "cpu,cpuacct/d/cpu.cfs_quota_us": "250000", "cpu,cpuacct/d/cpu.cfs_period_us": "100000",
    }, 2.5),
    ("1:cpu:/d", {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "50000"}, 1),
    ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, NONE),
    ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "100"}, NONE),
    ("2:cpuset:/", {"cpu.max": "100000 100000"}, NONE),
    ("0::/", {"cpu.max": "1 0"}, NONE),
    ("0::/", {"cpu.max": "what is this"}, NONE),
    ("", {"cpu.max": "100000 100000"}, NONE),
    ("nonsense", {"cpu.max": "nonsense"}, NONE),
]  # fmt: skip


@pytest.mark.parametrize(("own", "files", "expected"), CASES)
def test_the_smallest_quota_of_a_group_and_its_parents_counts(cgroup, own, files, expected):
    assert cgroup(own, files) == expected


def test_no_control_groups_are_no_quota(tmp_path):
    assert processors(tmp_path, tmp_path / "none") == math.inf


@pytest.mark.parametrize(
    ("ranks", "cpus", "quota", "oversubscribed", "rationed"),
    [
        (4, 4, NONE, False, False),
        (4, 4, 4, False, False),
        (4, 4, 3.5, False, True),
        (4, 2, 64, True, False),
        (1, 8, 0.5, False, True),
        (4, 2, 1, True, True),
    ],
)
def test_ranks_are_compared_with_processors_and_quota(ranks, cpus, quota, oversubscribed, rationed):
    facts = [Facts(0, "a", frozenset(range(cpus)), {}, quota) for _ in range(ranks)]
    assert conditions(facts) == Conditions(oversubscribed, rationed, False)
    elsewhere = Facts(ranks, "b", frozenset([0]), {}, NONE)
    assert conditions([*facts, elsewhere]) == Conditions(oversubscribed, rationed, False)


def test_the_smallest_quota_of_a_node_counts():
    facts = [Facts(0, "a", frozenset(range(8)), {}, quota) for quota in (8, 1, NONE)]
    assert conditions(facts) == Conditions(False, True, False)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("policy", "sleeps"), [("auto", True), ("yield", False), ("futex", True)])
def test_waiting_ranks_sleep_under_a_quota(monkeypatch, policy, sleeps):
    monkeypatch.setattr("han.ranks.discover.processors", lambda: 0.5)
    comm = han.Comm(MPI.COMM_SELF.Dup(), {"wait": {"policy": policy}})
    monkeypatch.undo()
    inherits = comm.Dup()
    for one in (comm, inherits):
        assert one._han.parts.shared.naps == sleeps
        assert ("the container's quota" in describe_wait(one)) == (policy == "auto")
        assert not one._han.parts.conditions.oversubscribed
    total = np.zeros(1)
    inherits.Allreduce(np.ones(1), total)
    assert total[0] == 1
    inherits.Free()
    comm.Free()


def test_without_a_quota_auto_does_not_sleep(monkeypatch):
    monkeypatch.setattr("han.ranks.discover.processors", lambda: NONE)
    comm = han.Comm(MPI.COMM_SELF.Dup())
    assert not comm._han.parts.shared.naps
    comm.Free()


def test_auto_sleeps_where_ranks_outnumber_processors_and_learns_when():
    few, many = Conditions(), Conditions(oversubscribed=True)
    for policy in POLICIES:
        wait = Wait(policy=policy)
        assert naps(wait, many) == (policy in ("auto", "futex"))
        assert Waiting.of(wait, many).patient == (policy == "auto")
        assert Waiting.of(wait, few).futex == (policy == "futex")
    assert not Waiting.of(Wait(), Conditions(oversubscribed=True, rationed=True)).patient


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/", {}, NONE),
        ("0::/a", {"a/memory.max": "max", "memory.max": "1048576"}, 1 << 20),
        ("4:memory:/d", {"memory/d/memory.limit_in_bytes": "4096"}, 4096),
        ("4:cpu:/d", {"memory/d/memory.limit_in_bytes": "4096"}, NONE),
    ],
)
def test_memory_has_limits_too(tmp_path, cgroup, own, files, expected):
    cgroup(own, files)
    assert memory(tmp_path / "cgroup", tmp_path / "own") == expected


def test_shared_arrays_respect_the_limit_of_a_container(monkeypatch):
    monkeypatch.setattr("han.memory.arena.memory", lambda: 300 << 20)
    assert limit({}) == 150 << 20
    monkeypatch.setattr("han.memory.arena.memory", lambda: 1)
    assert limit({}) == LEAST


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": "max", "memory.current": "5"}, None),
        ({"memory.max": "1000", "memory.current": "600", "memory.stat": "anon 1\n"}, 400),
        (
            {"memory.max": "1000", "memory.current": "1000",
             "memory.stat": "anon 9\ninactive_file 300\nactive_file 50\nslab_reclaimable 7\n"},
            357,
        ),
        ({"memory.max": "1000", "memory.current": "2000", "memory.stat": ""}, 0),
        (
            {"memory.limit_in_bytes": "1000", "memory.usage_in_bytes": "900",
             "memory.stat": "inactive_file 1\ntotal_inactive_file 20\ntotal_active_file 3\n"},
            123,
        ),
        ({}, None),
    ],
)  # fmt: skip
def test_the_room_below_a_memory_limit(tmp_path, files, left):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    expected = (1 << 64) - 1 if left is None else left
    assert _native.room(os.fsencode(tmp_path)) == expected


def test_only_groups_with_a_limit_are_read(tmp_path, cgroup):
    files = {"a/b/memory.max": "max", "a/memory.max": "1048576", "a/memory.current": "1000000"}
    cgroup("0::/a/b", {**files, "memory.max": "9223372036854771712"})
    places = tmp_path / "cgroup", tmp_path / "own"
    assert memory_groups(*places) == (os.fsencode(tmp_path / "cgroup" / "a"),)
    assert room(*places) == 48_576


def test_allocations_beyond_a_memory_limit_raise(tmp_path, monkeypatch):
    """Allocations beyond the memory limit raise: large arrays, and a communicator's memory."""
    (tmp_path / "memory.max").write_text(str(64 << 20))
    (tmp_path / "memory.current").write_text(str(50 << 20))
    monkeypatch.setattr("han.memory.arena.memory_groups", lambda: (os.fsencode(tmp_path),))
    arena = open_arena(256 << 20)
    with arena.used():
        kept = np.ones(1 << 20)  # 8 MiB: fits
    with pytest.raises(MemoryError, match="memory limit of a control group"), arena.used():
        np.ones(2 << 20)
    (tmp_path / "memory.current").write_text(str(10 << 20))
    with arena.used():
        assert np.ones(2 << 20).sum() == 2 << 20
    assert kept.sum() == 1 << 20
    monkeypatch.setattr("han.memory.channel.room", lambda: 1 << 20)
    with pytest.raises(OSError, match=r"memory limit of a control group.* leaves 1MiB"):
        _create(2 << 20)


def test_conditions_tell_the_smallest_node_and_adapters_that_all_have():
    facts = [
        Facts(node, "a", frozenset([0]), {}, cores=cores, rdma=rdma)
        for node, (cores, rdma) in enumerate([(64, True), (32, True), (128, False)])
    ]
    assert conditions(facts[:2])[3:5] == (32, True)
    assert conditions(facts)[3:5] == (32, False)
