"""Pictures of timelines: a lane for each stream of each rank. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from han.common.grouped import grouped
from han.model.timeline import TaskTime, Timeline, remarks, shape_name, shares
from han.plots.style import COLORS, GREY, SMALL, legend, new_figure, save, styled
from han.trace.timeline_parts import select

MOST_LANES = 20  # in a panel; of more ranks, only some are drawn
WIDTH = 9.0  # inches
LANE, HEAD = 0.27, 0.95  # inches: the height of a lane, and of a panel without its lanes
BAR = 0.74  # height of a bar, as a share of its lane
LETTER = 0.068  # inches: the width of a letter in a bar
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
Lane = tuple[int, int, str]  # rank, persistent request, stream
ORDER = {"sb": 0, "ib": 1, "sr": 2, "ir": 3, "ia": 4}  # the same colours in all pictures


@dataclass(frozen=True)
class LanePanel:
    """The part of a timeline that is drawn, and a remark on the rest."""

    whole: Timeline
    timeline: Timeline
    lanes: Sequence[Lane]
    remark: str


@styled
def gantt(timelines: Sequence[Timeline], path: Path, title: str = "") -> None:
    """Draw timelines below each other, those of a communicator on one axis of time.

    Each begins with its first task.

    A bar covers the time from a task's start to its end. The height of its strong part is the
    share of that time in which the task copies or reduces. A thin line before the bar is the time
    in which the task waits for other tasks or ranks. Raises PlotError.
    """
    panels = [panel_of(timeline) for timeline in timelines]
    heights = [HEAD + LANE * max(1, len(panel.lanes)) for panel in panels]
    figure, axes = new_figure(
        WIDTH, 0.7 + sum(heights), len(panels), squeeze=False,
        gridspec_kw={"height_ratios": heights},
    )  # fmt: skip
    colors = colors_of(timelines)
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        longest = longest_of(panel.whole, timelines)
        unit, name = next((u for u in UNITS if longest >= 2 * u[0]), UNITS[-1])
        _draw(axis, panel, unit, longest / unit, colors)
        axis.set_xlim(0, longest / unit * 1.005)
        axis.set_xlabel(f"time from the first task ({name})")
    _legend(figure, colors)
    figure.suptitle(title)
    save(figure, path)


def longest_of(timeline: Timeline, timelines: Sequence[Timeline]) -> float:
    """Return the seconds of the axis of a timeline: those of one communicator have the same.

    A timeline without a communicator, as predicted ones are, stands beside all others.
    """
    names = {timeline.communicator, ""}
    beside = [t for t in timelines if not timeline.communicator or t.communicator in names]
    return max((t.end - t.begin for t in beside), default=0.0) or 1e-6


def panel_of(timeline: Timeline) -> LanePanel:
    """Choose the ranks to draw: all, or some of every node if there are too many lanes."""
    lanes = lanes_of(timeline)
    if len(lanes) <= MOST_LANES:
        return LanePanel(timeline, timeline, lanes, "")
    count = len(timeline.ranks)
    kept: list[int] = []
    for rank in _telling(timeline):
        if kept and sum(lane[0] in (*kept, rank) for lane in lanes) > MOST_LANES:
            break
        kept.append(rank)
    shown = select(timeline, ranks=kept)
    return LanePanel(timeline, shown, lanes_of(shown), f"{len(kept)} of {count} ranks are drawn")


def lane_of(task: TaskTime) -> Lane:
    """Return the lane of a task."""
    return task.rank, task.request, task.stream


def lanes_of(timeline: Timeline) -> list[Lane]:
    """Return the lanes by rank, and within a rank in the order in which the streams begin."""
    first: dict[Lane, float] = {}
    for t in timeline.times:
        lane = lane_of(t)
        first[lane] = min(t.begin, first.get(lane, t.begin))
    return sorted(first, key=lambda lane: (lane[0], first[lane]))


def _legend(figure: Any, colors: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=color, label=kind) for kind, color in colors.items()]
    handles += [  # in grey, as each kind has these shades of its own colour
        Patch(facecolor=mixed(GREY, 0.33), label="open: messages, waits"),
        Patch(facecolor=GREY, label="copies (part of the height)"),
        Patch(facecolor=mixed(GREY, 1.6), label="reduces (likewise)"),
    ]
    legend(figure, handles)


def _telling(timeline: Timeline) -> list[int]:
    """Return all ranks in the order in which to draw them: one of each node in turn.

    Of each node, the ranks with the most streams come first.
    """
    streams = dict.fromkeys(timeline.ranks, 0)
    for lane in lanes_of(timeline):
        streams[lane[0]] += 1
    ranks = sorted(streams, key=lambda r: (-streams[r], r))
    nodes = grouped((timeline.nodes[r] if r < len(timeline.nodes) else 0, r) for r in ranks)
    turns = [(k, node, r) for node, ranks in sorted(nodes.items()) for k, r in enumerate(ranks)]
    return [r for _, _, r in sorted(turns, key=lambda turn: (turn[0] // 2, *turn))]


def colors_of(timelines: Sequence[Timeline]) -> dict[str, str]:
    """Return a colour for each kind of task, the same in all pictures."""
    kinds = {t.kind for timeline in timelines for t in timeline.times}
    ordered = sorted(kinds, key=lambda kind: (ORDER.get(kind, len(ORDER)), kind))
    return {kind: COLORS[ORDER.get(kind, k) % len(COLORS)] for k, kind in enumerate(ordered)}


def _draw(
    axis: Any, panel: LanePanel, unit: float, longest: float, colors: Mapping[str, str]
) -> None:
    place = {lane: k for k, lane in enumerate(panel.lanes)}
    begin = panel.timeline.begin
    lanes = grouped(((lane_of(t), t.kind), t) for t in panel.timeline.times)
    for (lane, kind), times in lanes.items():
        _draw_tasks(axis, place[lane], times, begin, unit, colors[kind])
    for t in panel.timeline.times:
        width = (t.end - t.start) / unit
        if width / longest * WIDTH * 0.85 > LETTER * (len(t.task) + 1):
            height = place[lane_of(t)]
            middle = (t.start - begin) / unit + width / 2
            axis.text(middle, height, t.task, ha="center", va="center", fontsize=7)
    _label(axis, panel)


def _draw_tasks(
    axis: Any, lane: int, times: Sequence[TaskTime], origin: float, unit: float, color: str
) -> None:
    """Draw a lane's tasks of one kind. Outlines keep short tasks visible."""
    bottom = lane + BAR / 2
    moments = np.array([(t.begin, t.start, t.end) for t in times])
    begin, start, end = (moments - origin).T / unit
    width = end - start
    axis.hlines([lane] * len(times), begin, start, color=color, linewidth=0.8, alpha=0.5)
    axis.bar(
        start, -BAR, width, bottom, align="edge", facecolor=mixed(color, 0.33),
        edgecolor=mixed(color, 0.6), linewidth=0.35,
    )  # fmt: skip
    at_work = np.array([(t.copying, t.reducing) for t in times]).T / unit
    parts = np.divide(at_work, width, out=np.zeros_like(at_work), where=width > 0)
    copying, reducing = -BAR * np.minimum(1.0, parts)
    strong = {"align": "edge", "linewidth": 0.35}
    axis.bar(start, copying, width, bottom, color=color, edgecolor=mixed(color, 0.6), **strong)
    axis.bar(start, reducing, width, bottom + copying, color=mixed(color, 1.6), **strong)


def mixed(color: str, strength: float) -> str:
    """Mix a colour with white or black. A strength of 0 is white, 1 the colour, 2 black."""
    parts = (int(color[k : k + 2], 16) for k in (1, 3, 5))
    mixed = (255 - (255 - c) * strength if strength <= 1 else c * (2 - strength) for c in parts)
    return "#" + "".join(f"{round(c):02x}" for c in mixed)


def _label(axis: Any, panel: LanePanel) -> None:
    lanes, nodes = panel.lanes, panel.timeline.nodes
    kinds = {lane_of(t): t.kind for t in panel.timeline.times}
    names = [f"{lane[1]}:{kinds[lane]}" if lane[1] else kinds[lane] for lane in lanes]
    axis.set_yticks(range(len(lanes)), names, fontsize=SMALL)
    axis.set_ylim(len(lanes) - 0.4, -0.6)
    ranks = [lane[0] for lane in lanes]
    for rank in dict.fromkeys(ranks):
        first, count = ranks.index(rank), ranks.count(rank)
        if first:
            axis.axhline(first - 0.5, color=GREY, linewidth=0.6)
        node = f"\nnode {nodes[rank]}" if rank < len(nodes) and count > 1 else ""
        axis.annotate(
            f"rank {rank}{node}", (0, first + (count - 1) / 2), (-34, 0), ha="right", va="center",
            xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=SMALL,
        )  # fmt: skip
    axis.set_title(_caption(panel), loc="left", fontsize=SMALL, wrap=True)
    axis.tick_params(length=0)
    axis.grid(True, axis="x")
    axis.spines["left"].set_visible(False)


def _caption(panel: LanePanel) -> str:
    whole = panel.whole
    share = shares(whole).overall
    parts = ", ".join(
        f"{name} {getattr(share, name) * 100:.0f} %"
        for name in ("overlapped", "waiting", "copying", "reducing")
    )
    remark = f"; {panel.remark}" if panel.remark else ""
    return f"{whole.source}: {_calls(whole)}{whole.title}: {parts}{remarks(whole)}{remark}"


def _calls(timeline: Timeline) -> str:
    """Describe the call that is drawn, or return the number of calls if there are several."""
    calls = {(t.which, t.collective, t.nbytes) for t in timeline.times}
    if len(calls) != 1:
        return f"{len(calls)} calls, "
    (((request, call), collective, nbytes),) = calls
    whose = f" of persistent request {request}" if request else ""
    return f"{shape_name(collective, nbytes)}, call {call}{whose}, "
