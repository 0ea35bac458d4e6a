"""Measure the wait policies against each other, in turns, in one run.

Which one is best depends on the number of ranks and processors. A rank that spins reacts at once,
but on an oversubscribed node it may hold the processor of the rank that it waits for. The MPI
library's own call is measured too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from time import perf_counter
from typing import Any

from mpi4py import MPI

from han.config.config import load_config
from han.measure.bench_calls import Buffers, Call, Case, prepare
from han.measure.modes import Mode
from han.measure.session import Session

MPI_LIBRARY = "MPI"  # stands in the place of a policy
ROUNDS = 200_000  # of the loop whose time says how many rounds a rank works


@dataclass(frozen=True)
class Waited:
    """Microseconds per call of the slowest rank: median, least and greatest round."""

    collective: str
    nbytes: int
    policy: str
    median: float
    low: float
    high: float


def measure(
    session: Session,
    config: Any,
    policies: Sequence[str],
    cases: Sequence[Case],
    seconds: float,
    work: float = 0.0,
    advance: Callable[[], object] = lambda: None,
) -> list[Waited]:
    """Measure every case under every policy; collective. A batch takes about `seconds`.

    Before each call every rank but 0 works for `work` seconds, as measured while the other ranks
    are idle. `advance` is called after each case.
    """
    loaded = load_config(config)
    comms: dict[str, MPI.Intracomm] = {
        policy: session.add_han(replace(loaded, wait=loaded.wait.under(policy)))
        for policy in policies
    }
    comms[MPI_LIBRARY] = session.add_mpi()
    rounds = _rounds(session.control, work)
    found: list[Waited] = []
    for case in cases:
        buffers = Buffers(case, session.control.rank, session.control.size)
        calls = {
            name: _after(rounds, prepare(one, buffers, Mode.BLOCKING).call)
            for name, one in comms.items()
        }
        found += [
            Waited(case.collective, case.nbytes, name, times.median, times.low, times.high)
            for name, times in session.times(calls, seconds).items()
        ]
        advance()
    return found


def _rounds(comm: MPI.Intracomm, work: float) -> int:
    """Return how many rounds of a loop this rank works; collective."""
    if not work:
        return 0
    begun = perf_counter()
    if comm.rank == 0:
        _turn(ROUNDS)
    rounds: int = comm.bcast(round(ROUNDS * work / (perf_counter() - begun)))
    return rounds if comm.rank else 0


def _turn(rounds: int) -> None:
    for _ in repeat(None, rounds):
        pass


def _after(rounds: int, call: Call) -> Call:
    """Return a call that works first."""
    if not rounds:
        return call

    def works() -> None:
        _turn(rounds)
        call()

    return works
