"""Files of timelines: versioned JSON, and trace events for Chrome's viewer and Perfetto."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from han.common.json_files import Format
from han.model.timeline import TaskTime, Timeline, TimelineError

FORMAT, VERSION = "han-trace", 1
_FORMAT = Format(FORMAT, VERSION, "trace", "record", TimelineError)
ABOUT = ("source", "title", "dropped", "uncertainty", "nodes", "communicator")
COLUMNS = tuple(field.name for field in fields(TaskTime))
Natural = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Moment = Annotated[float, Field(allow_inf_nan=False)]
_Row = tuple[
    Natural, Natural, str, str, str, Moment, Moment, Seconds, Seconds, Seconds, Natural, Natural
]


class _File(BaseModel):
    """The document: each task is a row, and `columns` names the columns once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["han-trace"]
    version: int
    source: Literal["measured", "predicted"]
    title: str
    dropped: Natural
    uncertainty: Seconds
    nodes: tuple[Natural, ...]
    communicator: str
    columns: tuple[str, ...]
    tasks: tuple[_Row, ...]

    @model_validator(mode="after")
    def _fits(self) -> _File:
        if self.columns != COLUMNS:
            raise ValueError(
                f"columns are {', '.join(self.columns)}; {', '.join(COLUMNS)} expected"
            )
        for k, row in enumerate(self.tasks):
            if problem := _problem(TaskTime(*row)):
                raise ValueError(f"tasks.{k}: {problem}")
            if self.nodes and row[0] >= len(self.nodes):
                raise ValueError(f"tasks.{k}: rank {row[0]} of {len(self.nodes)} ranks")
        return self


def _problem(task: TaskTime) -> str:
    """Return what is impossible in a task's times, up to rounding; "" if nothing is."""
    span = task.end - task.begin
    if span < 0:
        return "ends before it begins"
    most = span * (1 + 1e-6) + 1e-9
    if task.waited > most:
        return f"waits {task.waited:g} s of {span:g} s"
    busy = task.copying + task.reducing
    return f"copies and reduces {busy:g} s of {span:g} s" if busy > most else ""


def to_json(timeline: Timeline) -> str:
    """Return a timeline as JSON for :func:`from_json`, with one line for each task."""
    about = {name: getattr(timeline, name) for name in ABOUT}
    record = {"format": FORMAT, "version": VERSION, **about, "columns": COLUMNS}
    head = json.dumps(record).removesuffix("}")
    rows = ",\n".join(json.dumps(astuple(t)) for t in timeline.times)
    return f'{head}, "tasks": [\n{rows}]}}\n'


def load(path: Path) -> Timeline:
    """Read a timeline from a file; raises TimelineError for other files and other versions."""
    return from_json(_FORMAT.read(path), str(path))


def from_json(text: str, name: str = "trace") -> Timeline:
    """Read the JSON of :func:`to_json`; `name` is the source in error messages."""
    record = _FORMAT.validate(_File, text, name)
    about = record.model_dump(include=set(ABOUT))
    return Timeline(times=tuple(TaskTime(*row) for row in record.tasks), **about)


# ---- for ui.perfetto.dev and chrome://tracing -----------------------------------------------


def to_chrome(timelines: Sequence[Timeline]) -> str:
    """Return trace events in microseconds: a process for each rank, a thread for each stream.

    Each timeline begins at 0, because the clocks of different communicators are unrelated.
    """
    events: list[dict[str, Any]] = []
    first = 0
    for timeline in timelines:
        events += _events(timeline, first)
        first += 1 + max(timeline.ranks, default=-1)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})


def _events(timeline: Timeline, first: int) -> list[dict[str, Any]]:
    places = sorted({(t.rank, t.request, t.stream) for t in timeline.times})
    lanes = {lane: k for k, lane in enumerate(places)}
    events = [_named("process_name", first + r, 0, _rank_name(timeline, r)) for r in timeline.ranks]
    for (rank, request, stream), k in lanes.items():
        name = stream if not request else f"{stream}, persistent request {request}"
        events.append(_named("thread_name", first + rank, k, name))
    begin = timeline.begin
    for t in timeline.times:
        args = {
            "collective": t.collective, "bytes": t.nbytes, "call": t.call, "request": t.request,
            "waited_us": t.waited * 1e6, "copying_us": t.copying * 1e6,
            "reducing_us": t.reducing * 1e6,
        }  # fmt: skip
        events.append(
            {
                "ph": "X", "name": t.task, "cat": t.kind, "pid": first + t.rank,
                "tid": lanes[t.rank, t.request, t.stream], "ts": (t.begin - begin) * 1e6,
                "dur": (t.end - t.begin) * 1e6, "args": args,
            }
        )  # fmt: skip
    return events


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _rank_name(timeline: Timeline, rank: int) -> str:
    node = f", node {timeline.nodes[rank]}" if rank < len(timeline.nodes) else ""
    whose = f", {timeline.communicator}" if timeline.communicator else ""
    return f"rank {rank}{node} ({timeline.source}{whose})"
