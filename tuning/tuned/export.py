"""Tuned tables as rules of a configuration, and the part of a table that benches confirm."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from han.common.errors import ArgumentError
from han.common.grouped import grouped
from han.common.units import format_size
from han.model.measurements import Report
from han.tuning.measured import GAIN
from han.tuning.row import Row
from han.tuning.tuned.points import Point
from han.tuning.tuned.table import TunedTable, with_points
from han.tuning.tuned.uses import spell, use_record


def chosen(table: TunedTable) -> TunedTable:
    """Return a table without the rows that keep the built-in choice."""
    return replace(table, rows=tuple(row for row in table.rows if row.use is not None))


def as_rules(table: TunedTable) -> str:
    """Return a table as YAML that ``load_config`` reads.

    Where the built-in choice is kept there is no rule.
    """
    import yaml

    lines = [
        f"# Made by 'han tune export' from {table.source or 'a tuned table'},",
        f"# measured on {table.machine.cpu}, {table.machine.library} "
        f"{table.machine.library_version}.",
        *(f"# {line}" for line in table.others()),
    ]
    rows = chosen(table).rows
    if not rows:
        return "\n".join([*lines, "# The built-in choices are the best ones found.", "rules: []\n"])
    lines.append("rules:")
    for row in rows:
        assert row.use is not None
        rule = {"when": row.when.document(), "use": use_record(row.use)}
        written = yaml.safe_dump([rule], sort_keys=False, allow_unicode=True)
        lines += [f"# {_about(row)}", written.rstrip()]
    return "\n".join(lines) + "\n"


def _about(row: Row) -> str:
    """Return the measured sizes of a row, how fast its choice is, and the choice."""
    choice = spell(row.use) if row.use else ""
    if not row.measured:
        return f"{row.name}: {choice}"
    ends = row.measured[0], row.measured[-1]
    sizes = " to ".join(dict.fromkeys(format_size(p.nbytes) for p in ends))
    gains = [p.default.median / p.best.median for p in row.measured]
    most = f"{min(gains):.2f} to {max(gains):.2f}" if len(gains) > 1 else f"{gains[0]:.2f}"
    return f"{sizes}: {most} times as fast as built-in; {choice}"


Input = tuple[str, int, int, int, bool]  # collective, bytes, nodes, ranks, shared arrays


def confirmed(table: TunedTable, runs: Sequence[Report]) -> TunedTable:
    """Return a table that keeps the built-in choice where not all runs found its own one faster.

    In each run the median of the rounds' ratios is above 1, and the median of all runs is at least
    the gain that `han tune` asks for. Points that stay have the gains of all runs. Raises
    ArgumentError for a run without gains.
    """
    found = grouped(chain.from_iterable(map(_gains, runs)))
    points = tuple(_checked(point, found.get(_input(point), [])) for point in table.points)
    return with_points(table, points)


def _gains(run: Report) -> list[tuple[Input, float]]:
    data: Any = run.data
    rows = [row for row in data["rows"] if isinstance(row.get("gain"), float)]
    if not rows:
        raise ArgumentError(f"{run.name}: has no gains: measure with 'han bench --tuned --json'")
    where = data["machine"]["nodes"], data["machine"]["ranks"], bool(run.about("shared"))
    return [((row["collective"], row["nbytes"], *where), row["gain"]) for row in rows]


def _input(point: Point) -> Input:
    key = point.key
    return key.collective, point.nbytes, key.nodes, key.nodes * key.ppn, key.shared


def _checked(point: Point, gains: Sequence[float]) -> Point:
    if point.use is None:
        return point
    if not gains or min(gains) <= 1 or statistics.median(gains) < 1 / GAIN:
        return replace(point, keeps=True)
    return replace(point, gains=tuple(round(gain, 2) for gain in gains))
