"""Series of values over sizes or counts, as pictures and tables show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from han.common.tables import shown_table
from han.common.units import format_size


@dataclass(frozen=True)
class Panel:
    """Values by name and x. `over` says what x is, `marks` are places on its axis."""

    title: str
    over: str
    series: Mapping[str, Mapping[int, float]]
    unit: str = "time per call (us)"
    marks: Mapping[int, str] = field(default_factory=dict)

    def table(self, head: str) -> str:
        """Return a table: a row for each x, a column for each name; * marks the least time."""
        every = sorted({x for points in self.series.values() for x in points})
        rows = ([self._x(x), *self._cells(x)] for x in every)
        return shown_table("", [head, *self.series], rows)

    def _x(self, x: int) -> str:
        return format_size(x) if self.over.startswith("bytes") else str(x)

    def _cells(self, x: int) -> list[str]:
        values = [points.get(x) for points in self.series.values()]
        known = [value for value in values if value is not None]
        least = min(known) if len(known) > 1 and self.unit.startswith("time ") else None
        return [f"{'*' if v is not None and v == least else ''}{self._number(v)}" for v in values]

    def _number(self, value: float | None) -> str:
        if value is None:
            return "-"
        return f"{value:.0f}" if self.unit == "number" else short(value)


def short(value: float) -> str:
    """Return a number, rounded to two decimals below 100 and to none above."""
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"
