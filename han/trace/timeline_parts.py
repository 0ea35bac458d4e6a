"""Merging the parts of timelines, and selecting calls and ranks of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from han.common.grouped import grouped
from han.common.units import joined, spans
from han.model.timeline import TaskTime, Timeline, TimelineError

Ranks = Iterable[int | range]  # a range may be long and is never listed


def merge(timelines: Iterable[Timeline]) -> list[Timeline]:
    """Merge the ranks' parts of each communicator; return the timelines in order of time.

    Raises TimelineError if parts of one communicator are of different runs, or if a rank has more
    than one part.
    """
    parts = grouped(
        ((one.source, one.communicator) if one.communicator else k, one)
        for k, one in enumerate(timelines)
    )
    return sorted(map(_join, parts.values()), key=lambda line: line.begin)


def _join(parts: Sequence[Timeline]) -> Timeline:
    _check_parts(parts)
    times = [t for part in parts for t in part.times]
    return replace(
        parts[0],
        times=tuple(sorted(times, key=lambda t: (t.begin, t.rank))),
        dropped=sum(part.dropped for part in parts),
        uncertainty=max(part.uncertainty for part in parts),
    )


def _check_parts(parts: Sequence[Timeline]) -> None:
    name = parts[0].communicator
    for field in ("nodes", "title"):
        if len({getattr(part, field) for part in parts}) > 1:
            raise TimelineError(f"{name}: the parts differ in {field}: they are of different runs")
    seen = Counter(rank for part in parts for rank in part.ranks)
    if again := [rank for rank, count in seen.items() if count > 1]:
        raise TimelineError(
            f"{name}: rank(s) {_spans(again)} are in more than one part; name each file once"
        )


def select(
    timeline: Timeline, call: tuple[int, int] | None = None, ranks: Ranks | None = None
) -> Timeline:
    """Keep one call, or some ranks; raise TimelineError if nothing is left."""
    wanted = None if ranks is None else joined(ranks)
    times = tuple(t for t in timeline.times if _matches(t, call, wanted))
    if timeline.times and not times:
        raise TimelineError(f"{timeline.title}: {_nothing(timeline, call, wanted)}")
    return replace(timeline, times=times)


def within(timeline: Timeline, low: float, high: float) -> Timeline:
    """Keep the tasks that run between two times, in seconds from the first task."""
    low, high = timeline.begin + low, timeline.begin + high
    return replace(
        timeline, times=tuple(t for t in timeline.times if t.end >= low and t.begin <= high)
    )


def matches(timeline: Timeline, call: tuple[int, int] | None, ranks: Ranks | None) -> bool:
    """Return whether :func:`select` would keep anything."""
    wanted = None if ranks is None else joined(ranks)
    return any(_matches(t, call, wanted) for t in timeline.times)


def _matches(task: TaskTime, call: tuple[int, int] | None, ranks: list[range] | None) -> bool:
    return (call is None or task.which == call) and (ranks is None or _within(task.rank, ranks))


def _within(rank: int, ranks: Iterable[range]) -> bool:
    return any(rank in span for span in ranks)


def _nothing(timeline: Timeline, call: tuple[int, int] | None, ranks: list[range] | None) -> str:
    if ranks is not None and not any(_within(rank, ranks) for rank in timeline.ranks):
        return f"no tasks of rank(s) {_spans(ranks)}; the trace has {_spans(timeline.ranks)}"
    request, number = call or (0, 0)
    there = {t.call for t in timeline.times if t.request == request}
    known = _spans(there) if there else "none"
    whose = f" of persistent request {request}" if request else ""
    return f"no tasks of call {number}{whose}; the trace has {known}"


def _spans(numbers: Ranks) -> str:
    return spans(numbers, ", ")


def silent(timeline: Timeline) -> str:
    """Return a remark on the ranks without tasks, beginning with a semicolon, or ""."""
    missing = set(range(len(timeline.nodes))) - set(timeline.ranks)
    return f"; no tasks of rank(s) {_spans(missing)}" if missing else ""
