"""Measure what setting up costs, and when a persistent request pays.

The question of Jocksch et al., figure 14, for every part of han's set-up: the first call of a
shape plans, the next ones find the plan, a stored plan (HAN_WISDOM) is read instead of made, and a
persistent request has its plan and channels from the beginning. All times are those of the
slowest rank, the median over some rounds, each with communicators of its own.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

from han.comm import Comm
from han.config.rc import rc
from han.measure.bench_calls import Buffers, Call, Case, Mode, prepare

PARTS = {
    "comm": "making a han.Comm",
    "first": "first call: plans",
    "stored": "first call with a stored plan",
    "cached": "blocking call, plan found",
    "init": "making a persistent request",
    "persistent": "its start and wait",
}
SETTLING = 32  # calls between the first one and the cached ones: the second may plan, others try


@dataclass(frozen=True)
class Costs:
    """Microseconds of one collective and size, by the parts of ``PARTS``."""

    collective: str
    nbytes: int
    comm: float
    first: float
    stored: float
    cached: float
    init: float
    persistent: float

    @property
    def pays(self) -> int | None:
        """Calls after which a persistent request has cost less than blocking calls; None: never.

        n blocking calls cost first + (n - 1) cached, n starts cost init + n persistent.
        """
        ahead, gain = self.init - self.first + self.cached, self.cached - self.persistent
        if ahead < gain:
            return 1
        return math.floor(ahead / gain) + 1 if gain > 0 else None

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self) | {"pays_after": self.pays}

    def per_call(self, calls: int) -> dict[str, float]:
        """Return microseconds per call of `calls` calls, set-up included, by how they are made."""
        return {
            "blocking": (self.first + (calls - 1) * self.cached) / calls,
            "blocking, stored plan": (self.stored + (calls - 1) * self.cached) / calls,
            "persistent": (self.init + calls * self.persistent) / calls,
        }


def measure(
    comm: MPI.Intracomm, config: Any, cases: Sequence[Case], rounds: int, calls: int
) -> list[Costs]:
    """Measure the cases; collective over `comm`. `calls` are averaged where one is too short."""
    control = comm.Dup()
    mine = np.zeros((rounds, len(cases), len(PARTS)))
    with tempfile.TemporaryDirectory(prefix="han-setup-") as folder, _wisdom_restored():
        for k in range(rounds + 1):  # the first one warms up, and fills the folder
            found = _round(control, config, cases, calls, folder)
            if k:
                mine[k - 1] = found
    slowest = np.empty_like(mine)
    control.Allreduce(mine, slowest, MPI.MAX)
    control.Free()
    medians = np.median(slowest, axis=0) * 1e6
    return [
        Costs(case.collective, case.nbytes, *map(float, row))
        for case, row in zip(cases, medians, strict=True)
    ]


@contextlib.contextmanager
def _wisdom_restored() -> Iterator[None]:
    before = rc.wisdom
    try:
        yield
    finally:
        rc.wisdom = before


def _round(
    control: MPI.Intracomm, config: Any, cases: Sequence[Case], calls: int, folder: str
) -> list[list[float]]:
    """Measure all cases on new communicators; return seconds by case and part, on this rank."""
    rc.wisdom = folder
    storing = Comm(control.Dup(), config)
    stored = [_timed(control, _call(storing, control, case)) for case in cases]
    storing.Free()
    rc.wisdom = ""  # none, whatever the environment says
    plain = control.Dup()
    made: list[Comm] = []
    making = _timed(control, lambda: made.append(Comm(plain, config)))
    rows = []
    for case, kept in zip(cases, stored, strict=True):
        first, cached, init, persistent = _case(made[0], control, case, calls)
        rows.append([making, first, kept, cached, init, persistent])
    made[0].Free()
    return rows


def _call(comm: Comm, control: MPI.Intracomm, case: Case) -> Call:
    return prepare(comm, Buffers(case, control.rank, control.size), Mode.BLOCKING).call


def _case(comm: Comm, control: MPI.Intracomm, case: Case, calls: int) -> tuple[float, ...]:
    buffers = Buffers(case, control.rank, control.size)
    call = prepare(comm, buffers, Mode.BLOCKING).call
    first = _timed(control, call)
    for _ in range(SETTLING):
        call()
    cached = _timed(control, call, calls)
    made: list[Any] = []
    init = _timed(control, lambda: made.append(prepare(comm, buffers, Mode.PERSISTENT)))
    made[0].call()
    persistent = _timed(control, made[0].call, calls)
    made[0].free()
    return first, cached, init, persistent


def _timed(control: MPI.Intracomm, call: Call, calls: int = 1) -> float:
    """Return the seconds of a call, from a barrier on."""
    control.Barrier()
    begun = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - begun) / calls
