"""Pictures of strategies: quality and cost of their choices, and predictions. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from han.measure.tune.quality import Row, summaries
from han.plots.plots import COLORS, GREY, prediction_axes, pyplot, save, size_axis


def quality(rows: Sequence[Row], path: Path) -> None:
    """Draw ratios by size, the time of each strategy, and predicted over measured times.

    Raises PlotError.
    """
    plt = pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.2))
    _ratios(axes[0], rows)
    _costs(axes[1], rows)
    _predictions(axes[2], rows)
    figure.tight_layout()
    save(figure, path)


def _ratios(axis: Any, rows: Sequence[Row]) -> None:
    marks = ("o", "s", "^", "D")
    collectives = list(dict.fromkeys(row.collective for row in rows))
    for k, name in enumerate(rows[0].ratio):
        for mark, collective in zip(marks, collectives, strict=False):
            mine = [row for row in rows if row.collective == collective]
            label = name if len(collectives) == 1 else f"{name}, {collective}"
            axis.plot([row.nbytes for row in mine], [row.ratio[name] for row in mine], mark + "-",
                      ms=4, lw=1, color=COLORS[k % len(COLORS)], label=label)  # fmt: skip
    size_axis(axis, sorted({row.nbytes for row in rows}))
    axis.axhline(1.05, color=GREY, lw=1, ls="--")
    axis.set_ylabel("time of the choice / exhaustive")
    axis.set_xlabel("bytes")
    axis.set_title("quality", fontsize=10)
    axis.legend(frameon=False, fontsize=8)


def _costs(axis: Any, rows: Sequence[Row]) -> None:
    found = summaries(rows)
    bars = axis.bar([one.strategy for one in found], [one.seconds for one in found],
                    color=COLORS[: len(found)])  # fmt: skip
    axis.bar_label(bars, [f"{100 * one.cost:.1f} %" for one in found])
    axis.set_ylabel("seconds of the search")
    axis.set_title("cost", fontsize=10)


def _predictions(axis: Any, rows: Sequence[Row]) -> None:
    pairs = [(one.measured * 1e6, one.predicted * 1e6) for row in rows for one in row.predictions]
    axis.plot([a for a, _ in pairs], [b for _, b in pairs], "o", ms=3, color=COLORS[0])
    prediction_axes(axis, [value for pair in pairs for value in pair])
    axis.set_title("predictions", fontsize=10)
