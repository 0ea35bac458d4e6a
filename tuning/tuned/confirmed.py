"""Which choices of a tuned table ``han bench --tuned`` has confirmed, in one or several runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from han.common.errors import ArgumentError
from han.model.measurements import Report
from han.tuning.tuned.points import GAIN, Point
from han.tuning.tuned.table import TunedTable, with_points

Input = tuple[str, int, int, int, bool]  # collective, bytes, nodes, ranks, shared arrays


def confirmed(table: TunedTable, runs: Sequence[Report]) -> TunedTable:
    """Return a table that keeps the built-in choice where not all runs found its own one faster.

    In each run the median of the rounds' ratios is above 1, and the median of all runs is at least
    the gain that `han tune` asks for. Points that stay have the gains of all runs. Raises
    ArgumentError for a run without gains.
    """
    found: dict[Input, list[float]] = {}
    for run in runs:
        for place, gain in _gains(run):
            found.setdefault(place, []).append(gain)
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
