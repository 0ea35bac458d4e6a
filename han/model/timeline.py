"""Timelines: when tasks ran, measured or predicted, and how the time was spent. Needs no MPI."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from han.common.errors import HanError
from han.common.grouped import grouped
from han.common.units import format_size

Source = Literal["measured", "predicted"]


class TimelineError(HanError, ValueError):
    """A timeline cannot be read, or lacks what the caller asks for. The text names the file."""


@dataclass(frozen=True)
class TaskTime:
    """One task of one call on one rank; times in seconds.

    A task begins when its stream reaches it. It then waits `waited` seconds for other tasks or
    ranks before it starts to work. `copying` and `reducing` are the seconds of its copies and
    reductions. Persistent requests are numbered from 1; `request` 0 stands for the communicator's
    other calls. `call` counts the calls of each request.
    """

    rank: int
    call: int
    collective: str
    stream: str
    task: str
    begin: float
    end: float
    copying: float = 0.0
    reducing: float = 0.0
    waited: float = 0.0
    request: int = 0
    nbytes: int = 0

    @property
    def start(self) -> float:
        """When the task started to work."""
        return self.begin + self.waited

    @property
    def kind(self) -> str:
        """``sb`` of ``sb(3)``: the symbol of the level and the letter of the task kind."""
        return self.task.partition("(")[0]

    @property
    def which(self) -> tuple[int, int]:
        """The call of the task, the same on all ranks: (request, call)."""
        return self.request, self.call


@dataclass(frozen=True)
class Timeline:
    """The tasks of the ranks of one communicator, on one clock.

    `dropped` tasks were not recorded. The ranks' clocks differ by at most `uncertainty` seconds.
    ``nodes[r]`` is the node of rank r; () if unknown.
    """

    source: Source
    title: str
    times: tuple[TaskTime, ...]
    dropped: int = 0
    uncertainty: float = 0.0
    nodes: tuple[int, ...] = ()
    communicator: str = ""

    @property
    def ranks(self) -> list[int]:
        """The ranks that have tasks."""
        return sorted({t.rank for t in self.times})

    @property
    def begin(self) -> float:
        """When the first task began."""
        return min((t.begin for t in self.times), default=0.0)

    @property
    def end(self) -> float:
        """When the last task ended."""
        return max((t.end for t in self.times), default=0.0)


def whole_tasks(goes: Iterable[TaskTime]) -> list[TaskTime]:
    """Join the records of each task into one; return them in the order in which tasks begin.

    A task has several records if its stream works ahead: it posts receives of later tasks while it
    tests the requests of the current one. In the result, a task begins no earlier than the task
    before it in its stream ends.
    """
    streams: dict[object, dict[str, list[TaskTime]]] = {}
    for t in goes:
        tasks = streams.setdefault((t.rank, t.which, t.stream), {})
        tasks.setdefault(t.task, []).append(t)
    whole = [t for tasks in streams.values() for t in _in_turn(list(tasks.values()))]
    return sorted(whole, key=lambda t: (t.begin, t.rank))


def _in_turn(tasks: list[list[TaskTime]]) -> Iterator[TaskTime]:
    """Join the records of each task of a stream; yield the tasks in the order in which they end."""
    before = float("-inf")
    for goes in sorted(tasks, key=lambda goes: max(t.end for t in goes)):
        begin = max(before, min(t.begin for t in goes))
        start = max(begin, min(t.start for t in goes))
        before = max(t.end for t in goes)
        copying = min(before - begin, sum(t.copying for t in goes))
        reducing = min(before - begin - copying, sum(t.reducing for t in goes))
        yield replace(
            goes[0], begin=begin, end=before, waited=start - begin, copying=copying,
            reducing=reducing,
        )  # fmt: skip


# ---- calls -------------------------------------------------------------------------------


def spans_of_calls(timeline: Timeline) -> dict[tuple[int, int], float]:
    """Return the seconds of each call, from the begin of its first task to the end of its last."""
    bounds: dict[tuple[int, int], tuple[float, float]] = {}
    for t in timeline.times:
        low, high = bounds.get(t.which, (t.begin, t.end))
        bounds[t.which] = min(low, t.begin), max(high, t.end)
    return {which: high - low for which, (low, high) in bounds.items()}


def typical_call(timeline: Timeline) -> tuple[int, int] | None:
    """Return the median call of the shape (collective, size) whose calls took the most time."""
    spans = spans_of_calls(timeline)
    shape_of = {t.which: (t.collective, t.nbytes) for t in timeline.times}
    shapes = grouped((shape, which) for which, shape in shape_of.items())
    if not shapes:
        return None
    calls = max(shapes.values(), key=lambda calls: sum(spans[c] for c in calls))
    return sorted(calls, key=lambda c: spans[c])[(len(calls) - 1) // 2]


def shape_name(collective: str, nbytes: int) -> str:
    """Return the name of a shape of calls: ``bcast of 4MiB``."""
    return f"{collective} of {format_size(nbytes)}" if nbytes else collective


def remarks(timeline: Timeline) -> str:
    """Return remarks about the accuracy of a timeline, each after a semicolon; "" if none."""
    said = []
    if timeline.uncertainty:
        said.append(f"clocks of nodes within {timeline.uncertainty * 1e6:.1f} us")
    if timeline.dropped:
        said.append(f"{timeline.dropped} tasks not recorded")
    return "".join(f"; {one}" for one in said)


# ---- shares of time ----------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """Shares of `seconds`, the time in which a task was open.

    `waiting`, `copying` and `reducing` add up to 1; waiting includes the MPI library's work.
    `overlapped` is the share in which tasks of two or more streams worked. A task works from its
    start, when its first wait is over, to its end.
    """

    seconds: float
    overlapped: float
    waiting: float
    copying: float
    reducing: float


@dataclass(frozen=True)
class Shares:
    """The shares of all ranks together, and of each rank."""

    overall: Share
    ranks: dict[int, Share]


@dataclass(frozen=True)
class StreamShare:
    """The tasks of one stream in all calls of one shape, on all ranks.

    `median` is the median task's time in seconds. Here `overlapped` is the share of the stream's
    working time in which another stream of the same rank worked as well.
    """

    collective: str
    nbytes: int
    stream: str
    kind: str
    tasks: int
    median: float
    share: Share


@dataclass
class _Spent:
    open: float = 0.0
    base: float = 0.0  # the time of which `overlapped` is a share
    overlapped: float = 0.0
    copying: float = 0.0
    reducing: float = 0.0

    def add(self, other: _Spent) -> None:
        for name in vars(other):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def share(self) -> Share:
        whole = self.open or 1.0
        copying, reducing = self.copying / whole, self.reducing / whole
        waiting = max(0.0, 1.0 - copying - reducing) if self.open else 0.0
        overlapped = self.overlapped / (self.base or 1.0)
        return Share(self.open, overlapped, waiting, copying, reducing)


def shares(timeline: Timeline) -> Shares:
    """Return the shares of overlap, waiting, copying and reducing."""
    whole, ranks = _Spent(), {}
    for rank, times in _by_rank(timeline).items():
        opened = _length((t.begin, t.end) for t in times)
        spent = _Spent(
            opened,
            opened,
            sum(b - a for a, b, streams in _steps(times) if len(streams) > 1),
            sum(t.copying for t in times),
            sum(t.reducing for t in times),
        )
        whole.add(spent)
        ranks[rank] = spent.share()
    return Shares(whole.share(), ranks)


def stream_shares(timeline: Timeline) -> list[StreamShare]:
    """Return the shares of each stream, sorted by collective, size and stream."""
    from statistics import median

    spent: dict[tuple[str, int, str], _Spent] = defaultdict(_Spent)
    tasks: dict[tuple[str, int, str], list[TaskTime]] = defaultdict(list)
    for t in timeline.times:
        key = t.collective, t.nbytes, t.stream
        tasks[key].append(t)
        spent[key].add(_Spent(t.end - t.begin, t.end - t.start, 0.0, t.copying, t.reducing))
    for times in _by_rank(timeline).values():
        for begin, end, streams in _steps(times):
            for t in streams if len(streams) > 1 else ():
                spent[t.collective, t.nbytes, t.stream].overlapped += end - begin
    return [
        StreamShare(
            *key,
            tasks[key][0].kind,
            len(tasks[key]),
            median(t.end - t.begin for t in tasks[key]),
            spent[key].share(),
        )
        for key in sorted(tasks)
    ]


def _by_rank(timeline: Timeline) -> dict[int, list[TaskTime]]:
    return dict(sorted(grouped((t.rank, t) for t in timeline.times).items()))


def _length(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    length, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        length += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return length


def _steps(times: Sequence[TaskTime]) -> Iterator[tuple[float, float, list[TaskTime]]]:
    """Yield (begin, end, working tasks) of intervals on one rank; one task of each stream."""
    some = [(k, t) for k, t in enumerate(times) if t.end > t.start]
    changes = sorted([(t.start, 1, k) for k, t in some] + [(t.end, 0, k) for k, t in some])
    working: dict[int, TaskTime] = {}
    before = 0.0
    for now, begins, k in changes:
        if now > before and working:
            streams = {(t.request, t.stream): t for t in working.values()}
            yield before, now, list(streams.values())
        before = now
        if begins:
            working[k] = times[k]
        else:
            del working[k]
