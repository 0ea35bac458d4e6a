"""Measure the wait policies against each other, in turns, in one run.

Which one is best depends on the number of ranks and processors. A rank that spins reacts at once,
but on an oversubscribed node it may hold the processor of the rank that it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from han.config.config import load_config
from han.measure.bench_calls import Buffers, Case, Mode, prepare
from han.measure.session import Session


@dataclass(frozen=True)
class Waited:
    """Microseconds per call of the slowest rank: median, least and greatest round."""

    collective: str
    nbytes: int
    policy: str
    median: float
    low: float
    high: float

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def measure(
    session: Session,
    config: Any,
    policies: Sequence[str],
    cases: Sequence[Case],
    seconds: float,
    advance: Callable[[], object] = lambda: None,
) -> list[Waited]:
    """Measure every case under every policy; collective. A batch takes about `seconds`.

    `advance` is called after each case.
    """
    loaded = load_config(config)
    comms = {
        policy: session.add_han(replace(loaded, wait=loaded.wait.under(policy)))
        for policy in policies
    }
    found: list[Waited] = []
    for case in cases:
        buffers = Buffers(case, session.control.rank, session.control.size)
        calls = {name: prepare(one, buffers, Mode.BLOCKING).call for name, one in comms.items()}
        found += [
            Waited(case.collective, case.nbytes, name, times.median, times.low, times.high)
            for name, times in session.times(calls, seconds).items()
        ]
        advance()
    return found
