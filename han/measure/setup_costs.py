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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from han.comm import Comm
from han.config.rc import rc
from han.measure.bench_calls import Buffers, Call, Case, Mode, prepare
from han.measure.session import Session

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
    session: Session,
    config: Any,
    cases: Sequence[Case],
    calls: int,
    advance: Callable[[], object] = lambda: None,
) -> list[Costs]:
    """Measure the cases; collective. `calls` are averaged where one is too short.

    `advance` is called after each case of each of the ``rounds_of`` a session.
    """
    mine = np.zeros((rounds_of(session), len(cases), len(PARTS)))
    with tempfile.TemporaryDirectory(prefix="han-setup-") as folder, _wisdom_restored():
        for found in mine:
            found[:] = _round(session, config, cases, calls, folder, advance)
    medians = np.median(session.slowest(mine[1:]), axis=0) * 1e6
    return [
        Costs(case.collective, case.nbytes, *map(float, row))
        for case, row in zip(cases, medians, strict=True)
    ]


def rounds_of(session: Session) -> int:
    """Return the number of rounds: one more warms up, and fills the folder of stored plans."""
    return session.rounds + 1


@contextlib.contextmanager
def _wisdom_restored() -> Iterator[None]:
    before = rc.wisdom
    try:
        yield
    finally:
        rc.wisdom = before


def _round(
    session: Session, config: Any, cases: Sequence[Case], calls: int, folder: str,
    advance: Callable[[], object],
) -> list[list[float]]:  # fmt: skip
    """Measure all cases on new communicators; return seconds by case and part, on this rank."""
    control = session.control
    rc.wisdom = folder
    storing = Comm(control.Dup(), config)
    stored = [session.batch(_call(storing, control, case)) for case in cases]
    storing.Free()
    rc.wisdom = ""  # none, whatever the environment says
    plain = control.Dup()
    made: list[Comm] = []
    making = session.batch(lambda: made.append(Comm(plain, config)))
    rows = []
    for case, kept in zip(cases, stored, strict=True):
        first, cached, init, persistent = _case(made[0], session, case, calls)
        rows.append([making, first, kept, cached, init, persistent])
        advance()
    made[0].Free()
    return rows


def _call(comm: Comm, control: MPI.Intracomm, case: Case) -> Call:
    return prepare(comm, Buffers(case, control.rank, control.size), Mode.BLOCKING).call


def _case(comm: Comm, session: Session, case: Case, calls: int) -> tuple[float, ...]:
    buffers = Buffers(case, comm.rank, comm.size)
    call = prepare(comm, buffers, Mode.BLOCKING).call
    first = session.batch(call)
    for _ in range(SETTLING):
        call()
    cached = session.batch(call, calls)
    made: list[Any] = []
    init = session.batch(lambda: made.append(prepare(comm, buffers, Mode.PERSISTENT)))
    made[0].call()
    persistent = session.batch(made[0].call, calls)
    made[0].free()
    return first, cached, init, persistent
