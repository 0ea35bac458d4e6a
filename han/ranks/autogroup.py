"""Automatic groups of the Linux scheduler, which delay a rank that yields to another one.

Where each rank is in a session of its own, the kernel may schedule each session as a group
(sched(7), "The autogroup feature"). A yield then only lets other threads of the same group run
first, and the group of a rank has none. MPICH's mpiexec starts every rank in a session of its own,
and most distributions switch automatic groups on.
"""

from __future__ import annotations

from pathlib import Path

from han.common.system import text_of
from han.ranks.quota import groups

SWITCH = Path("/proc/sys/kernel/sched_autogroup_enabled")
OWN, CGROUPS = Path("/proc/self"), Path("/sys/fs/cgroup")


def autogroup(switch: Path = SWITCH, own: Path = OWN, cgroups: Path = CGROUPS) -> str:
    """Return the name of the automatic group that schedules this process, "" if none does.

    The parameters are the files and folders of the system that are read. A control group with a
    CPU controller takes precedence over an automatic group.
    """
    if text_of(switch) != "1" or any(_schedules(*one, cgroups) for one in groups(own / "cgroup")):
        return ""
    return text_of(own / "autogroup").partition(" ")[0]


def _schedules(controllers: str, parts: list[str], cgroups: Path) -> bool:
    """Return whether a control group of this process has a CPU controller."""
    if controllers:
        return "cpu" in controllers.split(",") and bool(parts)
    group = cgroups.joinpath(*parts)
    above = [up for up in (group, *group.parents) if up.is_relative_to(cgroups)]
    return any((up / "cpu.weight").exists() for up in above)


def describe(groups: int) -> str:
    """Describe the effect of `groups` automatic groups on ranks that yield, and the remedy."""
    return (
        f"reach other ranks late: they are in {groups} sessions, which the kernel schedules as "
        f"groups (as root: echo 0 > {SWITCH})"
    )
