"""Results of ``han bench --programs``: times by row, their summary, tables and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from han.common.tables import shown_table
from han.common.units import format_us
from han.measure.bench import SIDES, Settings
from han.measure.bench_machine import Machine, document, heading
from han.measure.program_mix import DEFAULT
from han.model.measurements import Times

FORMAT, VERSION = "han-bench-programs", 1
LOW = 0.9  # ratios below are marked
SPREAD = "min .. max"


@dataclass(frozen=True)
class Result:
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


def mean_ratio(results: Sequence[Result]) -> float | None:
    """Return the geometric mean of the ratios; None if nothing was measured."""
    ratios = [r.ratio for r in results if r.ratio is not None]
    return geometric_mean(ratios) if ratios else None


def report(
    machine: Machine, settings: Settings, replay: Path | None, results: Sequence[Result],
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


def table(machine: Machine, results: Sequence[Result]) -> str:
    """Return the table of all rows."""
    heads = ["rows", "a call or step", "han", SPREAD, machine.library, SPREAD, "ratio", ""]
    rows, before = [], ""
    for one in results:
        rows.append([one.group if one.group != before else "", one.name, *_cells(one)])
        before = one.group
    return shown_table("", heads, rows, left=("a call or step", ""))


def _cells(one: Result) -> list[str]:
    if one.ratio is None:
        return ["-", "", "-", "", "-", f"  {one.note}"]
    times = [text for side in SIDES for text in _times(one.times[side])]
    return [*times, f"{one.ratio:.3g}", f"{'*' if one.low else ' '} {one.note}"]


def _times(times: Times) -> tuple[str, str]:
    return format_us(times.median), f"{format_us(times.low)} .. {format_us(times.high)}"


def summary(results: Sequence[Result]) -> str:
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
