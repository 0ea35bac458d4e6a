"""Pictures: times over sizes, and TaskGraphs. Needs matplotlib (``pip install han[plot]``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from han._bench_machine import plural
from han._units import format_size
from han.errors import HanError

if TYPE_CHECKING:
    from han._bench_report import Merged, Report
    from han.bench import Times
    from han.tasks.graph import Task, TaskGraph

Series = Mapping[int, "Times"]
Panels = Mapping[str, Mapping[str, Series]]  # collective -> who -> bytes -> times

MOST_STAGES = 20  # columns of a TaskGraph that are drawn; the middle of a longer one is not
COLORS = ("#1b6ca8", "#c8553d", "#588157", "#8e6c8a", "#b08900", "#4a4e69", "#2a9d8f", "#9d0208")
GREY = "#9a9a9a"


class PlotError(HanError, RuntimeError):
    """A picture cannot be made."""


def _pyplot() -> Any:
    """Return matplotlib's pyplot on a backend that needs no display."""
    try:
        import matplotlib
    except ImportError:
        raise PlotError(
            "pictures need matplotlib, which is not installed: pip install 'han[plot]'"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, dpi=150, bbox_inches="tight")
    except ValueError as error:  # a suffix that is no picture's
        raise PlotError(f"{path}: {error}") from None
    finally:
        _pyplot().close(figure)


# ---- times over sizes -----------------------------------------------------------------------


def panels_of(run: Report) -> Panels:
    """Return the series of one run: han and its library."""
    from han.bench import SIDES

    titles = {"han": "han", "mpi": run.library}
    return _panels({titles[side]: run.series(side) for side in SIDES if run.series(side)})


def merged_panels(rows: Sequence[Merged]) -> Panels:
    """Return the series of several runs: han at its best and every library."""
    series: dict[str, dict[tuple[str, int], Times]] = {"han": {}}
    for row in rows:
        key = row.collective, row.nbytes
        series["han"][key] = row.best_han[1]
        for name, times in row.mpi.items():
            series.setdefault(name, {})[key] = times
    return _panels(series)


def _panels(series: Mapping[str, Mapping[tuple[str, int], Times]]) -> Panels:
    panels: dict[str, dict[str, dict[int, Times]]] = {}
    for name, points in series.items():
        for (collective, nbytes), times in points.items():
            panels.setdefault(collective, {}).setdefault(name, {})[nbytes] = times
    return panels


def title_of(run: Report) -> str:
    """Return a title that says where a run was measured."""
    machine = run.data["machine"]
    where = plural(machine["nodes"], "node")
    return f"{machine['ranks']} ranks on {where}, {run.data['settings']['mode']} calls"


def comparison(panels: Panels, path: Path, title: str = "") -> None:
    """Draw times over sizes, a column for each collective, and below them others' times / han's.

    Bands reach from the fastest to the slowest round. Raises PlotError.
    """
    plt = _pyplot()
    figure, axes = plt.subplots(
        2, len(panels), figsize=(1.2 + 4.6 * len(panels), 6), sharex="col", squeeze=False,
        gridspec_kw={"height_ratios": [3, 1.4]},
    )  # fmt: skip
    for column, (collective, series) in enumerate(panels.items()):
        upper, lower = axes[0][column], axes[1][column]
        _draw_times(upper, series)
        _draw_ratios(lower, series)
        upper.set_title(collective)
        _size_axis(lower, sorted({n for points in series.values() for n in points}))
    axes[0][0].set_ylabel("time per call (us)")
    axes[1][0].set_ylabel("time / han's")
    axes[0][0].legend(frameon=False)
    figure.suptitle(title)
    figure.align_ylabels()
    _save(figure, path)


@dataclass(frozen=True)
class Panel:
    """Lines over sizes or counts: microseconds by name and x; `marks` are upright lines."""

    title: str
    over: str
    series: Mapping[str, Mapping[int, float]]
    marks: Mapping[int, str] = field(default_factory=dict)
    note: str = ""


def lines(panels: Sequence[Panel], path: Path, title: str = "") -> None:
    """Draw times over sizes or counts, both on log scales. Raises PlotError."""
    plt = _pyplot()
    width = 1.5 + 4.8 * len(panels)
    figure, axes = plt.subplots(1, len(panels), figsize=(width, 4.2), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        _draw_lines(axis, panel)
    axes[0][0].set_ylabel("time per call (us)")
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    _save(figure, path)


def _draw_lines(axis: Any, panel: Panel) -> None:
    for color, (name, points) in zip(_colors(len(panel.series)), panel.series.items(), strict=True):
        found = sorted(points)
        axis.plot(found, [points[n] for n in found], "o-", ms=3, color=color, label=name)
    axis.set_yscale("log")
    axis.grid(True, which="major", alpha=0.3)
    axis.set_title(panel.title, fontsize=10)
    sizes = sorted({n for points in panel.series.values() for n in points})
    if panel.over == "ranks":
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(n) for n in sizes], rotation=45)
        axis.set_xticks([], minor=True)
    else:
        _size_axis(axis, sizes)
    for k, (x, text) in enumerate(panel.marks.items()):
        axis.axvline(x, color=GREY, linestyle=("--", ":")[k % 2], label=text)
    axis.set_xlabel(panel.over)
    if panel.note:
        axis.text(0.98, 0.04, panel.note, transform=axis.transAxes, ha="right", fontsize=8)
    axis.legend(frameon=False, fontsize=8)


def _draw_times(axis: Any, series: Mapping[str, Series]) -> None:
    for color, (name, points) in zip(_colors(len(series)), series.items(), strict=True):
        sizes = sorted(points)
        axis.plot(sizes, [points[n].median for n in sizes], "o-", ms=3, color=color, label=name)
        low, high = [points[n].low for n in sizes], [points[n].high for n in sizes]
        axis.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)
    axis.set_yscale("log")
    axis.grid(True, which="major", alpha=0.3)


def _draw_ratios(axis: Any, series: Mapping[str, Series]) -> None:
    base = series.get("han", {})
    for color, (name, points) in zip(_colors(len(series)), series.items(), strict=True):
        sizes = [n for n in sorted(points) if n in base]
        ratios = [points[n].median / base[n].median for n in sizes]
        axis.plot(sizes, ratios, "-" if name == "han" else "o-", ms=3, color=color)
    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.grid(True, which="major", alpha=0.3)


def _size_axis(axis: Any, sizes: Sequence[int]) -> None:
    axis.set_xscale("symlog" if 0 in sizes else "log", base=2)
    step = max(1, -(-len(sizes) // 8))
    axis.set_xticks(sizes[::step], [format_size(n) for n in sizes[::step]], rotation=45)
    axis.set_xticks([], minor=True)


def _colors(count: int) -> list[str]:
    return [COLORS[k % len(COLORS)] for k in range(count)]


# ---- TaskGraphs -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Where the tasks that are drawn stand: columns are stages, rows are streams."""

    column: Mapping[Task, int]
    row: Mapping[Task, int]
    stages: Sequence[tuple[int, int]]  # column, number of the stage
    gap: int | None  # the column that stands for the stages left out
    hidden: int


def layout(graph: TaskGraph) -> Layout:
    """Place tasks: all stages, or the first and the last of a long graph."""
    stages = graph.stages()
    streams = {stream: k for k, stream in enumerate(graph.streams())}
    half = MOST_STAGES // 2
    count = len(stages)
    kept = (
        list(range(count)) if count <= MOST_STAGES else [*range(half), *range(count - half, count)]
    )
    gap = half if len(kept) < count else None
    columns = {s: k + (gap is not None and k >= gap) for k, s in enumerate(kept)}
    return Layout(
        column={task: columns[s] for s in kept for task in stages[s]},
        row={task: streams[task.stream] for s in kept for task in stages[s]},
        stages=[(columns[s], s) for s in kept],
        gap=gap,
        hidden=count - len(kept),
    )


def task_graph(graph: TaskGraph, path: Path, title: str = "") -> None:
    """Draw a TaskGraph: a column for each stage, a row for each stream. Raises PlotError.

    Solid arrows carry data, dashed ones only order; the middle of a long graph is left out.
    """
    plt = _pyplot()
    places = layout(graph)
    columns = 1 + max(places.column.values(), default=0)
    rows = len(graph.streams())
    figure, axis = plt.subplots(figsize=(max(5.0, 1.0 + 0.95 * columns), 1.9 + 0.8 * rows))
    _draw_edges(axis, graph, places)
    for task, column in places.column.items():
        _draw_task(axis, task, column, places.row[task])
    _label(axis, graph, places, rows)
    axis.set_xlim(-0.7, columns - 0.3)
    axis.set_ylim(rows - 0.35, -0.65)
    axis.set_title(title or "tasks", fontsize=11, pad=14)
    _save(figure, path)


def _draw_edges(axis: Any, graph: TaskGraph, places: Layout) -> None:
    for first, second, edge in graph.edges(data=True):
        why = edge["why"]
        if first not in places.column or second not in places.column:
            continue
        data = why == "data"
        far = places.column[second] - places.column[first] > 1
        arrow = {
            "arrowstyle": "-|>",
            "color": "#333333" if data else GREY,
            "linestyle": "-" if data else (0, (3, 2)),
            "linewidth": 1.1 if data else 0.9,
            "shrinkA": 15,
            "shrinkB": 15,
            "connectionstyle": f"arc3,rad={0.25 if far else 0}",
        }
        start = places.column[first], places.row[first]
        axis.annotate("", (places.column[second], places.row[second]), start, arrowprops=arrow)


def _draw_task(axis: Any, task: Task, column: int, row: int) -> None:
    box = {
        "boxstyle": "round,pad=0.35",
        "facecolor": COLORS[task.level % len(COLORS)],
        "edgecolor": "none",
    }
    axis.text(column, row, str(task), ha="center", va="center", color="white", fontsize=8, bbox=box)


def _label(axis: Any, graph: TaskGraph, places: Layout, rows: int) -> None:
    names = graph.stage_names()
    if places.gap is not None:
        text = f"...\n{places.hidden} more\nstages"
        axis.text(
            places.gap, (rows - 1) / 2, text, ha="center", va="center", color=GREY, fontsize=8
        )
    ticks = [column for column, _ in places.stages]
    labels = [f"{stage}\n{names[stage]}" for _, stage in places.stages]
    axis.set_xticks(ticks, labels, fontsize=7)
    streams = [f"{tasks[0].name}: {kind}" for (kind, _), tasks in graph.streams().items()]
    axis.set_yticks(range(rows), streams, fontsize=9)
    axis.set_xlabel("stage (solid: data, dashed: order only; colours: levels)", fontsize=9)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
