"""Sessions that the kernel schedules as groups: where each rank has its own, a yield reaches the
other ranks late.

MPICH's mpiexec starts every rank in a session of its own, and most distributions have automatic
groups on (sched(7), "The autogroup feature"). A rank that yields then only steps back behind others
of its group: there are none.
"""

from __future__ import annotations

from pathlib import Path

SWITCH = Path("/proc/sys/kernel/sched_autogroup_enabled")
OWN, CGROUPS = Path("/proc/self"), Path("/sys/fs/cgroup")


def autogroup(switch: Path = SWITCH, own: Path = OWN, cgroups: Path = CGROUPS) -> str:
    """Return the name of the automatic group that schedules this process, "" if none does."""
    try:
        on = switch.read_text().strip() == "1"
        name = (own / "autogroup").read_text().split()[0]
        lines = (own / "cgroup").read_text().splitlines()
    except (OSError, IndexError):
        return ""
    return "" if not on or any(_schedules(line, cgroups) for line in lines) else name


def _schedules(line: str, cgroups: Path) -> bool:
    """Whether a line of /proc/self/cgroup names a group that schedules: none is inside of it."""
    _, controllers, place = [*line.split(":", 2), "", ""][:3]
    if controllers:
        return "cpu" in controllers.split(",") and place != "/"
    group = cgroups.joinpath(*(part for part in place.split("/") if part not in ("", "..")))
    above = [up for up in (group, *group.parents) if up.is_relative_to(cgroups)]
    return any((up / "cpu.weight").exists() for up in above)


def describe(groups: int) -> str:
    """Say what it means that the ranks which yield are in so many automatic groups."""
    return (
        f"reach other ranks late: they are in {groups} sessions, which the kernel schedules as "
        f"groups (as root: echo 0 > {SWITCH})"
    )
