"""Which rank came last to the calls of a timeline, by how much, and what the calls took then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from han.common.grouped import grouped
from han.common.units import format_duration
from han.model.timeline import TaskTime, Timeline, shape_name


@dataclass(frozen=True)
class Arrivals:
    """How the ranks came to the calls of one shape; times in seconds.

    `rank` came last most often, in `times` of `calls` calls. In these it came `late` seconds after
    the median of the other ranks. After the last rank had come, a call took `then` seconds. `early`
    is the share of the time in calls that passed before the last rank came. `late` and `then` are
    medians of calls.
    """

    collective: str
    nbytes: int
    calls: int
    rank: int
    times: int
    late: float
    then: float
    early: float

    def describe(self) -> str:
        """Return the sentence."""
        return (
            f"{shape_name(self.collective, self.nbytes)}: rank {self.rank} came last in "
            f"{self.times} of {self.calls} calls, by {format_duration(self.late)}; "
            f"then {format_duration(self.then)}. "
            f"{self.early * 100:.0f} % of the time was waiting for the last rank"
        )


@dataclass(frozen=True)
class _Call:
    """The spans of the ranks in one call: begin and end, by rank."""

    spans: dict[int, tuple[float, float]]

    @property
    def last(self) -> int:
        return max(self.spans, key=lambda rank: self.spans[rank][0])

    @property
    def came(self) -> float:
        """When the last rank came."""
        return self.spans[self.last][0]

    @property
    def late(self) -> float:
        """How long after the median of the others it came."""
        return self.came - median(b for rank, (b, _) in self.spans.items() if rank != self.last)

    @property
    def then(self) -> float:
        """What was left when the last rank came."""
        return max(end for _, end in self.spans.values()) - self.came

    @property
    def whole(self) -> float:
        """The time of all ranks in the call."""
        return sum(end - begin for begin, end in self.spans.values())

    @property
    def early(self) -> float:
        """The part of `whole` before the last rank came."""
        return sum(min(end, self.came) - begin for begin, end in self.spans.values())


def arrivals(timeline: Timeline) -> list[Arrivals]:
    """Return how ranks came to the calls of each shape; the shape with the most time is first.

    Calls of one rank do not count.
    """
    tasks = grouped(((t.collective, t.nbytes, t.which), t) for t in timeline.times)
    each = (((name, nbytes), _call(times)) for (name, nbytes, _), times in tasks.items())
    calls = grouped((shape, call) for shape, call in each if len(call.spans) > 1)
    by_time = sorted(calls.items(), key=lambda item: -sum(call.whole for call in item[1]))
    return [_arrivals(*shape, some) for shape, some in by_time]


def _call(times: Sequence[TaskTime]) -> _Call:
    spans: dict[int, tuple[float, float]] = {}
    for t in times:
        begin, end = spans.get(t.rank, (t.begin, t.end))
        spans[t.rank] = min(begin, t.begin), max(end, t.end)
    return _Call(spans)


def _arrivals(collective: str, nbytes: int, calls: Sequence[_Call]) -> Arrivals:
    ((rank, times),) = Counter(call.last for call in calls).most_common(1)
    return Arrivals(
        collective, nbytes, len(calls), rank, times,
        late=median(call.late for call in calls if call.last == rank),
        then=median(call.then for call in calls),
        early=sum(call.early for call in calls) / (sum(call.whole for call in calls) or 1.0),
    )  # fmt: skip
