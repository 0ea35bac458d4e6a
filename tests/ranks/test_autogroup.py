"""Automatic groups of the scheduler, read from files that the tests make."""

from dataclasses import replace

import pytest

from han.measure.bench_machine import Machine
from han.ranks.autogroup import autogroup

MACHINE = Machine(
    "a CPU", 2, "0-1", "MPI 4", "4.0", "4.1", "3.12", 8, 1, "8 ranks", "default", "auto"
)

CASES = [
    ("1", "0::/", {}, "/autogroup-7"),
    ("0", "0::/", {}, ""),
    ("1", "0::/user", {"user/cgroup.procs"}, "/autogroup-7"),
    ("1", "0::/user", {"user/cpu.weight"}, ""),
    ("1", "0::/", {"cpu.weight"}, ""),
    ("1", "0::/user/session", {"user/cpu.weight", "user/session/cgroup.procs"}, ""),
    ("1", "0::/../user", {"user/cpu.weight"}, ""),
    ("1", "3:cpu,cpuacct:/\n2:memory:/a\n0::/", {}, "/autogroup-7"),
    ("1", "3:cpu,cpuacct:/a\n0::/", {}, ""),
    ("1", "", {}, "/autogroup-7"),
]


@pytest.mark.parametrize(("switch", "groups", "files", "expected"), CASES)
def test_a_process_is_in_an_automatic_group(tmp_path, switch, groups, files, expected):
    own, cgroups = tmp_path / "self", tmp_path / "cgroup"
    own.mkdir()
    (tmp_path / "switch").write_text(switch + "\n")
    (own / "autogroup").write_text("/autogroup-7 nice 0\n")
    (own / "cgroup").write_text(groups)
    for file in files:
        (cgroups / file).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / file).touch()
    assert autogroup(tmp_path / "switch", own, cgroups) == expected


def test_a_kernel_without_automatic_groups_has_none(tmp_path):
    assert autogroup(tmp_path / "switch", tmp_path, tmp_path) == ""


@pytest.mark.parametrize(("groups", "told"), [(0, False), (1, False), (8, True)])
def test_measurements_report_automatic_groups_with_a_remedy(groups, told):
    lines = "\n".join(replace(MACHINE, autogroups=groups).lines())
    assert ("in 8 sessions" in lines) == told
    assert ("sched_autogroup_enabled" in lines) == told
