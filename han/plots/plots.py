"""Pictures: times over sizes, ratios as bars. They need matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from han.common.atomic import write_output
from han.common.errors import ArgumentError
from han.common.units import format_size, plural
from han.model.series import Panel

if TYPE_CHECKING:
    from han.measure import ablation, programs
    from han.measure.merged import Merged
    from han.model.measurements import Report, Times

Series = Mapping[int, "Times"]
Panels = Mapping[str, Mapping[str, Series]]  # collective -> library -> bytes -> times
Ratios = Mapping[str, Mapping[str, Mapping[int, float]]]  # collective -> library -> bytes -> ratio

COLORS = ("#1b6ca8", "#c8553d", "#588157", "#8e6c8a", "#b08900", "#4a4e69", "#2a9d8f", "#9d0208")
GREY = "#9a9a9a"


MISSING = "pictures need matplotlib, which is not installed: pip install matplotlib"


class PlotError(ArgumentError, RuntimeError):
    """A picture cannot be made."""


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **how: Any
) -> tuple[Any, Any]:
    """Return a figure of a size in inches, and its axes; `how` are other arguments of subplots.

    No backend is chosen: a figure needs no display, and a notebook keeps its own backend. Raises
    PlotError.
    """
    expect_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(rows, columns, **how)


def expect_matplotlib() -> None:
    """Raise PlotError, which says how to install it, if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PlotError(MISSING) from None


def svg_of(figure: Any) -> str:
    """Return a figure as an SVG element for an HTML page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def check_picture(path: Path) -> None:
    """Raise PlotError if matplotlib is missing, or cannot write pictures of this suffix."""
    if find_spec("matplotlib") is None:
        raise PlotError(MISSING)
    if path.suffix in (".png", ".pdf", ".svg", ""):
        return
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix[1:].lower() not in kinds:
        raise PlotError(f"{path}: unknown picture format. Known: {', '.join(kinds)}")


def save(figure: Any, path: Path) -> None:
    """Write a figure to a file. Raises PlotError if the file cannot be written."""
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format=path.suffix[1:] or None, dpi=150, bbox_inches="tight")
        write_output(path if path.suffix else path.with_suffix(".png"), picture.getvalue())
    except OSError as error:
        raise PlotError(f"{path}: cannot be written: {error.strerror or error}") from None
    except ValueError as error:
        raise PlotError(f"{path}: {error}") from None


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
    """Draw a column for each collective: times over sizes above, ratios to han's times below.

    Bands span the times of all rounds. Raises PlotError.
    """
    panels, ratios = panels_of(rows), ratios_of(rows)
    figure, axes = new_figure(
        1.2 + 4.6 * len(panels), 6, 2, len(panels), sharex="col", squeeze=False,
        gridspec_kw={"height_ratios": [3, 1.4]},
    )  # fmt: skip
    colors = _colors(panels)
    for column, (collective, series) in enumerate(panels.items()):
        upper, lower = axes[0][column], axes[1][column]
        _draw_times(upper, series, colors)
        _draw_ratios(lower, ratios.get(collective, {}), colors)
        upper.set_title(collective)
        size_axis(lower, sorted({n for points in series.values() for n in points}))
    axes[0][0].set_ylabel("time per call (us)")
    axes[1][0].set_ylabel("time / han's")
    figure.suptitle(title)
    figure.align_ylabels()
    _legend(figure, axes[0], 2 * len(axes[0]))
    save(figure, path)


def _legend(figure: Any, axes: Sequence[Any], columns: int) -> None:
    """Draw one legend for all panels, below them, where it covers no line."""
    named: dict[str, Any] = {}
    for axis in axes:
        lines, names = axis.get_legend_handles_labels()
        named |= {name: line for name, line in zip(names, lines, strict=True) if name not in named}
    figure.legend(
        named.values(), named.keys(), loc="upper center", bbox_to_anchor=(0.5, 0),
        ncol=max(1, min(len(named), columns)), frameon=False,
    )  # fmt: skip


def _draw_times(axis: Any, series: Mapping[str, Series], colors: Mapping[str, str]) -> None:
    for name, points in series.items():
        sizes, color = sorted(points), colors[name]
        axis.plot(sizes, [points[n].median for n in sizes], "o-", ms=3, color=color, label=name)
        low, high = [points[n].low for n in sizes], [points[n].high for n in sizes]
        axis.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)
    axis.set_yscale("log")
    axis.grid(True, which="major", alpha=0.3)


def _draw_ratios(
    axis: Any, ratios: Mapping[str, Mapping[int, float]], colors: Mapping[str, str]
) -> None:
    for name, points in ratios.items():
        sizes = sorted(points)
        axis.plot(sizes, [points[n] for n in sizes], "o-", ms=3, color=colors[name])
    axis.axhline(1, color=colors.get("han", GREY))
    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.grid(True, which="major", alpha=0.3)


def size_axis(axis: Any, sizes: Sequence[int]) -> None:
    """Scale and label an axis of sizes in bytes."""
    axis.set_xscale("symlog" if 0 in sizes else "log", base=2)
    step = max(1, -(-len(sizes) // 8))
    axis.set_xticks(sizes[::step], [format_size(n) for n in sizes[::step]], rotation=45)
    axis.set_xticks([], minor=True)


def prediction_axes(axis: Any, times: Sequence[float]) -> None:
    """Scale and label the axes of predicted over measured times; draw where both are equal."""
    if times:
        axis.plot([min(times), max(times)], [min(times), max(times)], "-", color=GREY, lw=1)
        axis.set_xscale("log")
        axis.set_yscale("log")
    axis.set_xlabel("measured (us)")
    axis.set_ylabel("predicted (us)")


def _colors(panels: Panels) -> dict[str, str]:
    """Choose a colour for each library, the same in all panels."""
    names = dict.fromkeys(name for series in panels.values() for name in series)
    return {name: COLORS[k % len(COLORS)] for k, name in enumerate(names)}


COUNTS = ("ranks", "nodes", "calls", "tasks")


ACROSS = 4  # panels of a row


def lines(panels: Sequence[Panel], path: Path, title: str = "") -> None:
    """Draw times over sizes or counts, both on log scales, or over numbers. Raises PlotError."""
    columns = min(len(panels), ACROSS)
    rows = -(-len(panels) // ACROSS)
    figure, axes = new_figure(1.5 + 4.8 * columns, 4.2 * rows, rows, columns, squeeze=False)
    for axis, panel in zip_longest(axes.flat, panels):
        if panel is None:
            axis.set_visible(False)
        else:
            _draw_lines(axis, panel)
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    save(figure, path)


WIDE = {"linewidth": 5, "alpha": 0.45}  # a curve that others would cover


def _draw_lines(axis: Any, panel: Panel) -> None:
    curves = [*panel.series.items()]
    for k, (name, points) in enumerate(curves):
        color = COLORS[k % len(COLORS)]
        found = sorted(points)
        covered = any(points.items() & later.items() for _, later in curves[k + 1 :])
        axis.plot(
            found, [points[n] for n in found], "o-", ms=3, color=color, label=name,
            **(WIDE if covered else {}),
        )  # fmt: skip
    axis.set_yscale("log")
    axis.grid(True, which="major", alpha=0.3)
    axis.set_title(panel.title, fontsize=10)
    axis.set_ylabel(panel.unit)
    sizes = sorted({n for points in panel.series.values() for n in points})
    if panel.over in COUNTS:
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(n) for n in sizes], rotation=45)
        axis.set_xticks([], minor=True)
    elif panel.over.startswith("bytes"):
        size_axis(axis, sizes)
    else:
        axis.set_xticks(sizes)
    for k, (x, text) in enumerate(panel.marks.items()):
        axis.axvline(x, color=GREY, linestyle=("--", ":")[k % 2], label=text)
    axis.set_xlabel(panel.over)
    axis.legend(frameon=False, fontsize=8)


# ---- ratios as bars -----------------------------------------------------------------------------


BAR = 0.8  # height of the bars of all sizes, as a share of the distance between variants
Spread = tuple[float, float, float]  # the least ratio, that of the medians, and the greatest one


def of_ablation(results: Sequence[ablation.VariantResult], path: Path, title: str = "") -> None:
    """Draw a panel for each collective, with a bar for each variant and size.

    Raises PlotError.
    """
    from han.measure.ablation import BUILT_IN

    shown = [r for r in results if r.variant != BUILT_IN]
    collectives = list(dict.fromkeys(r.collective for r in shown)) or [""]
    sizes = list(dict.fromkeys(r.nbytes for r in shown))
    count = len(collectives)
    figure, axes = new_figure(1.5 + 4.2 * count, 4.6, 1, count, squeeze=False)
    for axis, collective in zip(axes[0], collectives, strict=True):
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


def of_programs(results: Sequence[programs.ProgramResult], path: Path, title: str = "") -> None:
    """Draw a bar for each row of a program, in a colour for each group.

    A ratio is that of the library's median to han's times of all rounds. Raises PlotError.
    """
    shown = [one for one in results if one.ratio is not None]
    figure, axis = new_figure(8, 1.4 + 0.3 * len(shown))
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
    axis.grid(True, axis="x", alpha=0.3)


def _finish(figure: Any, axis: Any, path: Path, title: str) -> None:
    """Add the legend of an axis below all panels, and write the picture."""
    _legend(figure, [axis], 8)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    save(figure, path)
