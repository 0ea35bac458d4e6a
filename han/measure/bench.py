"""Measure han beside the MPI library, in turns, in one run.

Both sides make the same mpi4py calls on the same NumPy arrays. Their results are compared before
and after the timed calls.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from mpi4py import MPI

from han.common.errors import ArgumentError
from han.common.units import format_size, format_us
from han.config.config import load_config
from han.measure.bench_calls import Array, Buffers, Call, Case, Prepared, check_case, prepare
from han.measure.bench_machine import Machine, document, heading
from han.measure.modes import Mode
from han.measure.session import Session, summary
from han.model.measurements import FORMAT, Report, Times
from han.runtime.given import tell_problem
from han.tuning.costs.estimates import Estimate, estimate
from han.tuning.tuned.find import AUTO, OFF

SHORTEST_BATCH = 0.002  # seconds: barrier and clock distort shorter batches
UNBOUNDED = 1 << 40  # calls in a batch: its time alone counts
SIDES = ("han", "mpi")
DEFAULT = "default"  # the side that runs han's built-in choices, beside those of a tuned table


def batch_seconds(seconds: float, rounds: int, sides: int) -> float:
    """Return the length of a batch, if the batches of all sides and rounds take `seconds`."""
    return max(seconds / (rounds * sides), SHORTEST_BATCH)


@dataclass(frozen=True)
class Settings:
    """How to measure; `seconds` is the time of the timed calls of one size, of all sides together.

    `tuned`: han uses a tuned table, and its built-in choices are measured beside; False: built-in
    choices only; None: as configured.
    """

    mode: Mode = Mode.BLOCKING
    dtype: str = "float64"
    op: str = "sum"
    root: int = 0
    rounds: int = 9
    iterations: int | None = None
    seconds: float = 0.3
    check: bool = True
    only: str | None = None
    shared: bool = False
    fresh: bool = False  # write the data before each call, within the time
    tuned: bool | None = None

    def case(self, collective: str, nbytes: int) -> Case:
        """Return the case of one collective and size."""
        return Case(collective, nbytes, self.dtype, self.op, self.root)

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides to measure."""
        sides = SIDES if self.only is None else (self.only,)
        beside = (DEFAULT,) if self.tuned and "han" in sides else ()
        return (*sides[:1], *beside, *sides[1:])

    @property
    def batch_seconds(self) -> float:
        """The approximate length of a batch in seconds."""
        return batch_seconds(self.seconds, self.rounds, len(self.sides))

    @property
    def compares(self) -> bool:
        """Whether han's results are compared with MPI's."""
        return self.check and self.only != "mpi"


@dataclass(frozen=True)
class BenchRow:
    """One size of one collective.

    `interval` is that of `ratio`. `gain` says how many times longer built-in choices take than
    tuned ones, of the rounds' ratios; None if it was not measured. From six rounds on intervals
    hold the true median with 95 %.
    """

    collective: str
    nbytes: int
    times: Mapping[str, Times]
    notes: tuple[str, ...] = ()
    gain: Estimate | None = None
    interval: tuple[float, float] | None = None

    @property
    def ratio(self) -> float | None:
        """How many times longer the MPI library takes; None if only one side was measured."""
        if not {"mpi", "han"} <= self.times.keys():
            return None
        return self.times["mpi"].median / self.times["han"].median

    def record(self) -> dict[str, Any]:
        """Return the row as plain data."""
        record: dict[str, Any] = {"collective": self.collective, "nbytes": self.nbytes}
        record |= {side: asdict(times) for side, times in self.times.items()}
        record["ratio"] = self.ratio
        if self.interval is not None:
            record["ratio_low"], record["ratio_high"] = self.interval
        if self.gain is not None:
            ends = {"gain_low": self.gain.low, "gain_high": self.gain.high}
            record |= {"gain": self.gain.median, **ends}
        return record | {"notes": list(self.notes)}


def _with_table(source: Any, tuned: bool | None) -> Any:
    """Return a configuration that uses a tuned table, or none; None: as it is."""
    if tuned is None:
        return source
    config = load_config(source)
    off = AUTO if config.tuned == OFF else config.tuned
    return replace(config, tuned=off if tuned else OFF)


def alike(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the calls of each side's batches; those of both sides of han are equally long.

    What a call takes depends on how many came before it, as links and ranks fall behind.
    """
    most = max((counts[side] for side in ("han", DEFAULT) if side in counts), default=0)
    return {side: most if side in ("han", DEFAULT) else n for side, n in counts.items()}


def _interval(us: Mapping[str, Array], times: Mapping[str, Times]) -> tuple[float, float] | None:
    """Return the interval of the ratio, that of the rounds' ratios; None for one side.

    The ratio is that of the medians, which the interval is widened to hold.
    """
    if not {"mpi", "han"} <= us.keys():
        return None
    found = estimate([float(ratio) for ratio in us["mpi"] / us["han"]])
    ratio = times["mpi"].median / times["han"].median
    return min(found.low, ratio), max(found.high, ratio)


def _gain(us: Mapping[str, Array]) -> Estimate | None:
    """Return the gain from the microseconds of each round; None if there is no tuned side."""
    if DEFAULT not in us:
        return None
    return estimate([float(ratio) for ratio in us[DEFAULT] / us["han"]])


def _write_and_call(buffers: Buffers, call: Call) -> None:
    buffers.write()
    call()


class Bench(Session):
    """han beside the MPI library. Making one is collective; use it in ``with``."""

    def __init__(self, comm: MPI.Intracomm, config: Any, settings: Settings) -> None:
        super().__init__(comm, settings.rounds, settings.iterations)
        self.settings = settings
        config = _with_table(config, settings.tuned)
        with warnings.catch_warnings():
            if settings.tuned:  # a table that is no use ends the bench
                warnings.filterwarnings("ignore", "tuned table: ", UserWarning)
            self.han = self.add_han(config) if "han" in settings.sides else None
        self.comms: dict[str, MPI.Intracomm] = {} if self.han is None else {"han": self.han}
        if DEFAULT in settings.sides and self.han is not None:
            found = self.han._han.parts.given.tuned
            if found.table is None:
                raise ArgumentError(f"no tuned table: {found.missing}")
            tell_problem(found, comm.rank)
            self.comms[DEFAULT] = self.add_han(_with_table(config, False))
        if "mpi" in settings.sides or settings.compares:
            self.comms["mpi"] = self.add_mpi()

    def measure(self, case: Case) -> BenchRow:
        """Measure one case."""
        with self.ready(case) as (timed, notes):
            seconds = self.settings.batch_seconds
            counts = alike(
                {
                    side: self.batch_size(call, seconds, most=UNBOUNDED)
                    for side, call in timed.items()
                }
            )
            us = self.in_turns(timed, counts)
        times = summary(us, counts)
        interval = _interval(us, times)
        return BenchRow(case.collective, case.nbytes, times, notes, _gain(us), interval)

    @contextmanager
    def ready(self, case: Case) -> Iterator[tuple[dict[str, Call], tuple[str, ...]]]:
        """Give the calls of a case to time, and notes; compare the results before and after."""
        check_case(case, self.control.size)
        settings, control = self.settings, self.control
        buffers = Buffers(case, control.rank, control.size, settings.shared)
        prepared = {
            side: prepare(comm, buffers, settings.mode) for side, comm in self.comms.items()
        }
        compared = {side: one.call for side, one in prepared.items()} if settings.compares else {}
        if compared:
            self.compare(buffers, compared)
        notes = tuple(f"{side}: {one.note}" for side, one in prepared.items() if one.note)
        yield self._timed(buffers, prepared), notes
        if compared:
            self.compare(buffers, compared)  # later calls take quicker paths than the first
        for one in prepared.values():
            one.free()

    def _timed(self, buffers: Buffers, prepared: Mapping[str, Prepared]) -> dict[str, Call]:
        calls = {side: prepared[side].call for side in self.settings.sides}
        if self.settings.fresh:
            return {side: partial(_write_and_call, buffers, call) for side, call in calls.items()}
        return calls


# ---- reports ------------------------------------------------------------------------------------


# Columns of a line of 80 letters: of two sides with their spread, or of three without.
TIME, SPREAD, RATIO, BARE = 9, 17, 19, 11


def report(
    machine: Machine,
    settings: Settings,
    rows: Iterable[BenchRow],
    config: str = "",
    others: float | None = None,
) -> Report:
    """Return the Report of a run.

    `config` is han's configuration as YAML, `others` the number of processors that other programs
    used.
    """
    how = {
        "mode": settings.mode.value, "dtype": settings.dtype, "op": settings.op,
        "root": settings.root, "rounds": settings.rounds, "shared": settings.shared,
        "fresh": settings.fresh,
    }  # fmt: skip
    more: dict[str, object] = {"config": config} if config else {}
    if others is not None:
        more["others"] = round(others, 2)
    records = [row.record() for row in rows]
    data = document(FORMAT.name, FORMAT.version, machine, records, settings=how, **more)
    return Report(machine.library, data)


# ---- tables -----------------------------------------------------------------------------------


def head(machine: Machine, settings: Settings) -> str:
    """Return the lines above the tables."""
    about = (
        f"{settings.mode.value} calls on {'shared' if settings.shared else 'ordinary'} arrays"
        f"{', written before each call' if settings.fresh else ''}; "
        f"reductions: {settings.dtype} {settings.op}"
    )
    spread = "" if DEFAULT in settings.sides else " (least..most)"
    notes = [f"times     us a call of the slowest rank: median of {settings.rounds} rounds{spread}"]
    if settings.only is None:
        notes.append("ratio     the library's time / han's (interval of 95 %)")
    if settings.tuned:
        notes.append("gain      time of built-in choices (default) / of tuned ones (95 %)")
    return heading("bench", about, machine, *notes)


def table_head(collective: str, machine: Machine, settings: Settings) -> str:
    """Return the title and the column heads of one collective."""
    tuned = DEFAULT in settings.sides
    titles = {"han": "han", DEFAULT: DEFAULT, "mpi": "library" if tuned else machine.library}
    width = BARE if tuned else TIME + SPREAD
    columns = "".join(f"{titles[s]:>{width}}" for s in settings.sides)
    ratio = f"{'ratio':>{RATIO}}" if settings.only is None else ""
    gain = f"{'gain':>{RATIO}}" if tuned else ""
    return f"\n# {collective}\n#{'size':>7}{columns}{ratio}{gain}"


def table_row(row: BenchRow) -> str:
    """Return the line of one size. Where tuned choices are measured, times have no spread."""
    tuned = DEFAULT in row.times
    times = (
        f"{format_us(one.median):>{BARE}}" if tuned else _times(one)
        for one in row.times.values()
    )  # fmt: skip
    ratios = "" if row.ratio is None else _ratio(row.ratio, *(row.interval or ()))
    gain = "" if row.gain is None else _ratio(row.gain.median, row.gain.low, row.gain.high)
    notes = "".join(f"\n#         {note}" for note in row.notes)
    return f"{format_size(row.nbytes):>8}{''.join(times)}{ratios}{gain}{notes}"


def _times(times: Times) -> str:
    spread = f"({format_us(times.low)}..{format_us(times.high)})"
    return f"{format_us(times.median):>{TIME}}{spread:>{SPREAD}}"


def _ratio(middle: float, *ends: float) -> str:
    interval = f" ({'..'.join(f'{end:.2f}' for end in ends)})" if ends else ""
    return f"{f'{middle:.2f}{interval}':>{RATIO}}"
