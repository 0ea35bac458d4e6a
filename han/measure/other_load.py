"""How many processors other programs use during a measurement.

The kernel counts the time in which processors were busy; what the ranks used of it is subtracted.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from mpi4py import MPI

from han.common.units import plural

STAT = Path("/proc/stat")
BOOT = Path("/proc/sys/kernel/random/boot_id")  # tells kernels apart: nodes may be containers
BUSY = (1, 2, 3, 6, 7)  # fields of its first line: user, nice, system, interrupts
WORTH_TELLING = 0.2  # processors
SHORTEST = 0.2  # seconds: the kernel counts in steps of 10 ms


class Used(NamedTuple):
    """What a rank saw: its kernel, seconds, and seconds of its processors and of its own."""

    kernel: str
    elapsed: float
    busy: float
    own: float


class OtherLoad:
    """The time of other programs since this object was made."""

    def __init__(self) -> None:
        self._begun = _now()

    def used(self) -> Used:
        """Return what this rank saw until now."""
        elapsed, busy, own = (b - a for a, b in zip(self._begun, _now(), strict=True))
        try:
            kernel = BOOT.read_text().strip()
        except OSError:
            kernel = MPI.Get_processor_name()
        return Used(kernel, elapsed, busy, own)

    def processors(self, comm: MPI.Intracomm) -> float:
        """Return how many processors others used, on the node where they used most; collective."""
        return others(comm.allgather(self.used()))


def others(used: list[Used]) -> float:
    """Return how many processors others used, on the machine where they used most."""
    machines: defaultdict[str, list[Used]] = defaultdict(list)
    for one in used:
        machines[one.kernel].append(one)
    return max(map(_others_on, machines.values()), default=0.0)


def _others_on(ranks: list[Used]) -> float:
    elapsed = max(one.elapsed for one in ranks)
    if elapsed < SHORTEST:
        return 0.0
    busy = sum(one.busy for one in ranks) / len(ranks)
    return max(0.0, (busy - sum(one.own for one in ranks)) / elapsed)


def note(processors: float) -> str:
    """Return a line that tells of other programs, or nothing."""
    if processors < WORTH_TELLING:
        return ""
    cores = plural(os.cpu_count() or 1, "processor")
    return (
        f"# others    other programs used {processors:.1f} of {cores} meanwhile: times are longer, "
        "and ratios differ, from those of an idle machine"
    )


def _now() -> tuple[float, float, float]:
    """Return seconds: of the clock, of all processors when busy, and of this process."""
    times = os.times()
    try:
        fields = STAT.read_text().split("\n", 1)[0].split()
        busy = sum(int(fields[k]) for k in BUSY) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        busy = 0.0  # not told here: no others are seen
    return perf_counter(), busy, times.user + times.system
