"""Rows of a tuned table for numbers of nodes and ranks that were not measured.

On machine models that explain the costs of tasks, the simulator compares what calls may run: the
winners on some shapes, on all of them. A row says that it is predicted, and from which shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Any

from han.config.rules import Use
from han.tuning.row import Row
from han.tuning.search.class_rows import computed, records
from han.tuning.search.portfolio import Case, Grid, chosen, portfolios
from han.tuning.shapes.costs import LEVELS
from han.tuning.tuned.measurements import row_of
from han.tuning.tuned.points import Point
from han.tuning.tuned.table import TunedTable

ALIKE = 1.08  # choices that differ by less, or less than models err, are alike: a simple one wins
ANCHORS = 4  # sizes of which winners are searched, from the least to the largest
MOST_RANKS = 64  # of a shape, unless one that was measured has more
SCALES = 1, 2, 4  # numbers of nodes over those measured

Shape = tuple[int, int]
Winners = Callable[[Sequence[Case]], Iterable[Sequence[Use]]]
Compared = Callable[[Sequence[tuple[Case, Sequence[Use | None]]]], Iterable[dict[int, list[float]]]]


@dataclass(frozen=True)
class Study:
    """What was predicted: the rows, and of each call how a choice compares on each model.

    `ratios` are times over the least, by the number of the choice, on each model in turn.
    """

    grid: Grid
    rows: tuple[Row, ...]
    ratios: Mapping[Case, Mapping[int, Sequence[float]]]


def measured_points(table: TunedTable) -> list[Point]:
    """Return the points from which other shapes may be predicted: ordinary calls between nodes."""
    return [
        p for p in table.points
        if p.key.nodes > 1 and p.key.levels == LEVELS and not p.key.shared
        and p.key.operation in ("", "native")
    ]  # fmt: skip


def measured_shapes(table: TunedTable) -> list[Shape]:
    """Return the nodes and the ranks of each on which calls between nodes were measured."""
    return sorted({(p.key.nodes, p.key.ppn) for p in measured_points(table)})


def grid_of(
    table: TunedTable, nodes: Sequence[int] = (), ppn: Sequence[int] = (), ranks: int = 0
) -> Grid:
    """Return the calls that a table measured, on shapes that are named or around those measured."""
    points, shapes = measured_points(table), measured_shapes(table)
    most = ranks or max(MOST_RANKS, *(n * p for n, p in shapes))
    own_nodes = {scale * n for n, _ in shapes for scale in SCALES}
    own_ppn = {p for _, most_ppn in shapes for p in (most_ppn // 2, most_ppn, 2 * most_ppn) if p}
    return Grid(
        tuple(dict.fromkeys(p.key.collective for p in points)),
        tuple(sorted(set(nodes) or own_nodes)),
        tuple(sorted(set(ppn) or own_ppn)),
        tuple(sorted({p.nbytes for p in points})),
        most,
    )


def study(
    table: TunedTable, grid: Grid, winners: Winners, compared: Compared, error: float
) -> Study:
    """Predict what calls of a grid run; `winners` and `compared` do their work in any order.

    `error` is that of the models, the mean of ``|log(simulated / measured)|``.
    """
    anchors = [case for case in grid.cases() if _is_anchor(case, grid)]
    uses = portfolios(grid, zip(anchors, winners(anchors), strict=True))
    cases = [*grid.cases()]
    asked = [(case, uses[case.collective]) for case in cases]
    ratios = dict(zip(cases, compared(asked), strict=True))
    means = {case: _means(found) for case, found in ratios.items()}
    made = computed(chosen(means, grid, max(ALIKE, math.exp(error))), means, uses, grid)
    known = [f"{n} x {p}" for n, p in measured_shapes(table)]
    rows = [
        _row(record, known, one.gains, table)
        for one, record in zip(made, records(made, grid, bounded=True), strict=True)
    ]
    return Study(grid, tuple(rows), ratios)


def _means(found: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """Return the mean ratios of the choices that no model finds slower than the built-in one."""
    usual = found[0]
    safe = (k for k, own in found.items() if all(a <= b for a, b in zip(own, usual, strict=True)))
    return {k: geometric_mean(found[k]) for k in safe}


def _is_anchor(case: Case, grid: Grid) -> bool:
    """Return whether winners are searched for a case: on every second shape, of few sizes."""
    places, last = grid.nodes.index(case.nodes) + grid.ppn.index(case.ppn), len(grid.nbytes) - 1
    sizes = {grid.nbytes[k * last // (ANCHORS - 1)] for k in range(ANCHORS)}
    odd = places % 2 == 1 or len(grid.nodes) * len(grid.ppn) == 1
    return odd and case.nbytes in sizes


def _row(
    record: Mapping[str, Any], known: Sequence[str], gains: tuple[float, float], table: TunedTable
) -> Row:
    told = {key: value for key, value in record.items() if key != "about"}
    gain = [round(value, 2) for value in gains]
    made = row_of({**told, "predicted": {"from": known, "gain": gain}}, "calls", table.machine)
    return replace(made, source=table.source)
