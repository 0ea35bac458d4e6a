"""Pictures of ratios as bars: an ablation, the rows of ``han bench --programs``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from han.common.units import format_size
from han.plots.plots import COLORS, GREY, pyplot, save

if TYPE_CHECKING:
    from han.measure import ablation, program_results

BAR = 0.8  # height of the bars of all sizes, as a share of the distance between variants
Spread = tuple[float, float, float]  # the least ratio, that of the medians, and the greatest one


def of_ablation(results: Sequence[ablation.Result], path: Path, title: str = "") -> None:
    """Draw a panel for each collective, with a bar for each variant and size.

    Raises PlotError.
    """
    from han.measure.ablation import BUILT_IN

    shown = [r for r in results if r.variant != BUILT_IN]
    collectives = list(dict.fromkeys(r.collective for r in shown)) or [""]
    sizes = list(dict.fromkeys(r.nbytes for r in shown))
    figure, axes = pyplot().subplots(
        1, len(collectives), figsize=(1.5 + 4.2 * len(collectives), 4.6), squeeze=False
    )
    for axis, collective in zip(axes[0], collectives, strict=True):
        _variants(axis, [r for r in shown if r.collective == collective], sizes)
        axis.set_title(collective)
    _finish(figure, axes[0][0], path, title)


def _variants(axis: Any, results: Sequence[ablation.Result], sizes: Sequence[int]) -> None:
    names = list(dict.fromkeys(r.variant for r in results))
    height = BAR / max(1, len(sizes))
    for k, nbytes in enumerate(sizes):
        some = [r for r in results if r.nbytes == nbytes]
        at = [names.index(r.variant) + (k - (len(sizes) - 1) / 2) * height for r in some]
        _bars(axis, k, at, [(r.low, r.ratio, r.high) for r in some], height, format_size(nbytes))
    _name_rows(axis, names, "time / the built-in choice's", 2)


def of_programs(results: Sequence[program_results.Result], path: Path, title: str = "") -> None:
    """Draw a bar for each row of a program, in a colour for each group.

    A ratio is that of the library's median to han's times of all rounds. Raises PlotError.
    """
    shown = [one for one in results if one.ratio is not None]
    figure, axis = pyplot().subplots(figsize=(8, 1.4 + 0.3 * len(shown)))
    for k, group in enumerate(dict.fromkeys(one.group for one in shown)):
        at = [i for i, one in enumerate(shown) if one.group == group]
        _bars(axis, k, at, [_spread(shown[i]) for i in at], 0.7, group)
    axis.margins(y=0.01)
    _name_rows(axis, [one.name for one in shown], "time of the MPI library / time of han", 10)
    _finish(figure, axis, path, title)


def _spread(one: program_results.Result) -> Spread:
    han, library = one.times["han"], one.times["mpi"]
    return library.median / han.high, library.median / han.median, library.median / han.low


def _bars(
    axis: Any, k: int, at: Sequence[float], spreads: Sequence[Spread], height: float, label: str
) -> None:
    """Draw bars from 1 to the ratios; thin lines span the ratios of all rounds."""
    axis.barh(
        at, [ratio - 1 for _, ratio, _ in spreads], height, left=1,
        xerr=[[r - low for low, r, _ in spreads], [high - r for _, r, high in spreads]],
        color=COLORS[k % len(COLORS)], label=label, error_kw={"lw": 0.6, "ecolor": GREY},
    )  # fmt: skip


def _name_rows(axis: Any, names: Sequence[str], ratio: str, base: int) -> None:
    """Name the rows of bars, and show ratios on a log scale."""
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.axvline(1, color=GREY, linewidth=0.8)
    axis.set_xscale("log", base=base)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel(ratio)
    axis.grid(True, axis="x", alpha=0.3)


def _finish(figure: Any, axis: Any, path: Path, title: str) -> None:
    """Add the legend of an axis below all panels, and write the picture."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0), ncol=8, frameon=False
    )
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    save(figure, path)
