"""Measure the wait policies against each other, in turns, in one run.

Which one is best depends on how many ranks share the processors: spinning reacts at once, but
keeps whoever is waited for from running where there are more ranks than processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

from han.comm import Comm
from han.config.config import load_config
from han.measure.bench_calls import Buffers, Call, Case, Mode, prepare


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
    comm: MPI.Intracomm,
    config: Any,
    policies: Sequence[str],
    cases: Sequence[Case],
    rounds: int,
    seconds: float,
) -> list[Waited]:
    """Measure every case under every policy; collective. A batch takes about `seconds`."""
    loaded, control = load_config(config), comm.Dup()
    comms = {
        policy: Comm(comm.Dup(), replace(loaded, wait=loaded.wait.under(policy)))
        for policy in policies
    }
    found: list[Waited] = []
    for case in cases:
        buffers = Buffers(case, comm.rank, comm.size)
        calls = {name: prepare(one, buffers, Mode.BLOCKING).call for name, one in comms.items()}
        found += _case(control, case, calls, rounds, seconds)
    for one in (*comms.values(), control):
        one.Free()
    return found


def _case(
    control: MPI.Intracomm, case: Case, calls: dict[str, Call], rounds: int, seconds: float
) -> list[Waited]:
    counts = {name: _count(control, call, seconds) for name, call in calls.items()}
    mine = np.array(
        [[_batch(control, calls[name], n) for name, n in counts.items()] for _ in range(rounds)]
    )
    slowest = np.empty_like(mine)
    control.Allreduce(mine, slowest, MPI.MAX)
    return [
        Waited(case.collective, case.nbytes, name, *map(float, (np.median(us), us.min(), us.max())))
        for name, us in zip(calls, slowest.T * 1e6, strict=True)
    ]


def _batch(control: MPI.Intracomm, call: Call, calls: int) -> float:
    control.Barrier()
    begun = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - begun) / calls


def _count(control: MPI.Intracomm, call: Call, seconds: float) -> int:
    """Warm up, and return how many calls make a batch; the same on all ranks."""
    _batch(control, call, 1)
    each: float = control.allreduce(_batch(control, call, 3), op=MPI.MAX)
    return max(1, round(min(10_000, seconds / each)))
