"""The calibration of a machine: what the ranks of a communicator measure in a few seconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from mpi4py import MPI

from han.common.errors import SetupError
from han.common.grouped import grouped
from han.common.system import text_of
from han.config.arrange import Facts
from han.ranks.calibration import begin, remember
from han.ranks.discover import outnumber_processors
from han.ranks.machine import fingerprint
from han.ranks.meeting import Meeting
from han.runtime.measured import CALIBRATION, PACE, ROUNDS
from han.runtime.probes import STEP, Probes
from han.tuning.profile import Profile
from han.tuning.tuned.calibrated import (
    UNUSED,
    Calibration,
    CalibrationError,
    file_of,
    write,
)
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


def calibrated_first(meeting: Meeting, facts: tuple[Facts, ...]) -> tuple[Facts, ...]:
    """Calibrate, keep it on rank 0, and return facts with what was measured; collective.

    If it is of no use, the facts stay as they are, and rank 0 tells why.
    """
    begin()
    try:
        found = calibrate(meeting, facts[meeting.rank].memory)
    except SetupError as error:  # on all ranks
        return _uncalibrated(meeting, facts, [str(error)])
    if found.values.problems:
        return _uncalibrated(meeting, facts, found.values.problems)
    if meeting.rank == 0:
        try:
            write(file_of(found.machine), found.calibration)
        except CalibrationError as error:
            remember(str(error))
    profile = found.values.profile.over(Profile(*facts[0].profile))
    return replace(facts[0], profile=tuple(profile)), *facts[1:]


def _uncalibrated(
    meeting: Meeting, facts: tuple[Facts, ...], problems: Sequence[str]
) -> tuple[Facts, ...]:
    if meeting.rank == 0:
        remember(f"not kept: {'; '.join(problems)}{UNUSED}")
    return facts


class _Told(NamedTuple):
    memory: int
    host: str
    cores: int
    kind: tuple[object, ...]
    system: str  # containers of one system have the same one, whatever their names are
    cpus: frozenset[int]


def calibrate(meeting: Meeting, memory: int, tell: Callable[[], object] = lambda: None) -> Measured:
    """Measure the machine; collective.

    `memory` is the lowest rank that this one shares memory with. `tell` is called after each round.
    """
    begun, here = monotonic(), fingerprint()
    kind = tuple(getattr(here, name) for name in (*SAME, "layout"))
    host, system = MPI.Get_processor_name(), text_of(BOOT)
    cpus = frozenset(os.sched_getaffinity(0))
    mine = _Told(memory, host, os.cpu_count() or 0, kind, system or host, cpus)
    told = meeting.allgather(mine, STEP)
    crowded = outnumber_processors((one.system, one.cpus) for one in told)
    probes = Probes(meeting, [one.memory for one in told], crowded)
    rounds = _rounds(probes, begun, tell)
    nodes = probes.nodes.ranks
    values = combined(rounds, nodes, min(one.cores for one in told), crowded)
    problems = (*_differing(told), *values.problems)
    profile = values.profile if _has_all(meeting) else values.profile._replace(injection=0.0)
    whole = Combined(profile, values.spreads, problems)
    return Measured(whole, nodes, len(rounds), monotonic() - begun, here)


def _has_all(meeting: Meeting) -> bool:
    """Return whether all ranks of the job take part: some of a node may not use all of its link."""
    return MPI.Is_initialized() and meeting.size == MPI.COMM_WORLD.Get_size()


def _rounds(probes: Probes, begun: float, tell: Callable[[], object]) -> list[list[Profile]]:
    """Take as many rounds as fit into the time; rank 0's clock decides."""
    meeting, how = probes.meeting, probes.amounts()
    found = list[list[Profile]]()
    probes.memory(0)  # caches are cold
    for turn in range(ROUNDS):
        start = monotonic()
        own = probes.round(turn, how)
        sleep(max(0.0, start + PACE - monotonic()))
        then = 2 * monotonic() - start - begun  # the end of a further round
        rows = meeting.allgather((own, then), STEP)
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
