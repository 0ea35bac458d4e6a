"""The command ``han trace``: tables and pictures of traces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from han.cli import options
from han.cli.common import answer, check_files, check_json, drawn, write_file
from han.common.errors import ArgumentError
from han.common.tables import shown_table
from han.config.untraced import PARTS
from han.model.arrivals import arrivals
from han.model.timeline import (
    Timeline,
    TimelineError,
    shape_name,
    shares,
    stream_shares,
    typical_call,
)
from han.plots import timeline as plots_timeline
from han.plots.page import page
from han.trace import tables
from han.trace.timeline_files import load, to_chrome
from han.trace.timeline_parts import matches, merge, select, silent, within

MOST_PANELS = 4  # in a picture


def trace(
    places: Annotated[list[Path], typer.Argument(help="Folders of HAN_TRACE, or files in them.")],
    chrome: Annotated[
        Path | None,
        typer.Option(help="Write events for ui.perfetto.dev or chrome://tracing."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page that stands alone: tables, and timelines to zoom into."),
    ] = None,
    plot: options.Plot = None,
    call: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Only this call, counted from 0. 2:N is a call of persistent request 2.",
        ),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these ranks: 0-7 or 0,4,8-11.")
    ] = None,
    begin: Annotated[
        float,
        typer.Option(
            "--from", min=0, metavar="S", help="Only from S seconds after the first task on."
        ),
    ] = 0.0,
    end: Annotated[
        float | None,
        typer.Option("--to", min=0, metavar="S", help="Only up to S seconds after it."),
    ] = None,
    comm: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this communicator, by its name in the table."),
    ] = None,
    predicted: Annotated[
        list[Path] | None,
        typer.Option(help="Show a predicted timeline beside the measured ones. May be repeated."),
    ] = None,
    json_file: options.JsonFile = None,
) -> None:
    """Show when the tasks of a traced program ran.

    Tables list how long tasks took, and the shares of overlap, waiting, copying and reducing. Lines
    above them say which rank came last to the calls, how often and by how much. Run the program
    with HAN_TRACE=folder first, or call save(folder) on a trace in the program. The picture has a
    lane for each stream. Without --call, it shows the median call of the shape that took the most
    time. Predicted timelines have the same axis of time.

    \b
    Examples:
      HAN_TRACE=t mpiexec -n 4 python prog.py; han trace t
      han trace t --plot call.png
      han trace t --call 3 --ranks 0-7 --plot call.svg --predicted predicted.json
      han trace t --html page.html
      han trace t --chrome trace.json
    """
    check_json(json_file)
    check_files(chrome, html, plot=plot)
    wanted_ranks, wanted_call = _numbers(ranks), _call(call)
    read = _window(_chosen(_read(places), comm), begin, end)
    measured = _narrowed(read, wanted_call, wanted_ranks)
    foreseen = _narrowed(_foreseen(predicted or (), measured), None, wanted_ranks)
    timelines = [*measured, *foreseen]
    answer(
        json_file,
        lambda: "\n\n".join(
            _text(line, silent(line) if wanted_ranks is None else "") for line in timelines
        ),
        partial(_record, timelines),
    )
    if chrome is not None:
        write_file(chrome, to_chrome(timelines))
    if html is not None:
        write_file(html, page(timelines))
    drawn(plot, partial(_draw, timelines))


# ---- options --------------------------------------------------------------------------


def _read(places: Sequence[Path]) -> list[Timeline]:
    """Read each file once, also those in folders; merge the parts of each communicator."""
    files: dict[Path, Path] = {}
    for place in places:
        found = [place] if place.is_file() else sorted(place.glob(PARTS))
        if not found:
            raise TimelineError(
                f"{place}: no {PARTS} there; run a program with HAN_TRACE={place}. A program that "
                "makes no han.Comm writes none: start it with 'han run'"
            )
        files |= {path.resolve(): path for path in found}
    return merge(load(path) for path in files.values())


def _foreseen(paths: Sequence[Path], measured: Sequence[Timeline]) -> list[Timeline]:
    """Read predicted timelines; refuse one whose call is not among the measured ones."""
    there = {shape_name(t.collective, t.nbytes) for line in measured for t in line.times}
    found = {path: load(path) for path in paths}
    for path, line in found.items():
        other = {shape_name(t.collective, t.nbytes) for t in line.times} - there
        if other:
            raise TimelineError(
                f"{path}: predicts {', '.join(sorted(other))}; the trace has "
                f"{', '.join(sorted(there)) or 'no calls'}"
            )
    return [*found.values()]


def _chosen(timelines: list[Timeline], comm: str | None) -> list[Timeline]:
    found = [line for line in timelines if comm is None or line.communicator == comm]
    if not found:
        known = ", ".join(line.communicator or "unnamed" for line in timelines)
        raise TimelineError(f"no communicator {comm!r}; the trace has {known}")
    return found


def _window(timelines: list[Timeline], begin: float, end: float | None) -> list[Timeline]:
    """Keep what ran in a window of time, in the timelines that have it; raise if none has it."""
    if not begin and end is None:
        return timelines
    kept = [within(line, begin, float("inf") if end is None else end) for line in timelines]
    if not any(line.times for line in kept):
        longest = max(line.end - line.begin for line in timelines)
        raise TimelineError(
            f"no tasks from {begin:g} s to {end or longest:g} s; the trace has {longest:.6g} s"
        )
    return [line for line in kept if line.times]


def _narrowed(
    timelines: list[Timeline], call: tuple[int, int] | None, ranks: list[range] | None
) -> list[Timeline]:
    """Keep the wanted part of the timelines that have it; raise if none has it."""
    kept = [line for line in timelines if matches(line, call, ranks)]
    return [select(line, call, ranks) for line in kept or timelines]


def _numbers(text: str | None) -> list[range] | None:
    """Read ``0,4,8-11``."""
    if text is None:
        return None
    spans = re.fullmatch(r"\d{1,18}(-\d{1,18})?(,\d{1,18}(-\d{1,18})?)*", text)
    if not spans:
        raise ArgumentError(f"--ranks {text!r}: numbers and ranges expected, as in 0,4,8-11")
    bounds = [[int(number) for number in part.split("-")] for part in text.split(",")]
    for first, *_, last in (b for b in bounds if b[0] > b[-1]):
        raise ArgumentError(f"--ranks {text!r}: {first} is greater than {last}")
    return [range(b[0], b[-1] + 1) for b in bounds]


def _call(text: str | None) -> tuple[int, int] | None:
    """Read ``3``, or ``2:3`` for call 3 of persistent request 2."""
    if text is None:
        return None
    if not re.fullmatch(r"(\d+:)?\d+", text):
        raise ArgumentError(f"--call {text!r}: a number expected, or request:number as in 2:0")
    request, _, number = text.rpartition(":")
    return int(request or 0), int(number)


# ---- tables ---------------------------------------------------------------------------------


def _text(timeline: Timeline, remark: str) -> str:
    lines = [
        f"# {tables.title_of(timeline)}{remark}",
        *(f"# {text}" for text in tables.sentences(timeline)),
        shown_table("", tables.HEADS, tables.rows_of(timeline), left=tables.LEFT),
        tables.left_out(timeline),
    ]
    return "\n".join(filter(None, lines))


def _record(timelines: Sequence[Timeline]) -> list[dict[str, Any]]:
    return [
        {
            "source": line.source,
            "communicator": line.communicator,
            "title": line.title,
            "dropped": line.dropped,
            "uncertainty": line.uncertainty,
            "streams": [asdict(row) for row in stream_shares(line)],
            "shares": asdict(shares(line)),
            "arrivals": [asdict(one) for one in arrivals(line)],
        }
        for line in timelines
    ]


# ---- files ----------------------------------------------------------------------------------


def _draw(timelines: Sequence[Timeline], path: Path) -> None:
    """Draw the typical call of each timeline, of the busiest ones if there are too many."""
    busy = sorted(timelines, key=lambda line: -shares(line).overall.seconds)[:MOST_PANELS]
    drawn = [select(line, typical_call(line)) for line in timelines if line in busy]
    left = len(timelines) - len(drawn)
    plots_timeline.gantt(drawn, path, f"{left} more timelines are not drawn" if left else "")
