"""Limits of control groups: the processor time and memory that a container may use."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from han import _native
from han.common.system import text_of

UNLIMITED = 1 << 60  # version 1 writes a large number of bytes for no limit
ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


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
    """One controller: its folders in version 1, and the files of its limit in both versions.

    The limit is the quotient of the first two words of the files, then of `more`.
    """

    folders: tuple[str, ...]
    version_1: tuple[str, ...]
    version_2: tuple[str, ...]
    more: tuple[str, ...] = ()


CPU = _Controller(
    ("cpu", "cpu,cpuacct", "cpuacct,cpu"), ("cpu.cfs_quota_us", "cpu.cfs_period_us"), ("cpu.max",)
)
MEMORY = _Controller(("memory",), ("memory.limit_in_bytes",), ("memory.max",), ("1",))


def groups(own: Path = OWN) -> Iterator[tuple[str, list[str]]]:
    """Yield each control group of this process: its controllers, and the folders down to it.

    In version 2 no controllers are named.
    """
    for line in text_of(own).splitlines():
        _, controllers, place = [*line.split(":", 2), "", ""][:3]
        yield controllers, [part for part in place.split("/") if part not in ("", "..")]


def _least(controller: _Controller, root: Path, own: Path) -> float:
    return min((quota for quota, _ in _limits(controller, root, own)), default=math.inf)


def _limits(one: _Controller, root: Path, own: Path) -> Iterator[tuple[float, Path]]:
    """Yield all limits of this process, each with the folder of its group."""
    for controllers, parts in groups(own):
        if not controllers:
            for mount in (root, root / "unified"):
                yield from _upwards(mount, parts, one.version_2, one.more)
        elif one.folders[0] in controllers.split(","):
            for folder in one.folders:
                yield from _upwards(root / folder, parts, one.version_1, one.more)


def _upwards(
    mount: Path, parts: Sequence[str], files: Sequence[str], more: Sequence[str]
) -> Iterator[tuple[float, Path]]:
    """Yield the limits of a group and of its parents, each with the group's folder."""
    for depth in range(len(parts), -1, -1):
        group = mount.joinpath(*parts[:depth])
        words = [word for file in files for word in text_of(group / file).split()]
        quota = _ratio([*words, *more])
        if quota is not None and quota < UNLIMITED:
            yield quota, group


def _ratio(words: Sequence[str]) -> float | None:
    """Return quota / period; None for no quota ("max" or -1) and for malformed text."""
    try:
        quota, period = (int(word) for word in words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None
