"""The processors, their arrangement and the MPI library of this process."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from mpi4py import MPI

from han import _native
from han.common.system import text_of
from han.common.units import plural
from han.common.version import __version__
from han.config.parts import Wait
from han.ranks.adapters import link_rate
from han.ranks.quota import processors
from han.tuning.tuned.fingerprint import Fingerprint

TRANSPORTS = (  # variables of MPI libraries
    "FI_PROVIDER", "I_MPI_FABRICS", "MPIR_CVAR_CH4_NETMOD", "OMPI_MCA_btl", "OMPI_MCA_mtl",
    "OMPI_MCA_pml", "UCX_TLS",
)  # fmt: skip

WAIT = Wait()
FIRST = 2048  # characters of /proc/cpuinfo: the system writes those of all processors one by one


def fingerprint(wait: Wait | None = WAIT) -> Fingerprint:
    """Return the fingerprint of this machine, where ranks wait as a configuration says.

    None: in several ways, or in an unknown one.
    """
    told = "" if wait is None else f"{wait.policy}, {plural(wait.spin, 'poll')}"
    return replace(_machine(), wait=told)


@cache
def _machine() -> Fingerprint:
    """Return the fingerprint but for waits; the first call takes a millisecond."""
    name, version = MPI.get_vendor()
    quota = processors()
    return Fingerprint(
        cpu=cpu_model(),
        cores=os.cpu_count() or 1,
        library=name,
        library_version=".".join(map(str, version)),
        transport=transport(MPI.Get_library_version(), os.environ),
        quota=0.0 if math.isinf(quota) else quota,
        mesh=_native.on_mesh(),
        han=__version__,
        layout=layout(),
        binding=binding(),
        link=link_rate(os.environ),
    )


def transport(text: str, environ: Mapping[str, str]) -> str:
    """Return how the MPI library moves messages: its device, and variables that choose others.

    `text` is that of MPI_Get_library_version. The device is unknown for Open MPI.
    """
    device = re.search(r"\bch\d:\w+", text)
    chosen = [f"{name}={environ[name]}" for name in TRANSPORTS if environ.get(name)]
    return ", ".join(([device[0]] if device else []) + chosen)


def library_name() -> str:
    """Return the MPI library's name and version: ``"Open MPI 5.0.11"``."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(str(v) for v in version)}"


def library_text() -> str:
    """Return the beginning of the MPI library's version text, up to a comma or a line's end."""
    first = re.split(r"[\n,]", MPI.Get_library_version().strip("\0"))[0]
    return " ".join(first.split())


def cpu_model() -> str:
    """Return the processor's name."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            text = file.read(FIRST)
    except OSError:
        text = ""
    names = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return names[1].strip() if names else platform.processor() or platform.machine()


SYSTEM = Path("/sys/devices/system")


def layout(system: Path = SYSTEM) -> str:
    """Return ``2 sockets, 8 NUMA domains, 16 L3 caches``; "" if the system does not tell."""
    online = listed(text_of(system / "cpu/online"))
    near = Path("cache/index3/shared_cpu_list")
    shared = _groups(online, lambda cpu: listed(text_of(_cpu(system, cpu) / near)))
    sockets = {text_of(_cpu(system, first) / "topology/physical_package_id") for first in shared}
    domains = listed(text_of(system / "node/has_cpu"))
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
