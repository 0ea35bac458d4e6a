"""Pictures: times over sizes, ratios as bars. They need matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from han.common.units import format_size, plural
from han.model.series import Panel
from han.plots.style import (
    COLORS,
    GREY,
    INK,
    PAGE,
    colors_of,
    columns_of,
    label_lines,
    legend,
    new_figure,
    save,
    size_axis,
    styled,
    used,
)

if TYPE_CHECKING:
    from han.measure import ablation, programs
    from han.measure.merged import Merged
    from han.model.measurements import Report, Times

Series = Mapping[int, "Times"]
Panels = Mapping[str, Mapping[str, Series]]  # collective -> library -> bytes -> times
Ratios = Mapping[str, Mapping[str, Mapping[int, float]]]  # collective -> library -> bytes -> ratio


# ---- times over sizes -----------------------------------------------------------------------


def panels_of(rows: Sequence[Merged]) -> Panels:
    """Return the series of each collective: han's best times, and those of every library."""
    panels: dict[str, dict[str, dict[int, Times]]] = {}
    for row in rows:
        best = {"han": row.best_han[1]} if row.han else {}
        for name, times in (best | {**row.mpi}).items():
            panels.setdefault(row.collective, {}).setdefault(name, {})[row.nbytes] = times
    return panels


def ratios_of(rows: Sequence[Merged]) -> Ratios:
    """Return how many times longer each library takes than han in the same run."""
    ratios: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        for name, ratio in row.ratios.items():
            ratios.setdefault(row.collective, {}).setdefault(name, {})[row.nbytes] = ratio
    return ratios


def title_of(run: Report) -> str:
    """Return a title that says where a run was measured."""
    machine = run.data["machine"]
    where = plural(machine["nodes"], "node")
    return f"{machine['ranks']} ranks on {where}, {run.data['settings']['mode']} calls"


def comparison(rows: Sequence[Merged], path: Path, title: str = "") -> None:
    """Draw times over sizes, and below them their ratios to han's times. Raises PlotError."""
    times_and_ratios(panels_of(rows), ratios_of(rows), path, title)


@styled
def times_and_ratios(
    panels: Panels, ratios: Ratios, path: Path, title: str = "", base: str = "han"
) -> None:
    """Draw for each panel times over sizes, and below them ratios to the times of `base`.

    Panels stand in rows of at most three. Bands span the times of all rounds. Raises PlotError.
    """
    columns = columns_of(len(panels))
    down = -(-len(panels) // columns)
    figure, axes = new_figure(
        PAGE, 0.4 + 3.2 * down, 2 * down, columns, squeeze=False,
        gridspec_kw={"height_ratios": [2.2, 1] * down},
    )  # fmt: skip
    colors = colors_of(name for series in panels.values() for name in series)
    upper, lower = ([axis for row in axes[k::2] for axis in row] for k in (0, 1))
    named = _named([*panels.values()], columns)
    for k, (name, series) in enumerate(panels.items()):
        _draw_times(upper[k], series, colors, named[k])
        _draw_ratios(lower[k], ratios.get(name, {}), colors, base)
        _label_panel(upper[k], lower[k], series, name)
        if k % columns == 0:
            upper[k].set_ylabel("time per call (us)")
            lower[k].set_ylabel(f"time / {base}")
    for axis in (*upper[len(panels) :], *lower[len(panels) :]):
        axis.set_visible(False)
    figure.suptitle(title)
    save(figure, path)


def _label_panel(upper: Any, lower: Any, series: Mapping[str, Series], title: str) -> None:
    sizes = sorted({n for points in series.values() for n in points})
    for axis in (upper, lower):
        size_axis(axis, sizes)
    upper.tick_params(labelbottom=False)
    upper.set_title(title)


def _named(panels: Sequence[Iterable[str]], columns: int) -> list[set[str]]:
    """Return the lines to name in each panel: all at the right end, each other one once."""
    told = {name for names in panels[columns - 1 :: columns] for name in names}
    found: list[set[str]] = []
    for k, names in enumerate(panels):
        found.append({*names} if (k + 1) % columns == 0 else {*names} - told)
        told |= {*names}
    return found


def _draw_times(
    axis: Any, series: Mapping[str, Series], colors: Mapping[str, str], named: set[str]
) -> None:
    medians = {
        name: {n: one.median for n, one in points.items()} for name, points in series.items()
    }  # fmt: skip
    _draw_curves(axis, medians, colors)
    for name, points in series.items():
        sizes, color = sorted(points), colors[name]
        low, high = [points[n].low for n in sizes], [points[n].high for n in sizes]
        axis.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)
    axis.set_yscale("log")
    axis.grid(True)
    label_lines(axis, {name: _end(series[name]) for name in series if name in named}, colors)


def _end(points: Series) -> tuple[float, float]:
    return max(points), points[max(points)].median


def _draw_ratios(
    axis: Any, ratios: Mapping[str, Mapping[int, float]], colors: Mapping[str, str], base: str
) -> None:
    for name, points in ratios.items():
        sizes = sorted(points)
        axis.plot(sizes, [points[n] for n in sizes], "o-", color=colors[name])
    axis.axhline(1, color=colors.get(base, GREY))
    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.grid(True)


def prediction_axes(axis: Any, times: Sequence[float]) -> None:
    """Scale and label the axes of predicted over measured times; draw where both are equal."""
    if times:
        axis.plot([min(times), max(times)], [min(times), max(times)], "-", color=GREY, lw=1)
        axis.set_xscale("log")
        axis.set_yscale("log")
    axis.set_xlabel("measured (us)")
    axis.set_ylabel("predicted (us)")


COUNTS = ("ranks", "nodes", "calls", "tasks")


@styled
def lines(panels: Sequence[Panel], path: Path, title: str = "") -> None:
    """Draw times over sizes or counts, both on log scales, or over numbers. Raises PlotError."""
    columns = max(1, min(len(panels), 2))
    rows = -(-len(panels) // columns)
    width = PAGE if columns > 1 else 0.75 * PAGE
    figure, axes = new_figure(width, 0.4 + 2.8 * rows, rows, columns, squeeze=False)
    colors = colors_of(name for panel in panels for name in panel.series)
    named = _named([panel.series for panel in panels], columns)
    for (axis, panel), names in zip(used(axes, panels), named, strict=True):
        _draw_lines(axis, panel, colors, names)
    figure.suptitle(title)
    save(figure, path)


LINE, WIDER = 1.5, 2.5  # points: the width of a line, and more for each that lies over it


def _draw_curves(
    axis: Any, series: Mapping[str, Mapping[int, float]], colors: Mapping[str, str]
) -> None:
    """Draw a line for each series; one that others lie over is wider and pale."""
    curves = [*series.items()]
    for k, (name, points) in enumerate(curves):
        found = sorted(points)
        over = sum(bool(points.items() & later.items()) for _, later in curves[k + 1 :])
        axis.plot(
            found, [points[n] for n in found], "o-", color=colors[name], label=name,
            linewidth=LINE + over * WIDER, alpha=0.45 if over else 1,
        )  # fmt: skip


def _draw_lines(axis: Any, panel: Panel, colors: Mapping[str, str], named: set[str]) -> None:
    _draw_curves(axis, panel.series, colors)
    axis.set_yscale("log")
    axis.grid(True)
    axis.set_title(panel.title)
    axis.set_ylabel(panel.unit)
    _draw_x(axis, panel)
    ends = {name: (max(ys), ys[max(ys)]) for name, ys in panel.series.items() if name in named}
    label_lines(axis, ends, colors)


def _draw_x(axis: Any, panel: Panel) -> None:
    """Scale and label the horizontal axis, and draw the marks on it."""
    sizes = sorted({n for points in panel.series.values() for n in points})
    if panel.over in COUNTS:
        axis.set_xscale("log", base=2)
        few = sizes[:: max(1, -(-len(sizes) // 8))]
        axis.set_xticks(few, [str(n) for n in few], rotation=45)
        axis.set_xticks([], minor=True)
    elif panel.over.startswith("bytes"):
        size_axis(axis, sizes)
    else:
        axis.set_xticks(sizes)
    for k, (x, text) in enumerate(panel.marks.items()):
        axis.axvline(x, color=GREY, linestyle=("--", ":")[k % 2])
        axis.annotate(
            text, (x, 0.98 - 0.1 * k), (3, 0), xycoords=("data", "axes fraction"),
            textcoords="offset points", va="top", fontsize=8, color=INK,
        )  # fmt: skip
    axis.set_xlabel(panel.over)


# ---- ratios as bars -----------------------------------------------------------------------------


BAR = 0.8  # height of the bars of all sizes, as a share of the distance between variants
Spread = tuple[float, float, float]  # the least ratio, that of the medians, and the greatest one


@styled
def of_ablation(results: Sequence[ablation.VariantResult], path: Path, title: str = "") -> None:
    """Draw a panel for each collective, with a bar for each variant and size.

    Raises PlotError.
    """
    from han.measure.ablation import BUILT_IN

    shown = [r for r in results if r.variant != BUILT_IN]
    collectives = list(dict.fromkeys(r.collective for r in shown)) or [""]
    sizes = list(dict.fromkeys(r.nbytes for r in shown))
    columns = min(2, len(collectives))
    rows = -(-len(collectives) // columns)
    figure, axes = new_figure(PAGE, 0.8 + 3.4 * rows, rows, columns, squeeze=False)
    for axis, collective in used(axes, collectives):
        _variants(axis, [r for r in shown if r.collective == collective], sizes)
        axis.set_title(collective)
    _finish(figure, axes[0][0], path, title)


def _variants(axis: Any, results: Sequence[ablation.VariantResult], sizes: Sequence[int]) -> None:
    names = list(dict.fromkeys(r.variant for r in results))
    height = BAR / max(1, len(sizes))
    for k, nbytes in enumerate(sizes):
        some = [r for r in results if r.nbytes == nbytes]
        at = [names.index(r.variant) + (k - (len(sizes) - 1) / 2) * height for r in some]
        _bars(axis, k, at, [(r.low, r.ratio, r.high) for r in some], height, format_size(nbytes))
    _name_rows(axis, names, "time / the built-in choice's", 2)


@styled
def of_programs(results: Sequence[programs.ProgramResult], path: Path, title: str = "") -> None:
    """Draw a bar for each row of a program, in a colour for each group.

    A ratio is that of the library's median to han's times of all rounds. Raises PlotError.
    """
    shown = [one for one in results if one.ratio is not None]
    figure, axis = new_figure(PAGE, 1.4 + 0.2 * len(shown))
    for k, group in enumerate(dict.fromkeys(one.group for one in shown)):
        at = [i for i, one in enumerate(shown) if one.group == group]
        _bars(axis, k, at, [_spread(shown[i]) for i in at], 0.7, group)
    axis.margins(y=0.01)
    _name_rows(axis, [one.name for one in shown], "time of the MPI library / time of han", 10)
    _finish(figure, axis, path, title)


def _spread(one: programs.ProgramResult) -> Spread:
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
    axis.grid(True, axis="x")


def _finish(figure: Any, axis: Any, path: Path, title: str) -> None:
    """Add the legend of an axis below all panels, and write the picture."""
    legend(figure, axis.get_legend_handles_labels()[0])
    figure.suptitle(title)
    save(figure, path)
