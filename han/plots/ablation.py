"""A picture of an ablation: how much longer each call takes without one optimisation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from han.common.units import format_size
from han.plots.plots import COLORS, GREY, pyplot, save

if TYPE_CHECKING:
    from han.measure.ablation import Result

BAR = 0.8  # height of the bars of all sizes, as a share of the distance between variants


def bars(results: Sequence[Result], path: Path, title: str = "") -> None:
    """Draw a panel for each collective, with a bar for each variant and size.

    A bar goes from 1 to the median ratio; a thin line spans the ratios of all rounds.
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
        _panel(axis, [r for r in shown if r.collective == collective], sizes)
        axis.set_title(collective)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0), ncol=8, frameon=False
    )
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    save(figure, path)


def _panel(axis: Any, results: Sequence[Result], sizes: Sequence[int]) -> None:
    names = list(dict.fromkeys(r.variant for r in results))
    height = BAR / max(1, len(sizes))
    for k, nbytes in enumerate(sizes):
        some = [r for r in results if r.nbytes == nbytes]
        at = [names.index(r.variant) + (k - (len(sizes) - 1) / 2) * height for r in some]
        spread = [[r.ratio - r.low for r in some], [r.high - r.ratio for r in some]]
        axis.barh(
            at, [r.ratio - 1 for r in some], height, left=1, xerr=spread,
            color=COLORS[k % len(COLORS)], label=format_size(nbytes),
            error_kw={"linewidth": 0.6, "ecolor": GREY},
        )  # fmt: skip
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.axvline(1, color=GREY, linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("time / the built-in choice's")
    axis.grid(True, axis="x", alpha=0.3)
