"""A page of timelines that stands alone: tables, and timelines to zoom into. Needs no network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, TypeVar

from han.common.grouped import grouped
from han.common.units import format_duration
from han.model.timeline import TaskTime, Timeline, shape_name, typical_call
from han.plots.timeline import Lane, colors_of, lane_of, lanes_of, longest_of, mixed
from han.trace.tables import HEADS, LEFT, left_out, rows_of, sentences, title_of
from han.trace.timeline_parts import select

MOST_TASKS = 100_000  # on a page, which then has about 6 MB
BUTTONS = {"call": "typical call", "all": "everything", "w": "+", "s": "\u2212"}
BUTTONS |= {"a": "\u2190", "d": "\u2192"}

T = TypeVar("T")


def page(timelines: Sequence[Timeline], most: int = MOST_TASKS) -> str:
    """Return an HTML page of timelines, each with its sentences and its table.

    Of more than `most` tasks the first ones of each timeline are shown, and the page says so.
    """
    colors = colors_of(timelines)
    shown = _cut(timelines, most)
    sections = "".join(_section(*both) for both in zip(timelines, shown, strict=True))
    data = json.dumps([_data(line, _view(line, shown), colors) for line in shown])
    data = data.replace("<", "\\u003c")  # no text of a task ends the script
    return _template().substitute(legend=_legend(colors), sections=sections, data=data)


@cache
def _template() -> Template:
    return Template(files("han.plots").joinpath("page.html").read_text(encoding="utf-8"))


def _cut(timelines: Sequence[Timeline], most: int) -> list[Timeline]:
    """Return timelines with at most so many tasks together: the first ones of each."""
    count = sum(len(line.times) for line in timelines)
    if count <= most:
        return [*timelines]
    return [
        replace(line, times=line.times[: max(1, len(line.times) * most // count)])
        for line in timelines
    ]


def _view(timeline: Timeline, shown: Sequence[Timeline]) -> list[float]:
    """Return the microseconds to show first: those of the typical call.

    Timelines of one communicator begin with views of one length.
    """
    typical = [select(line, typical_call(line)) for line in shown]
    mine = typical[shown.index(timeline)]
    low = mine.begin - timeline.begin
    return [low * 1e6, (low + longest_of(mine, typical)) * 1e6]


# ---- the words ----------------------------------------------------------------------------------


def _section(whole: Timeline, shown: Timeline) -> str:
    """Return the title, the sentences, the canvas and the table of a timeline."""
    said = [*sentences(whole), *filter(None, [_missing(whole, shown)])]
    lines = "".join(f"<p>{escape(text)}</p>" for text in said)
    buttons = "".join(
        f'<button type="button" data-key="{key}">{text}</button>' for key, text in BUTTONS.items()
    )
    label = "when the tasks of each rank ran; the table below has the shares of time"
    return (
        f"<section><h2>{escape(title_of(whole))}</h2>{lines}"
        f'<div class="bar">{buttons}</div>'
        f'<canvas tabindex="0" role="img" aria-label="{label}"></canvas>'
        f'<div class="scroll">{_table(whole)}</div><p>{escape(left_out(whole))}</p></section>'
    )


def _missing(whole: Timeline, shown: Timeline) -> str:
    """Say which part of a timeline is not drawn, or nothing."""
    if len(whole.times) == len(shown.times):
        return ""
    spans = (format_duration(one.end - one.begin) for one in (shown, whole))
    return (
        f"Drawn are the first {len(shown.times)} of {len(whole.times)} tasks, "
        f"{' of '.join(spans)}: --from, --to, --call and --ranks choose others."
    )


def _table(timeline: Timeline) -> str:
    heads = "".join(f"<th{_class(head in LEFT)}>{escape(head)}</th>" for head in HEADS)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows_of(timeline))
    return f"<table><tr>{heads}</tr>{body}</table>"


def _cells(row: Sequence[str]) -> str:
    return "".join(
        f"<td{_class(head in LEFT)}>{escape(cell)}</td>"
        for head, cell in zip(HEADS, row, strict=True)
    )


def _class(left: bool) -> str:
    return ' class="left"' if left else ""


def _legend(colors: Mapping[str, str]) -> str:
    return "".join(
        f'<span><i style="background:{color}"></i>{escape(kind)}</span>'
        for kind, color in colors.items()
    )


# ---- the data -----------------------------------------------------------------------------------


def _data(timeline: Timeline, view: Sequence[float], colors: Mapping[str, str]) -> dict[str, Any]:
    """Return what the script draws; times in microseconds from the first task."""
    names = _numbered(t.task for t in timeline.times)
    calls = _numbered(t.which for t in timeline.times)
    called = {t.which: _call_name(t) for t in timeline.times}
    lanes = grouped((lane_of(t), t) for t in timeline.times)
    begin = timeline.begin
    return {
        "end": (timeline.end - begin) * 1e6,
        "view": [*view],
        "names": [*names],
        "calls": [called[which] for which in calls],
        "lanes": [
            {
                **_lane(timeline, lane, lanes[lane][0], colors),
                "tasks": [[*_times(t, begin), calls[t.which], names[t.task]] for t in lanes[lane]],
            }
            for lane in lanes_of(timeline)
        ],
    }


def _numbered(things: Iterable[T]) -> dict[T, int]:
    return {thing: k for k, thing in enumerate(dict.fromkeys(things))}


def _lane(
    timeline: Timeline, lane: Lane, first: TaskTime, colors: Mapping[str, str]
) -> dict[str, Any]:
    """Return the labels and colours of a lane."""
    rank, request, stream = lane
    nodes, color = timeline.nodes, colors[first.kind]
    return {
        "rank": rank,
        "node": f"node {nodes[rank]}" if rank < len(nodes) else "",
        "level": stream.partition("@")[2] or stream,
        "label": f"rank {rank} {f'{request}:' if request else ''}{first.kind}",
        "colors": [mixed(color, 0.33), color, mixed(color, 1.6)],
    }


def _times(task: TaskTime, origin: float) -> list[float]:
    """Return begin, wait, end, copying and reducing, in thousandths of a microsecond."""
    moments = task.begin - origin, task.waited, task.end - origin, task.copying, task.reducing
    return [round(seconds * 1e6, 3) for seconds in moments]


def _call_name(task: TaskTime) -> str:
    whose = f" of persistent request {task.request}" if task.request else ""
    return f"{shape_name(task.collective, task.nbytes)}, call {task.call}{whose}"
