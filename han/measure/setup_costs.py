"""Measure the costs of set-up, and when a persistent request pays.

The first call of a signature makes a plan, or takes that of an earlier communicator. Later calls
find the plan. A persistent request has its plan and channels from the beginning. Times are medians
over rounds, of the slowest rank. What happens once is measured on new communicators in each round.
Later calls, blocking and persistent ones, take turns on one communicator, as in ``han bench``, so
that both commands give the same answer.

Source of the question: Jocksch et al., figure 14.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from han.comm import Comm
from han.measure.bench import UNBOUNDED
from han.measure.bench_calls import Buffers, Call, Case, prepare
from han.measure.modes import Mode
from han.measure.session import Session, begin_anew

PARTS = {
    "comm": "making a han.Comm",
    "first": "first call, which makes the plan",
    "shared": "first call with a plan of an earlier communicator",
    "cached": "later blocking call",
    "init": "making a persistent request",
    "persistent": "start and wait of a persistent request",
}
ONCE = ("comm", "first", "shared", "init")  # the others are measured in turns
ALIKE = 0.03  # of a time
LATER = (Mode.BLOCKING, Mode.PERSISTENT)


@dataclass(frozen=True)
class SetupCosts:
    """Microseconds of one collective and size, by the parts of ``PARTS``."""

    collective: str
    nbytes: int
    comm: float
    first: float
    shared: float
    cached: float
    init: float
    persistent: float

    @property
    def pays(self) -> int | None:
        """The least n for which n persistent calls cost less than n blocking ones; None: never.

        n blocking calls cost first + (n - 1) cached, n persistent ones init + n persistent. Times
        that differ by less than ALIKE are those of calls that are alike.
        """
        ahead, gain = self.init - self.first + self.cached, self.cached - self.persistent
        if ahead < gain:
            return 1
        return math.floor(ahead / gain) + 1 if gain > ALIKE * self.cached else None

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self) | {"pays_after": self.pays}

    def per_call(self, calls: int) -> dict[str, float]:
        """Return microseconds per call of `calls` calls, set-up included, by kind of call."""
        return {
            "blocking": (self.first + (calls - 1) * self.cached) / calls,
            "persistent": (self.init + calls * self.persistent) / calls,
        }


def measure(
    session: Session,
    config: Any,
    cases: Sequence[Case],
    seconds: float,
    advance: Callable[[], object] = lambda: None,
) -> list[SetupCosts]:
    """Measure the cases; collective. The batches of later calls take about `seconds` each.

    `advance` is called after each case in each of the steps that :func:`steps_of` counts.
    """
    later = _later(session, config, cases, seconds, advance)
    mine = np.zeros((session.rounds + 1, len(cases), len(ONCE)))  # the first round warms up
    for found in mine:
        found[:] = _round(session, config, cases, advance)
    medians = (np.median(session.slowest(mine[1:]), axis=0) * 1e6).tolist()
    return [
        SetupCosts(case.collective, case.nbytes, **dict(zip(ONCE, row, strict=True)), **both)
        for case, row, both in zip(cases, medians, later, strict=True)
    ]


def steps_of(session: Session) -> int:
    """Return how often each case is measured: in each round, in one that warms up, and in turns."""
    return session.rounds + 2


def _later(
    session: Session, config: Any, cases: Sequence[Case], seconds: float,
    advance: Callable[[], object],
) -> list[dict[str, float]]:  # fmt: skip
    """Measure blocking and persistent calls of each case in turns; return microseconds."""
    comm = session.add_han(config)
    found = []
    for case in cases:
        buffers = Buffers(case, comm.rank, comm.size)
        blocking, persistent = (prepare(comm, buffers, mode) for mode in LATER)
        calls = {"cached": blocking.call, "persistent": persistent.call}
        times = session.times(calls, seconds, most=UNBOUNDED)
        found.append({name: one.median for name, one in times.items()})
        persistent.free()
        advance()
    return found


def _round(
    session: Session, config: Any, cases: Sequence[Case], advance: Callable[[], object]
) -> list[list[float]]:
    """Measure all cases on new communicators; return seconds by case and part, on this rank."""
    control = session.control
    begin_anew()
    plain = control.Dup()
    made: list[Comm] = []
    making = session.batch(lambda: made.append(Comm(plain, config)))
    own = []
    for case in cases:
        own.append(_case(made[0], session, case))
        advance()
    made[0].Free()
    shared = _first_calls(session, config, cases)
    return [
        [making, first, second, init] for (first, init), second in zip(own, shared, strict=True)
    ]


def _first_calls(session: Session, config: Any, cases: Sequence[Case]) -> list[float]:
    """Measure the first call of each case on a new communicator."""
    comm = Comm(session.control.Dup(), config)
    seconds = [session.batch(_call(comm, session.control, case)) for case in cases]
    comm.Free()
    return seconds


def _call(comm: Comm, control: MPI.Intracomm, case: Case) -> Call:
    return prepare(comm, Buffers(case, control.rank, control.size), Mode.BLOCKING).call


def _case(comm: Comm, session: Session, case: Case) -> tuple[float, float]:
    """Measure the first call of a case, and making a persistent request."""
    buffers = Buffers(case, comm.rank, comm.size)
    call = prepare(comm, buffers, Mode.BLOCKING).call
    first = session.batch(call)
    made: list[Any] = []
    init = session.batch(lambda: made.append(prepare(comm, buffers, Mode.PERSISTENT)))
    made[0].call()
    made[0].free()
    return first, init
