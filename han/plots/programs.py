"""A picture of ``han bench --programs``: how many times longer the MPI library takes, by row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from han.plots.plots import COLORS, GREY, pyplot, save

if TYPE_CHECKING:
    from han.measure.program_results import Result


def ratios(results: Sequence[Result], path: Path, title: str = "") -> None:
    """Draw a bar for each row, from 1 to its ratio, in a colour for each group.

    A thin line spans the ratios of the library's median to han's times of all rounds. Raises
    PlotError.
    """
    shown = [one for one in results if one.ratio is not None]
    groups = list(dict.fromkeys(one.group for one in shown))
    figure, axis = pyplot().subplots(figsize=(8, 1.4 + 0.3 * len(shown)))
    for k, group in enumerate(groups):
        at = [i for i, one in enumerate(shown) if one.group == group]
        spans = [_span(shown[i]) for i in at]
        axis.barh(
            at, [ratio - 1 for _, ratio, _ in spans], 0.7, left=1,
            xerr=[[r - low for low, r, _ in spans], [high - r for _, r, high in spans]],
            color=COLORS[k % len(COLORS)], label=group, error_kw={"lw": 0.6, "ecolor": GREY},
        )  # fmt: skip
    axis.set_yticks(range(len(shown)), [one.name for one in shown])
    axis.margins(y=0.01)
    axis.invert_yaxis()
    axis.axvline(1, color=GREY, linewidth=0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("time of the MPI library / time of han")
    axis.grid(True, axis="x", alpha=0.3)
    figure.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncol=6, frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    save(figure, path)


def _span(one: Result) -> tuple[float, float, float]:
    """Return the least ratio, that of the medians, and the greatest one."""
    han, library = one.times["han"], one.times["mpi"]
    return library.median / han.high, library.median / han.median, library.median / han.low
