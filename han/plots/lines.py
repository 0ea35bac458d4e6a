"""Pictures of lines over sizes or counts: predictions, models. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from han.plots.plots import COLORS, GREY, pyplot, save, size_axis

COUNTS = ("ranks", "calls", "tasks")


@dataclass(frozen=True)
class Panel:
    """Lines over sizes or counts: values by name and x; `marks` are vertical lines."""

    title: str
    over: str
    series: Mapping[str, Mapping[int, float]]
    marks: Mapping[int, str] = field(default_factory=dict)
    note: str = ""
    unit: str = "time per call (us)"


def lines(panels: Sequence[Panel], path: Path, title: str = "") -> None:
    """Draw times over sizes or counts, both on log scales. Raises PlotError."""
    plt = pyplot()
    width = 1.5 + 4.8 * len(panels)
    figure, axes = plt.subplots(1, len(panels), figsize=(width, 4.2), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        _draw_lines(axis, panel)
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    save(figure, path)


def _draw_lines(axis: Any, panel: Panel) -> None:
    for k, (name, points) in enumerate(panel.series.items()):
        color = COLORS[k % len(COLORS)]
        found = sorted(points)
        axis.plot(found, [points[n] for n in found], "o-", ms=3, color=color, label=name)
    axis.set_yscale("log")
    axis.grid(True, which="major", alpha=0.3)
    axis.set_title(panel.title, fontsize=10)
    axis.set_ylabel(panel.unit)
    sizes = sorted({n for points in panel.series.values() for n in points})
    if panel.over in COUNTS:
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(n) for n in sizes], rotation=45)
        axis.set_xticks([], minor=True)
    else:
        size_axis(axis, sizes)
    for k, (x, text) in enumerate(panel.marks.items()):
        axis.axvline(x, color=GREY, linestyle=("--", ":")[k % 2], label=text)
    axis.set_xlabel(panel.over)
    if panel.note:
        axis.text(0.98, 0.04, panel.note, transform=axis.transAxes, ha="right", fontsize=8)
    axis.legend(frameon=False, fontsize=8)
