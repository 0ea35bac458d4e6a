"""Pictures of TaskGraphs: a column for each stage, a lane for each stream. Needs matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from han.common.units import format_size, plural
from han.plots.style import COLORS, INK, SMALL, new_figure, save, styled, svg_of
from han.tasks.graph import Task, summarise
from han.tasks.task_graph import TaskGraph

if TYPE_CHECKING:
    from han.tasks.plan import Plan

MOST_STAGES = 16  # a graph with more stages is drawn without the middle of its steady part
MOST_COLUMNS = 40  # where these are still too many, without the middle of the graph
SHOWN_EACH_SIDE = 2  # stages of the steady part that are drawn on each side of the gap
NAME_WIDTH = 8  # letters of a stage's name in a line
COLUMN, LANE = 0.92, 0.72  # inches
GREY, STRIPE = "#8c8c8c", "#f3f3f3"


# ---- positions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskGrid:
    """The positions of tasks: columns are stages, rows are streams.

    Tasks of stages that are not drawn are in the column `gap`.
    """

    column: Mapping[Task, int]
    row: Mapping[Task, int]
    titles: Mapping[int, str]  # names of the drawn stages, by column
    numbers: Mapping[int, int]  # numbers of the drawn stages, by column
    gap: int | None
    left_out: str  # ``44 x sbibirsr``

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return len(self.titles) + (self.gap is not None)

    def shown(self, task: Task) -> bool:
        """Whether the task's stage is drawn."""
        return self.column[task] != self.gap


def task_grid(graph: TaskGraph) -> TaskGrid:
    """Place tasks: all stages, or all but the middle of a long graph's steady part."""
    stages, names = graph.stages(), graph.stage_names()
    streams = {stream: k for k, stream in enumerate(graph.streams())}
    hidden = _left_out(names)
    gap = hidden.start if hidden else None
    columns = [
        s - min(max(s - hidden.start, 0), max(len(hidden) - 1, 0)) for s in range(len(stages))
    ]
    drawn = [s for s in range(len(stages)) if s not in hidden]
    return TaskGrid(
        column={task: columns[s] for s, stage in enumerate(stages) for task in stage},
        row={task: streams[task.stream] for task in graph},
        titles={columns[s]: names[s] for s in drawn},
        numbers={columns[s]: s for s in drawn},
        gap=gap,
        left_out=_summary([names[s] for s in hidden]),
    )


def _left_out(names: Sequence[str]) -> range:
    """Return the stages that are not drawn: the middle of the longest run of equal stages.

    Where too many stages would remain, it is the middle of all stages.
    """
    if len(names) <= MOST_STAGES:
        return range(0)
    runs, start = [], 0
    for _, same in groupby(names):
        runs.append(range(start, start + len(list(same))))
        start = runs[-1].stop
    steady = max(runs, key=len)[SHOWN_EACH_SIDE:-SHOWN_EACH_SIDE]
    if len(names) - len(steady) <= MOST_COLUMNS:
        return steady
    half = MOST_COLUMNS // 2
    return range(half, len(names) - half)


def _summary(names: Sequence[str]) -> str:
    return summarise(names) if len(set(names)) <= 1 else f"{len(names)} stages"


# ---- drawing ------------------------------------------------------------------------------------


@styled
def plan_picture(plan: Plan, path: Path) -> None:
    """Draw a plan's graph into a file, with the title of :func:`title_of`. Raises PlotError."""
    task_graph(plan.graph, path, title_of(plan), plan.topology.names)


def title_of(plan: Plan) -> str:
    """Return the call, the machine, the segments and the schedule, in two lines."""
    choice = plan.choice
    count = plan.segments
    size = "" if choice.segment is None or count == 1 else f" of {format_size(choice.segment)}"
    cut = plural(count, "segment") + size
    return f"{plan.signature.describe()}\n{plan.topology.describe()}; {cut}, {choice.schedule}"


@styled
def task_graph(graph: TaskGraph, path: Path, title: str = "", levels: Sequence[str] = ()) -> None:
    """Draw a TaskGraph into a file. Raises PlotError; see :func:`drawn`."""
    save(drawn(graph, title, levels), path)


@styled
def plan_svg(plan: Plan) -> str:
    """Return a plan's graph, with its title, as SVG."""
    return svg_of(drawn(plan.graph, title_of(plan), plan.topology.names))


@styled
def graph_svg(graph: TaskGraph) -> str:
    """Return a graph as SVG."""
    return svg_of(drawn(graph))


def drawn(graph: TaskGraph, title: str = "", levels: Sequence[str] = ()) -> Any:
    """Return a figure of a TaskGraph: a column for each stage, a lane for each stream.

    A solid arrow is a data dependency, a dashed arrow is order only. `levels` names the levels. A
    column of dots stands for the stages that are left out of a long graph.
    """
    grid = task_grid(graph)
    lanes = _lanes(graph, levels)
    columns, rows = max(2, grid.columns), max(1, len(lanes))
    figure, axis = new_figure(1.2 * COLUMN * columns, 1.3 * LANE * rows)
    _frame(axis, columns, rows)
    _draw_lanes(axis, lanes)
    _draw_columns(axis, grid, len(lanes))
    for first, second, edge in graph.edges(data=True):
        _draw_edge(axis, grid, first, second, edge["why"] == "data")
    for task in filter(grid.shown, graph):
        _draw_task(axis, grid, task)
    _legend(axis, graph, levels)
    axis.set_title(title or "tasks", fontsize=11, loc="left", pad=_title_pad(grid))
    return figure


def _folded(name: str) -> str:
    return textwrap.fill(name, NAME_WIDTH)


def _title_pad(grid: TaskGrid) -> float:
    """Return the points between title and lanes, enough for the titles of the columns."""
    lines = max((_folded(name).count("\n") for name in grid.titles.values()), default=0)
    return 30 + 11 * lines


def _lanes(graph: TaskGraph, levels: Sequence[str]) -> list[str]:
    """Return the names of the streams, such as ``reduce@node``."""
    return [
        f"{kind}@{levels[level]}" if levels else f"{kind}@{tasks[0].name[:-1]}"
        for (kind, level), tasks in graph.streams().items()
    ]


def _frame(axis: Any, columns: int, lanes: int) -> None:
    axis.set_xlim(-0.5, columns - 0.5)
    axis.set_ylim(lanes - 0.5, -0.5)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)


def _draw_lanes(axis: Any, lanes: Sequence[str]) -> None:
    axis.set_yticks(range(len(lanes)), lanes, fontsize=9)
    if not lanes:
        axis.text(-0.4, 0, "no tasks: the rank is alone", va="center", color=GREY)


def _draw_columns(axis: Any, grid: TaskGrid, lanes: int) -> None:
    """Write a stage's composite task above its column and its number below; shade every other."""
    for column, name in grid.titles.items():
        axis.text(
            column,
            -0.56,
            _folded(name),
            ha="center",
            va="bottom",
            fontsize=SMALL,
            family="monospace",
        )
        if column % 2:
            axis.axvspan(column - 0.5, column + 0.5, color=STRIPE, linewidth=0, zorder=0)
    axis.set_xticks(list(grid.numbers), [str(s) for s in grid.numbers.values()], fontsize=SMALL)
    axis.set_xlabel("stage" if grid.titles else "", fontsize=9)
    if grid.gap is not None:
        count, _, name = grid.left_out.partition(" x ")
        text = "\n".join(["...", f"{count} x" if name else count, _folded(name), "..."])
        axis.text(
            grid.gap, (lanes - 1) / 2, text, ha="center", va="center", color=INK,
            fontsize=SMALL, family="monospace",
        )  # fmt: skip


def _draw_edge(axis: Any, grid: TaskGrid, first: Task, second: Task, data: bool) -> None:
    """Draw an arrow. If only one of the tasks is drawn, draw the half next to it."""
    ends = [(grid.column[task], grid.row[task]) for task in (first, second)]
    shown = [grid.shown(task) for task in (first, second)]
    if not any(shown):
        return
    start, stop = (
        end if here else _towards(end, other, 0.62)
        for end, other, here in zip(ends, reversed(ends), shown, strict=True)
    )
    far = abs(ends[1][0] - ends[0][0]) > 1
    arrow = {
        "arrowstyle": "-|>,head_width=0.18,head_length=0.36" if shown[1] else "-",
        "color": INK if data else GREY,
        "linestyle": "-" if data else (0, (3, 2)),
        "linewidth": 1.1 if data else 0.9,
        "shrinkA": 15 if shown[0] else 0,
        "shrinkB": 15 if shown[1] else 0,
        "connectionstyle": f"arc3,rad={0.25 if far else 0}",
    }
    axis.annotate("", stop, start, arrowprops=arrow)


def _towards(
    end: tuple[float, float], other: tuple[float, float], share: float
) -> tuple[float, float]:
    return end[0] + share * (other[0] - end[0]), end[1] + share * (other[1] - end[1])


def _draw_task(axis: Any, grid: TaskGrid, task: Task) -> None:
    box = {"boxstyle": "round,pad=0.35", "facecolor": _color(task), "edgecolor": "none"}
    axis.text(
        grid.column[task], grid.row[task], str(task), ha="center", va="center",
        color="white", fontsize=SMALL, bbox=box,
    )  # fmt: skip


def _color(task: Task) -> str:
    return COLORS[task.level % len(COLORS)]


def _legend(axis: Any, graph: TaskGraph, levels: Sequence[str]) -> None:
    """Explain arrows and colours below the picture."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds = {edge["why"] for _, _, edge in graph.edges(data=True)}
    handles: list[Any] = [
        Line2D([], [], color=INK, label="data") if why == "data"
        else Line2D([], [], color=GREY, linestyle=(0, (3, 2)), label="order only")
        for why in sorted(kinds)
    ]  # fmt: skip
    first = {task.level: task for task in graph}
    handles += [
        Patch(color=_color(first[k]), label=levels[k] if levels else first[k].name[:-1])
        for k in sorted(first)
    ]
    if handles:
        axis.legend(
            handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=4,
            ncol=len(handles), frameon=False, fontsize=9,
        )  # fmt: skip
