"""How many processors a container may use: the quotas of control groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
V1 = ("cpu", "cpu,cpuacct", "cpuacct,cpu")  # where the version 1 controller is mounted


def processors(root: Path = ROOT, own: Path = OWN) -> float:
    """Return the processors' worth of time that this process may use; infinite without a quota.

    The least of all groups from the process's own up to the root counts. A container may see
    its own group as the root: what is not there is no limit.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return math.inf
    found = [quota for line in lines for quota in _quotas(root, line)]
    return min(found, default=math.inf)


def _quotas(root: Path, line: str) -> Iterator[float]:
    """Yield the quotas that one line of /proc/self/cgroup leads to."""
    _, controllers, place = [*line.split(":", 2), "", ""][:3]
    if not controllers:
        for mount in (root, root / "unified"):
            yield from _upwards(mount, place, _version_2)
    elif "cpu" in controllers.split(","):
        for name in V1:
            yield from _upwards(root / name, place, _version_1)


def _upwards(mount: Path, place: str, read: Callable[[Path], float | None]) -> Iterator[float]:
    """Yield what is read in a group and in those that it is part of."""
    parts = [part for part in place.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        quota = read(mount.joinpath(*parts[:depth]))
        if quota is not None:
            yield quota


def _version_2(group: Path) -> float | None:
    return _ratio(_words(group / "cpu.max"))


def _version_1(group: Path) -> float | None:
    return _ratio([*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")])


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _ratio(words: list[str]) -> float | None:
    """Divide a quota by its period; "max" and -1 are no quota, nor is what is no number."""
    try:
        quota, period = (int(word) for word in words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None
