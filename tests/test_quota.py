"""Quotas of control groups, in folders made up; and what they make of ranks and processors."""

import math

import pytest

from han.discover import Facts, _oversubscribed
from han.quota import processors


@pytest.fixture
def cgroup(tmp_path):
    """Make the files of groups; return what a process in them may use."""

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
def test_the_least_quota_on_the_way_up_counts(cgroup, own, files, expected):
    assert cgroup(own, files) == expected


def test_no_control_groups_are_no_quota(tmp_path):
    assert processors(tmp_path, tmp_path / "none") == math.inf


@pytest.mark.parametrize(
    ("ranks", "cpus", "quota", "crowded"),
    [(4, 4, NONE, False), (4, 4, 4, False), (4, 4, 3.5, True), (4, 2, 64, True), (1, 8, 0.5, True)],
)
def test_ranks_are_held_against_processors_and_quota(ranks, cpus, quota, crowded):
    facts = [Facts(0, "a", frozenset(range(cpus)), {}, quota) for _ in range(ranks)]
    assert _oversubscribed(facts) == crowded
    elsewhere = Facts(ranks, "b", frozenset([0]), {}, NONE)
    assert _oversubscribed([*facts, elsewhere]) == crowded


def test_the_smallest_quota_of_a_node_counts():
    facts = [Facts(0, "a", frozenset(range(8)), {}, quota) for quota in (8, 1, NONE)]
    assert _oversubscribed(facts)
