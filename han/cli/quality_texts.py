"""The tables of ``han tune quality``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from han.common.tables import shown_table
from han.common.units import format_size, format_us, plural

if TYPE_CHECKING:
    from han.measure.tune.quality import Row
    from han.measure.tune.tuner import Input

WORST = 0.1  # share of the predictions that are listed
MOST = 20  # lines of these
LEAST_WIDTH = 6  # of a ratio: 12.345
SUMMARY = ["strategy", "within 5 %", "within 15 %", "worst", "seconds", "of exhaustive"]
ERRORS = ["call", "size", "measured us", "predicted us", "error", "choice", "prediction"]


class Lines:
    """Rows as they are printed one by one, in columns that fit all of them but the choices."""

    def __init__(self, inputs: Sequence[Input], strategies: Sequence[str]) -> None:
        self._heads = ["call", "size", "candidates", *strategies, "s", "best choice"]
        names = max((len(one.collective) for one in inputs), default=0)
        least = [names, *[LEAST_WIDTH] * (len(self._heads) - 2)]
        heads = self._heads[:-1]
        self._widths = [max(len(head), w) for head, w in zip(heads, least, strict=True)]

    def head(self) -> str:
        """Return the names of the columns."""
        return self._aligned(self._heads)

    def line(self, row: Row) -> str:
        """Return the line of a row."""
        *cells, best = _input(row)
        return self._aligned([*cells, f"{row.spent:.1f}", best])

    def _aligned(self, cells: Sequence[str]) -> str:
        first, *others, last = cells
        shown = [one.rjust(w) for one, w in zip(others, self._widths[1:], strict=True)]
        return "  ".join([first.ljust(self._widths[0]), *shown, last])


def text_of(rows: Sequence[Row]) -> str:
    """Return the tables of inputs, of strategies and of the worst predictions."""
    from han.measure.tune.quality import errors, summaries

    heads = ["call", "size", "candidates", *rows[0].ratio, "best choice"]
    title = "time of the choice / choice of exhaustive search, in turns"
    inputs = shown_table(title, heads, map(_input, rows), left=["call", "best choice"])
    lines = map(_summary, summaries(rows))
    summary = shown_table("strategies", SUMMARY, lines, left=["strategy"])
    summary = "\n".join([summary, *_limited(rows)])
    every = errors(rows)
    if not every:
        return f"{inputs}\n{summary}"
    worst = every[: min(MOST, max(1, round(WORST * len(every))))]
    told = shown_table(
        "the worst predictions", ERRORS, map(_error, worst), ["call", "choice", "prediction"]
    )
    middle = median(one.error for _, one in every)
    return (
        f"{inputs}\n{summary}\n# error of {len(every)} predictions: median {100 * middle:.1f} %\n"
        f"{told}"
    )


def _limited(rows: Sequence[Row]) -> list[str]:
    """Return a line for each strategy whose searches ran out of time."""
    from han.measure.tune.quality import YARDSTICK

    found = []
    for name in rows[0].ratio:
        mine = [row for row in rows if name in row.limited]
        if not mine:
            continue
        measured = sum(row.measured[name] for row in mine)
        told = (
            f"# {name}: the limit ended its search of {len(mine)} of {plural(len(rows), 'input')}"
        )
        if name == YARDSTICK:
            every = sum(row.candidates for row in mine)
            told += (
                f", which measured a random sample of {measured} of {every} candidates; the time "
                "for all of them is estimated"
            )
        found.append(told)
    return found


def _input(row: Row) -> list[str]:
    ratios = [f"{ratio:.3f}" for ratio in row.ratio.values()]
    best = next(iter(row.choice.values()))
    return [row.collective, format_size(row.nbytes), str(row.candidates), *ratios, best]


def _summary(one: Any) -> list[str]:
    return [one.strategy, f"{100 * one.within_5:.0f} %", f"{100 * one.within_15:.0f} %",
            f"{one.worst:.2f}", f"{one.seconds:.1f}", f"{100 * one.cost:.1f} %"]  # fmt: skip


def _error(pair: Any) -> list[str]:
    row, one = pair
    return [row.collective, format_size(row.nbytes), format_us(one.measured * 1e6),
            format_us(one.predicted * 1e6), f"{100 * one.error:.0f} %", one.choice,
            one.basis]  # fmt: skip


def left_text(left: Sequence[Input]) -> str:
    """Return the line of the inputs that the budget did not allow."""
    return f"# left out for the budget: {', '.join(map(str, left))}"
