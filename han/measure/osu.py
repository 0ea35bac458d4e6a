"""Times as the OSU micro-benchmarks take and print them, of han or of the MPI library.

A barrier follows each call, outside of its time, and the time of a rank is the mean of its calls. A
row has the mean, the least and the greatest of the ranks' times. Numbers of calls and columns are
those of OSU's version 7.4, with its option ``-f``.
"""

from __future__ import annotations

from typing import NamedTuple

from han.measure.bench import Bench, Settings
from han.measure.bench_calls import Case
from han.measure.bench_machine import Machine, heading
from han.measure.modes import Mode
from han.model.collectives import DATALESS, REDUCING

LARGE = 8192  # bytes: larger messages have fewer calls
CALLS, LARGE_CALLS = 1000, 100
WARM_UP, LARGE_WARM_UP = 100, 10
# Where OSU does not name the MPI call.
TITLES = {
    "bcast": "Broadcast",
    "alltoall": "All-to-All Personalized Exchange",
    "alltoallv": "All-to-Allv Personalized Exchange",
}
FIRST, FIRST_ALONE, COLUMN, LAST = 10, 17, 20, 12  # characters


class OsuRow(NamedTuple):
    """One size: microseconds per call, over the ranks; `nbytes` is what OSU calls the size."""

    collective: str
    nbytes: int
    average: float
    least: float
    greatest: float
    calls: int
    notes: tuple[str, ...] = ()


def dtype_of(collective: str) -> str:
    """Return the element type that a collective has by default."""
    return "float32" if collective in REDUCING else "uint8"


def measure(bench: Bench, case: Case) -> OsuRow:
    """Measure a case on the only side of `bench`; collective."""
    ranks = bench.control.size
    size = case.nbytes * (ranks if case.collective == "reduce_scatter" else 1)
    warm_up = LARGE_WARM_UP if size > LARGE else WARM_UP
    calls = bench.calls or (LARGE_CALLS if size > LARGE else CALLS)
    with bench.ready(case) as (timed, notes):
        (call,) = timed.values()
        bench.apart(call, warm_up)
        us = [one * 1e6 for one in bench.control.allgather(bench.apart(call, calls))]
    return OsuRow(case.collective, size, sum(us) / ranks, min(us), max(us), calls, notes)


def heading_of(machine: Machine, settings: Settings) -> str:
    """Return the lines above all tables."""
    about = f"{settings.mode.value} calls, measured and printed as OSU's micro-benchmarks do"
    return heading("bench --osu", about, machine)


def head(case: Case, machine: Machine, settings: Settings) -> str:
    """Return the lines above the table of a collective."""
    title = TITLES.get(case.collective, case.shape.method)
    kind = " Persistent" if settings.mode is Mode.PERSISTENT else ""
    side = f"han on {machine.library}" if settings.only == "han" else machine.library
    lines = [
        f"# OSU MPI {title}{kind} Latency Test, of han bench: {side}",
        f"# Datatype: {case.dtype}.",
        _columns(case.collective in DATALESS),
    ]
    return "\n" + "\n".join(lines)


def _columns(alone: bool) -> str:
    """Return the heads of the columns; `alone`: no column has the size."""
    first = "# Avg Latency(us)" if alone else f"{'# Size':<{FIRST}}{'Avg Latency(us)':>{COLUMN}}"
    others = "".join(f"{name + ' Latency(us)':>{COLUMN}}" for name in ("Min", "Max"))
    return f"{first}{others}{'Iterations':>{LAST}}"


def line(row: OsuRow) -> str:
    """Return the line of one size, after a comment if the call is not of the wanted mode."""
    alone = row.collective in DATALESS
    first = "" if alone else f"{row.nbytes:<{FIRST}d}"
    average = f"{row.average:>{FIRST_ALONE if alone else COLUMN}.2f}"
    others = f"{row.least:>{COLUMN}.2f}{row.greatest:>{COLUMN}.2f}{row.calls:>{LAST}d}"
    return "".join(f"# {note}\n" for note in row.notes) + first + average + others
