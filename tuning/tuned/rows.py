"""Points become rows: where one choice takes over from another, and how far measurements reach."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from han.common.units import format_size
from han.config.rules import When
from han.model.collectives import ROWS
from han.model.facts import Facts
from han.tuning.classes import TUNED
from han.tuning.row import Row
from han.tuning.tuned.points import MeasuredCall, Point

INSIDE = 8  # largest ratio of a size to the nearest measured one, between measured sizes
BEYOND = 2  # the same for sizes below or above all measured ones
OPERATIONS = {  # the facts of reductions of each class
    "native": {"commutative": True, "native": True, "heavy": False},
    "heavy": {"commutative": True, "native": True, "heavy": True},
    "user-defined": {"commutative": True, "native": False},
    "ordered": {"commutative": False},
}
OF_POINTS = {
    "bytes", "nodes", "ppn", "mapped", "in_place", "uneven", "commutative", "native", "heavy",
}  # fmt: skip

Reach = tuple[Point, int, int]  # a point, and the least and the largest size that it decides for


def rows_of(points: Iterable[Point]) -> tuple[Row, ...]:
    """Return the rows that decide by points: adjacent sizes with one choice are one row."""
    return tuple(
        _row(key, run) for key, some in by_key(points).items() for run in _runs([*_reaches(some)])
    )


def by_key(points: Iterable[Point]) -> dict[MeasuredCall, list[Point]]:
    """Return the points of each key by size; of two of one size, the later one."""
    found: dict[MeasuredCall, dict[int, Point]] = {}
    for point in points:
        found.setdefault(point.key, {})[point.nbytes] = point
    return {key: [some[nbytes] for nbytes in sorted(some)] for key, some in found.items()}


def _reaches(points: Sequence[Point]) -> Iterator[Reach]:
    """Yield each point of a key with the least and the largest size that it decides for."""
    bounds = [crossing(a, b) for a, b in pairwise(points)]
    lows = [-(-points[0].nbytes // BEYOND), *(bound + 1 for bound in bounds)]
    highs = [*bounds, points[-1].nbytes * BEYOND]
    for point, low, high in zip(points, lows, highs, strict=True):
        yield point, max(low, -(-point.nbytes // INSIDE)), min(high, point.nbytes * INSIDE)


def crossing(small: Point, large: Point) -> int:
    """Return the largest size for which the point of the smaller size decides.

    Times are interpolated on a log scale: the sizes' choices cross where both take the same time.
    Where one was not measured at both sizes, the geometric mean of the sizes is the bound.
    """
    ends = [(point.time_of(small.use), point.time_of(large.use)) for point in (small, large)]
    share = 0.5
    if small.use != large.use and all(a and b for a, b in ends):
        gaps = [math.log(a / b) for a, b in ends if a and b]
        if gaps[0] <= 0 <= gaps[1] and gaps[0] < gaps[1]:
            share = gaps[0] / (gaps[0] - gaps[1])
    reach = math.log(large.nbytes / small.nbytes)
    bound = math.floor(small.nbytes * math.exp(share * reach))
    return min(max(bound, small.nbytes), large.nbytes - 1)


def _runs(reaches: Sequence[Reach]) -> Iterator[list[Reach]]:
    """Yield what adjoins and decides for one choice."""
    run = [*reaches[:1]]
    for last, one in pairwise(reaches):
        if one[0].use != last[0].use or one[1] != last[2] + 1:
            yield run
            run = []
        run.append(one)
    yield run


def _row(key: MeasuredCall, run: Sequence[Reach]) -> Row:
    points = tuple(point for point, _, _ in run)
    low, high = run[0][1], run[-1][2]
    of = f" ({key.operation})" if key.operation not in ("", "native") else ""
    sizes = f"{format_size(low)} to {format_size(high)}"
    name = f"{key.call}{of}, {sizes}, {key.nodes} x {key.ppn}"
    return Row(name, _when(key, low, high), points[0].use, measured=points, rule=TUNED)


def _when(key: MeasuredCall, low: int, high: int) -> When:
    """Return the calls of a key from one size to another."""
    row = ROWS[key.collective]
    flags = {
        **OPERATIONS.get(key.operation, {}),
        "mapped": key.shared,
        **({"in_place": False} if row.replaces else {}),
        **({"uneven": False} if row.uneven else {}),
    }
    ends = {"bytes": (low, high), "nodes": (key.nodes,) * 2, "ppn": (key.ppn,) * 2}
    return When.of((key.collective,), {**ends, **flags}, key.levels)


def when_of_key(key: MeasuredCall, nbytes: int) -> dict[str, Any]:
    """Return the calls of a key and a size, as files write them."""
    return _when(key, nbytes, nbytes).document() | {"levels": [*key.levels]}


def key_of_row(when: When) -> MeasuredCall | None:
    """Return the key of the points that made a row; None for a row that a person wrote."""
    names = {Facts._fields[k] for k, _, _ in when.tests}
    ends = {Facts._fields[k]: low for k, low, high in when.tests if low == high}
    if len(when.collective) != 1 or not {"nodes", "ppn"} <= {*ends} or not names <= OF_POINTS:
        return None
    operations = (name for name, own in OPERATIONS.items() if own.items() <= ends.items())
    shared = bool(ends.get("mapped", 0))
    operation = next(operations, "")
    return MeasuredCall(
        when.collective[0], operation, ends["nodes"], ends["ppn"], when.levels, shared
    )
