"""The calibration of a machine: what the ranks of a communicator measure in a few seconds."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from mpi4py import MPI

from han.common.grouped import grouped
from han.common.system import text_of
from han.ranks.discover import outnumber_processors
from han.ranks.machine import fingerprint
from han.ranks.meeting import Meeting
from han.runtime.measured import CALIBRATION, ROUNDS
from han.runtime.probes import STEP, Probes
from han.tuning.profile import Profile
from han.tuning.tuned.calibrated import Calibration
from han.tuning.tuned.combined import Combined, combined
from han.tuning.tuned.fingerprint import SAME, Fingerprint

BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Measured:
    """What was measured: the same on all ranks, but for the machine, which is this rank's."""

    values: Combined
    nodes: tuple[tuple[int, ...], ...]
    rounds: int
    seconds: float
    machine: Fingerprint

    @property
    def calibration(self) -> Calibration:
        """What may be kept."""
        return Calibration(self.machine, self.values.profile, date.today().isoformat())


class _Told(NamedTuple):
    memory: int
    host: str
    cores: int
    kind: tuple[object, ...]
    system: str  # containers of one system have the same one, whatever their names are
    cpus: frozenset[int]


def calibrate(
    meeting: Meeting, memory: int, tell: Callable[[], object] = lambda: None
) -> Measured:
    """Measure the machine; collective.

    `memory` is the lowest rank that this one shares memory with. `tell` is called after each round.
    """
    begun, here = monotonic(), fingerprint()
    kind = tuple(getattr(here, name) for name in (*SAME, "layout"))
    host, system = MPI.Get_processor_name(), text_of(BOOT)
    cpus = frozenset(os.sched_getaffinity(0))
    mine = _Told(memory, host, os.cpu_count() or 0, kind, system or host, cpus)
    told = meeting.allgather(mine, STEP)
    probes = Probes(meeting, [one.memory for one in told])
    rounds = _rounds(probes, begun, tell)
    nodes = probes.nodes.ranks
    crowded = outnumber_processors((one.system, one.cpus) for one in told)
    values = combined(rounds, nodes, min(one.cores for one in told), crowded)
    problems = (*_differing(told), *values.problems)
    whole = Combined(values.profile, values.spreads, problems)
    return Measured(whole, nodes, len(rounds), monotonic() - begun, here)


def _rounds(probes: Probes, begun: float, tell: Callable[[], object]) -> list[list[Profile]]:
    """Take as many rounds as fit into the time; rank 0's clock decides."""
    meeting, how = probes.meeting, probes.amounts()
    found = list[list[Profile]]()
    probes.round(0, how)  # caches and connections are cold
    meeting.barrier(STEP)
    for turn in range(ROUNDS):
        start = monotonic()
        own, spent = probes.round(turn, how), start - begun
        rows = meeting.allgather((own, spent + 2 * (monotonic() - start)), STEP)
        found.append([profile for profile, _ in rows])
        tell()
        if rows[0][1] > CALIBRATION:
            break
    return found


def _differing(told: list[_Told]) -> list[str]:
    """Say which nodes are others than that of rank 0."""
    kinds = grouped((one.kind, one.host) for one in told)
    if len(kinds) == 1:
        return []
    usual = told[0].kind
    others = {host for kind, hosts in kinds.items() if kind != usual for host in hosts}
    return [f"nodes differ: {', '.join(sorted(others)[:4])} from {told[0].host}"]
