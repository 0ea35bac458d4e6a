"""Reports of ``han bench``: tables and JSON."""

from __future__ import annotations

from collections.abc import Iterable

from han.common.units import format_size, format_us
from han.measure.bench import DEFAULT, Row, Settings
from han.measure.bench_machine import Machine, document, heading
from han.model.measurements import FORMAT, Report, Times

COLUMN = 20  # holds a library's name and version


def report(
    machine: Machine,
    settings: Settings,
    rows: Iterable[Row],
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
    notes = [
        f"times     microseconds per call of the slowest rank: median of {settings.rounds} rounds "
        "(min .. max)"
    ]
    if settings.only is None:
        notes.append("ratio     time of the MPI library / time of han; above 1, han is faster")
    if settings.tuned:
        notes.append(
            "gain      time of built-in choices (default) / time of tuned ones (han): median of "
            "the rounds' ratios (its interval of 95 %)"
        )
    return heading("bench", about, machine, *notes)


def table_head(collective: str, machine: Machine, settings: Settings) -> str:
    """Return the title and the column heads of one collective."""
    titles = {"han": "han", DEFAULT: DEFAULT, "mpi": machine.library}
    columns = "".join(f"{titles[s]:>{COLUMN}} {'(min .. max)':<21}" for s in settings.sides)
    ratio = f"{'ratio':>6}" if settings.only is None else ""
    gain = f"{'gain':>6}" if DEFAULT in settings.sides else ""
    return f"\n# {collective}\n#{'size':>8}{columns}{ratio}{gain}"


def table_row(row: Row) -> str:
    """Return the line of one size."""
    ratios = "" if row.ratio is None else f"{row.ratio:>6.2f}"
    if row.gain is not None:
        one = row.gain
        ratios += f"{one.median:>6.2f} ({one.low:.2f} .. {one.high:.2f})"
    notes = "".join(f"  # {note}" for note in row.notes)
    return f"{format_size(row.nbytes):>9}{''.join(map(_times, row.times.values()))}{ratios}{notes}"


def _times(times: Times) -> str:
    spread = f"({format_us(times.low)} .. {format_us(times.high)})"
    return f"{format_us(times.median):>{COLUMN}} {spread:<21}"
