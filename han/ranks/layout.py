"""How the processors of this machine are arranged, and how many of them this rank may use."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from han.common.units import plural

SYSTEM = Path("/sys/devices/system")


def layout(system: Path = SYSTEM) -> str:
    """Return ``2 sockets, 8 NUMA domains, 16 L3 caches``; "" if the system does not tell."""
    online = listed(_text(system / "cpu/online"))
    near = Path("cache/index3/shared_cpu_list")
    shared = _groups(online, lambda cpu: listed(_text(_cpu(system, cpu) / near)))
    sockets = {_text(_cpu(system, first) / "topology/physical_package_id") for first in shared}
    domains = listed(_text(system / "node/has_cpu"))
    counts = (len(sockets), "socket"), (len(domains), "NUMA domain"), (len(shared), "L3 cache")
    return ", ".join(plural(count, unit) for count, unit in counts if count) if online else ""


def binding() -> str:
    """Return how many processors this rank may use: ``all``, ``one`` or ``several``."""
    allowed = len(os.sched_getaffinity(0))
    if allowed >= (os.cpu_count() or 1):
        return "all"
    return "one" if allowed == 1 else "several"


def listed(text: str) -> list[int]:
    """Return the numbers of a list of the kernel: ``0-3,8``."""
    found = re.findall(r"(\d+)(?:-(\d+))?", text)
    return [cpu for first, last in found for cpu in range(int(first), int(last or first) + 1)]


def _groups(cpus: list[int], members: Callable[[int], list[int]]) -> list[int]:
    """Return the first processor of each group; one of each group is asked for its members."""
    left, found = dict.fromkeys(cpus), list[int]()
    while left:
        first = next(iter(left))
        found.append(first)
        for cpu in (first, *members(first)):
            left.pop(cpu, None)
    return found


def _cpu(system: Path, cpu: int) -> Path:
    return system / f"cpu/cpu{cpu}"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
