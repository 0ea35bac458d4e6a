"""Limits of control groups: the processor time and memory that a container may use."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from han import _native

UNLIMITED = 1 << 60  # version 1 writes a large number of bytes for no limit
ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

Read = Callable[[Path], float | None]


def processors(root: Path = ROOT, own: Path = OWN) -> float:
    """Return the number of processors whose time this process may use; infinite without a quota.

    The smallest quota of the process's group and its parents counts. In a container the groups
    above its own may be invisible: a missing file is no limit.
    """
    return _least(CPU, root, own)


def memory(root: Path = ROOT, own: Path = OWN) -> float:
    """Return the smallest memory limit of this process's groups in bytes; infinite without any."""
    return _least(MEMORY, root, own)


def memory_groups(root: Path = ROOT, own: Path = OWN) -> tuple[bytes, ...]:
    """Return the folders of this process's control groups that have a memory limit."""
    return tuple(os.fsencode(group) for _, group in _limits(MEMORY, root, own))


def room(root: Path = ROOT, own: Path = OWN) -> float:
    """Return the bytes left below the memory limits of control groups; infinite without any."""
    return min(map(_native.room, memory_groups(root, own)), default=math.inf)


def addresses_limited() -> bool:
    """Return whether addresses are limited (ulimit -v): mapped arenas need many addresses."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


class _Controller(NamedTuple):
    """One controller: the names of its folder in version 1, and functions that read its limit."""

    names: tuple[str, ...]
    version_1: Read
    version_2: Read


def _least(controller: _Controller, root: Path, own: Path) -> float:
    return min((quota for quota, _ in _limits(controller, root, own)), default=math.inf)


def _limits(controller: _Controller, root: Path, own: Path) -> list[tuple[float, Path]]:
    """Return all limits of this process, each with the folder of its group."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    return [found for line in lines for found in _quotas(controller, root, line)]


def _quotas(controller: _Controller, root: Path, line: str) -> Iterator[tuple[float, Path]]:
    """Yield the limits of the group that a line of /proc/self/cgroup names, and of its parents."""
    _, controllers, place = [*line.split(":", 2), "", ""][:3]
    if not controllers:
        for mount in (root, root / "unified"):
            yield from _upwards(mount, place, controller.version_2)
    elif controller.names[0] in controllers.split(","):
        for name in controller.names:
            yield from _upwards(root / name, place, controller.version_1)


def _upwards(mount: Path, place: str, read: Read) -> Iterator[tuple[float, Path]]:
    """Yield the limits of a group and of its parents, each with the group's folder."""
    parts = [part for part in place.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        group = mount.joinpath(*parts[:depth])
        quota = read(group)
        if quota is not None and quota < UNLIMITED:
            yield quota, group


def _cpu_2(group: Path) -> float | None:
    return _ratio(_words(group / "cpu.max"))


def _cpu_1(group: Path) -> float | None:
    return _ratio([*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")])


def _memory_2(group: Path) -> float | None:
    return _ratio([*_words(group / "memory.max"), "1"])


def _memory_1(group: Path) -> float | None:
    return _ratio([*_words(group / "memory.limit_in_bytes"), "1"])


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _ratio(words: list[str]) -> float | None:
    """Return quota / period; None for no quota ("max" or -1) and for malformed text."""
    try:
        quota, period = (int(word) for word in words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


CPU = _Controller(("cpu", "cpu,cpuacct", "cpuacct,cpu"), _cpu_1, _cpu_2)
MEMORY = _Controller(("memory",), _memory_1, _memory_2)
