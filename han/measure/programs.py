"""Measure what programs do besides repeating one call: ``han bench --programs``.

han and the MPI library take turns in one run. The results of both sides are compared after the
first call of a row, and after the timed ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from mpi4py import MPI

from han.comm import Comm
from han.common.errors import WrongResultError
from han.common.suggest import expect_known
from han.common.tables import shown_table
from han.common.units import format_us, spans
from han.measure import program_left, program_mix, program_rows, program_vectors
from han.measure.bench import SIDES, Settings
from han.measure.bench_machine import Machine, document, heading
from han.measure.program_mix import DEFAULT, MIXED, mixed
from han.measure.program_rows import ProgramRow, Work
from han.measure.program_sizes import BLOCKS, LARGE, SIZES, SMALL, Passes, Sizes, passes
from han.measure.session import WARM_UP, Session, begin_anew
from han.model.measurements import Times

FORMAT, VERSION = "han-bench-programs", 1
LOW = 0.9  # ratios below are marked
SPREAD = "min .. max"


@dataclass(frozen=True)
class ProgramResult:
    """The times of a row by side, and a note; without times, it says why there are none."""

    group: str
    name: str
    times: Mapping[str, Times]
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times longer the MPI library takes; None if it was not measured."""
        return self.times["mpi"].median / self.times["han"].median if self.times else None

    @property
    def low(self) -> bool:
        """Whether the ratio is below LOW."""
        return self.ratio is not None and self.ratio < LOW

    def record(self) -> dict[str, Any]:
        """Return the row as plain data."""
        times = {side: asdict(found) for side, found in self.times.items()}
        record: dict[str, Any] = {"group": self.group, "name": self.name, **times}
        return record | {"ratio": self.ratio, "note": self.note}


def mean_ratio(results: Sequence[ProgramResult]) -> float | None:
    """Return the geometric mean of the ratios; None if nothing was measured."""
    ratios = [r.ratio for r in results if r.ratio is not None]
    return geometric_mean(ratios) if ratios else None


def report(
    machine: Machine, settings: Settings, replay: Path | None, results: Sequence[ProgramResult],
    config: str, others: float,
) -> dict[str, Any]:  # fmt: skip
    """Return the JSON document of a run.

    `replay` is a file of statistics, whose calls took the place of han's own mix. `config` is han's
    configuration as YAML, `others` the number of processors that other programs used.
    """
    how = {
        "rounds": settings.rounds, "seconds": settings.seconds, "check": settings.check,
        "mix": (replay or DEFAULT).name,
    }  # fmt: skip
    return document(
        FORMAT, VERSION, machine, [one.record() for one in results], settings=how, config=config,
        mean_ratio=mean_ratio(results), others=round(others, 2),
    )  # fmt: skip


# ---- text ---------------------------------------------------------------------------------------


def head(machine: Machine, settings: Settings) -> str:
    """Return the lines above the table."""
    return heading(
        "bench --programs",
        "what programs do besides repeating one call",
        machine,
        f"times     microseconds of the slowest rank: median of {settings.rounds} rounds "
        f"({SPREAD}); small calls are of 32 bytes",
        f"ratio     time of the MPI library / time of han; * marks those below {LOW}",
    )


def table(machine: Machine, results: Sequence[ProgramResult]) -> str:
    """Return the table of all rows."""
    heads = ["rows", "a call or step", "han", SPREAD, machine.library, SPREAD, "ratio", ""]
    rows, before = [], ""
    for one in results:
        rows.append([one.group if one.group != before else "", one.name, *_cells(one)])
        before = one.group
    return shown_table("", heads, rows, left=("a call or step", ""))


def _cells(one: ProgramResult) -> list[str]:
    if one.ratio is None:
        return ["-", "", "-", "", "-", f"  {one.note}"]
    times = [text for side in SIDES for text in _times(one.times[side])]
    return [*times, f"{one.ratio:.3g}", f"{'*' if one.low else ' '} {one.note}"]


def _times(times: Times) -> tuple[str, str]:
    return format_us(times.median), f"{format_us(times.low)} .. {format_us(times.high)}"


def summary(results: Sequence[ProgramResult]) -> str:
    """Return the lines below the table: geometric means, of the groups too, and the least ratio."""
    groups = dict.fromkeys(one.group for one in results)
    means = {name: mean_ratio([r for r in results if r.group == name]) for name in groups}
    parts = [f"{name} {mean:.2g}" for name, mean in means.items() if mean is not None]
    mean, known = mean_ratio(results), [r for r in results if r.ratio is not None]
    if mean is None:
        return "# nothing was measured"
    least = min(known, key=lambda r: r.ratio or 0.0)
    low = sum(r.low for r in known)
    return (
        f"# ratios: geometric mean {mean:.2g} ({', '.join(parts)})\n"
        f"# {low} of {len(known)} rows below {LOW}, the least {least.ratio:.2g}: {least.name}"
    )


GROUPS = (
    program_rows.SPELLINGS, SIZES, program_vectors.VECTORS, program_rows.OBJECTS,
    program_rows.COMMUNICATORS, program_rows.PERSISTENT, MIXED, program_mix.SOLVER,
)  # fmt: skip
ROUNDS_OF_PASSES = 3  # at most, as each one makes communicators
MUCH_LONGER = 5  # times the seconds of a row for a first pass, so that it has many sizes
TOLERANCE = 1e-9  # of sums of many ranks, whose order MPI leaves open

Row = ProgramRow | Sizes


def chosen(groups: Sequence[str] = (), replay: Path | None = None) -> list[Row]:
    """Return the rows of some groups, by default of all but `left`; raises ArgumentError.

    `replay` is a file of statistics, whose calls take the place of han's own mix.
    """
    for name in groups:
        expect_known("group of rows", name, (*GROUPS, program_left.LEFT))
    rows: list[Row] = [
        *program_rows.ROWS,
        *program_vectors.ROWS,
        SMALL,
        LARGE,
        BLOCKS,
        *program_mix.ROWS,
        mixed(replay),
    ]
    if program_left.LEFT in groups:
        return [*program_left.ROWS]
    wanted = groups or GROUPS
    found = [row for row in rows if row.group in wanted]
    return sorted(found, key=lambda row: GROUPS.index(row.group))


class Programs(Session):
    """han beside the MPI library. Making one is collective; use it in ``with``."""

    def __init__(self, comm: MPI.Intracomm, config: Any, settings: Settings) -> None:
        super().__init__(comm, settings.rounds)
        self.settings, self.config = settings, config
        self.han = self.add_han(config)
        self.comms: dict[str, MPI.Intracomm] = {"han": self.han, "mpi": self.add_mpi()}

    def measure(self, row: Row) -> list[ProgramResult]:
        """Measure a row; collective. Raises WrongResultError on all ranks."""
        return self._passes(row) if isinstance(row, Sizes) else [self._repeated(row)]

    # ---- rows of repeated work --------------------------------------------------------------

    def _repeated(self, row: ProgramRow) -> ProgramResult:
        try:
            works = {side: self._begun(row, side) for side in reversed(SIDES)}
        except NotImplementedError as error:
            note = str(error) or "the MPI library does not have it"
            return ProgramResult(row.group, row.name, {}, note)
        self._compare(row, works)
        times = self._times(works)
        self._compare(row, works)  # later calls take quicker paths than the first
        for work in works.values():
            work.free()
        return ProgramResult(row.group, row.name, times)

    def _begun(self, row: ProgramRow, side: str) -> Work:
        """Make the work of one side, and call it once."""
        work = row.make(self.comms[side])
        work.call()
        return work

    def _times(self, works: Mapping[str, Work]) -> dict[str, Times]:
        """Time the work of both sides in turns; return microseconds per step."""
        calls = {side: works[side].call for side in SIDES}
        steps = works["mpi"].steps
        warm_up = math.ceil(WARM_UP / steps)
        times = self.times(calls, self.settings.batch_seconds, warm_up)
        return {
            side: Times(t.median / steps, t.low / steps, t.high / steps, t.calls * steps)
            for side, t in times.items()
        }

    def _compare(self, row: ProgramRow, works: Mapping[str, Work]) -> None:
        if not self.settings.check:
            return
        pairs = zip(works["han"].results, works["mpi"].results, strict=True)
        alike = all(np.allclose(mine, right, TOLERANCE, 0) for mine, right in pairs)
        said = self.control.allgather(alike)
        wrong = [rank for rank, right in enumerate(said) if not right]
        if wrong:
            raise WrongResultError(
                f"{row.group}, {row.name}: the result differs from MPI's on rank(s) {spans(wrong)}"
            )

    # ---- passes over sizes ------------------------------------------------------------------

    def _passes(self, sizes: Sizes) -> list[ProgramResult]:
        rounds = min(ROUNDS_OF_PASSES, self.settings.rounds)
        found = [self._round(sizes) for _ in range(rounds)]
        calls = min(one.calls for one in found)
        note = f"{calls} of {sizes.count} sizes" if calls < sizes.count else ""
        return [
            ProgramResult(
                sizes.group, name, {side: _over(part, side, calls) for side in SIDES}, note
            )
            for name, part in zip(
                sizes.passes, zip(*(o.us for o in found), strict=True), strict=True
            )
        ]

    def _round(self, sizes: Sizes) -> Passes:
        """Make both passes on new communicators, which take over no plans."""
        begin_anew()
        comms = {
            "han": Comm(self.control.Dup(), self.config),
            "mpi": MPI.Intracomm(self.control.Dup()),
        }
        found = passes(self, comms, sizes, MUCH_LONGER * self.settings.seconds)
        for comm in comms.values():
            comm.Free()
        return found


def _over(rounds: Sequence[Mapping[str, float]], side: str, calls: int) -> Times:
    """Return the times of one side in some rounds."""
    us = [one[side] for one in rounds]
    return Times(float(np.median(us)), min(us), max(us), calls)
