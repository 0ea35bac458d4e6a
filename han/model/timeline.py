"""When tasks ran, measured or predicted, and what that says. Plain data: needs no MPI."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from han.common.errors import HanError
from han.common.units import format_size

Source = Literal["measured", "predicted"]


class TimelineError(HanError, ValueError):
    """A timeline cannot be read, or has not what is asked for: names the file and the way out."""


@dataclass(frozen=True)
class TaskTime:
    """One task of one call on one rank; times in seconds.

    It begins when its stream has come to it, and works from `waited` seconds later on: until
    then it waits for other tasks or ranks. `copying` and `reducing` are spent in such operations
    between its begin and its end. Calls are counted apart for each persistent `request`, which
    are counted from 1; 0 are the communicator's own calls.
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
        """When it began to work."""
        return self.begin + self.waited

    @property
    def kind(self) -> str:
        """``sb`` of ``sb(3)``: the level and what is done."""
        return self.task.partition("(")[0]

    @property
    def which(self) -> tuple[int, int]:
        """Which call it belongs to, alike on all ranks."""
        return self.request, self.call


@dataclass(frozen=True)
class Timeline:
    """The tasks of the ranks of one communicator, on one clock.

    `dropped` tasks found no room; `uncertainty` is how far the ranks' clocks may be apart, in
    seconds; ``nodes[r]`` is the node of rank r, where that is known.
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
        """The ranks that have tasks here."""
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
    """Return one record for each task of what may have come in several goes, by their beginnings.

    A stream works ahead: it posts the receives of tasks to come between the tests of the present
    one. So that its tasks follow each other, each begins when the one before it has ended.
    """
    streams: dict[object, dict[str, list[TaskTime]]] = {}
    for t in goes:
        tasks = streams.setdefault((t.rank, t.which, t.stream), {})
        tasks.setdefault(t.task, []).append(t)
    whole = [t for tasks in streams.values() for t in _in_turn(list(tasks.values()))]
    return sorted(whole, key=lambda t: (t.begin, t.rank))


def _in_turn(tasks: list[list[TaskTime]]) -> Iterator[TaskTime]:
    """Join each task's goes, in the order in which they end."""
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


# ---- its calls ------------------------------------------------------------------------------


def spans_of_calls(timeline: Timeline) -> dict[tuple[int, int], float]:
    """Return how long each call took, from its first task's begin to its last one's end."""
    bounds: dict[tuple[int, int], tuple[float, float]] = {}
    for t in timeline.times:
        low, high = bounds.get(t.which, (t.begin, t.end))
        bounds[t.which] = min(low, t.begin), max(high, t.end)
    return {which: high - low for which, (low, high) in bounds.items()}


def typical_call(timeline: Timeline) -> tuple[int, int] | None:
    """Return the median call of the shape of calls that took the most time in all."""
    spans = spans_of_calls(timeline)
    shapes: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for which, shape in {t.which: (t.collective, t.nbytes) for t in timeline.times}.items():
        shapes[shape].append(which)
    if not shapes:
        return None
    calls = max(shapes.values(), key=lambda calls: sum(spans[c] for c in calls))
    return sorted(calls, key=lambda c: spans[c])[(len(calls) - 1) // 2]


def shape_name(collective: str, nbytes: int) -> str:
    """Name calls of one shape: ``bcast of 4MiB``."""
    return f"{collective} of {format_size(nbytes)}" if nbytes else collective


def remarks(timeline: Timeline) -> str:
    """Say what one must know to read a timeline right; begins with a semicolon if anything."""
    said = []
    if timeline.uncertainty:
        said.append(f"clocks of nodes within {timeline.uncertainty * 1e6:.1f} us")
    if timeline.dropped:
        said.append(f"{timeline.dropped} tasks found no room")
    return "".join(f"; {one}" for one in said)


# ---- what it says ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """What part of `seconds`, the time with a task open, went where.

    `waiting`, `copying` and `reducing` make up the whole; waiting includes the MPI library's
    work. `overlapped` is the part in which tasks of two or more streams were at work, past
    their wait at the beginning.
    """

    seconds: float
    overlapped: float
    waiting: float
    copying: float
    reducing: float


@dataclass(frozen=True)
class Shares:
    """The shares of all ranks together and of each."""

    overall: Share
    ranks: dict[int, Share]


@dataclass(frozen=True)
class StreamShare:
    """The tasks of one stream in all calls of one shape, on all ranks; `median` in seconds.

    Here `overlapped` is the part of the time at work in which another stream of the same rank
    worked as well.
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
    base: float = 0.0  # what `overlapped` is a part of
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
    """Return what part of their time the ranks overlap, wait, copy and reduce."""
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
    """Return the same for each stream of each shape of call, the outermost work first."""
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
    ranks: dict[int, list[TaskTime]] = defaultdict(list)
    for t in timeline.times:
        ranks[t.rank].append(t)
    return dict(sorted(ranks.items()))


def _length(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    length, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        length += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return length


def _steps(times: Sequence[TaskTime]) -> Iterator[tuple[float, float, list[TaskTime]]]:
    """Yield stretches of time and the tasks at work then, one of each stream, of one rank."""
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
