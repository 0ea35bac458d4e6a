"""Tasks and the links between them; the stages they form are HAN's composite tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

from han.model.collectives import FLAT, TREE
from han.model.topology import MAX_LEVELS


class Task(NamedTuple):
    """One fine-grained collective of one segment on one level: ``sr(3)``, ``ib(0)``.

    `start` and `stop` are the segment's byte offsets in the message, or in each of its blocks.
    `step` is the task's place in the composition: a segment passes through the steps in order.
    """

    name: str
    kind: str
    level: int
    segment: int
    start: int
    stop: int
    step: int = 0

    def __str__(self) -> str:
        return f"{self.name}({self.segment})"

    @property
    def nbytes(self) -> int:
        """Bytes of the segment."""
        return self.stop - self.start

    @property
    def stream(self) -> tuple[str, int]:
        """The stream of the task: tasks of one kind on one level run in order, step by step."""
        return self.kind, self.level


@lru_cache
def stream_tag(kind: str, level: int, rows: int) -> int:
    """Return the tag of a stream; `rows` is the number of collectives, which programs may add."""
    if kind in TREE:
        return level * len(TREE) + TREE.index(kind)
    return MAX_LEVELS * len(TREE) + FLAT.index(kind)  # on one level only


class Staged:
    """Stage names and streams of a task graph; both follow from its stages."""

    def stages(self) -> list[list[Task]]:
        """Return the topological generations: HAN's composite tasks (section III of the paper)."""
        raise NotImplementedError

    def stage_names(self) -> list[str]:
        """Return the names of the stages, the task of the last segment last: ``sbibirsr``."""
        return [
            "".join(t.name for t in sorted(stage, key=lambda t: t.segment))
            for stage in self.stages()
        ]

    def streams(self) -> Mapping[tuple[str, int], Sequence[Task]]:
        """Return the tasks of each stream in order, streams in the order of their first tasks."""
        streams: dict[tuple[str, int], list[Task]] = {}
        for stage in self.stages():
            for task in stage:
                streams.setdefault(task.stream, []).append(task)
        return streams


class Link(NamedTuple):
    """`second` waits for `first`, for its ``data`` or to keep the ``order`` of a stream."""

    first: Task
    second: Task
    why: str


@dataclass(frozen=True)
class Tasks(Staged):
    """The tasks of a call and the links between them, which form no cycle.

    The planner uses this class; :class:`han.tasks.task_graph.TaskGraph` is the same for users.
    """

    all: tuple[Task, ...]
    links: tuple[Link, ...]

    def __iter__(self) -> Iterator[Task]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def segments(self) -> int:
        """Number of segments of the message."""
        return 1 + max((task.segment for task in self.all), default=0)

    def stages(self) -> list[list[Task]]:
        """Return the topological generations: HAN's composite tasks (section III of the paper)."""
        return self._stages

    @cached_property
    def _stages(self) -> list[list[Task]]:
        waits = dict.fromkeys(self.all, 0)  # the number of tasks that each still waits for
        following: dict[Task, list[Task]] = {task: [] for task in self.all}
        for first, second, _ in self.links:
            waits[second] += 1
            following[first].append(second)
        stages, ready = [], [task for task, n in waits.items() if not n]
        while ready:
            stages.append(ready)
            ready = _freed(waits, following, ready)
        return stages

    @cached_property
    def sources(self) -> dict[Task, list[Task]]:
        """The tasks whose data each task needs."""
        sources: dict[Task, list[Task]] = {task: [] for task in self.all}
        for first, second, why in self.links:
            if why == "data":
                sources[second].append(first)
        return sources

    def sources_of(self, task: Task) -> Sequence[Task]:
        """Return the tasks whose data `task` needs."""
        return self.sources[task]


@dataclass(frozen=True)
class Segments:
    """A message of `nbytes` bytes in segments of `step` bytes; an empty one is one segment."""

    nbytes: int
    step: int

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield where each segment starts and stops."""
        return ((a, min(a + self.step, self.nbytes)) for a in self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def _starts(self) -> range:
        return range(0, self.nbytes, self.step) if self.nbytes else range(1)


class Chains(Tasks):
    """Tasks of segments that pass through the same steps.

    A task waits for that of the step before, and for that of the segment before. So what follows
    from the links is known without them, and tasks are made when they are first asked for.
    """

    def __init__(self, steps: Sequence[tuple[str, str, int]], cut: Segments) -> None:
        """Take name, kind and level of each step, and the segments."""
        for name, value in (("steps", len(steps)), ("_passed", steps), ("_cut", cut)):
            object.__setattr__(self, name, value)

    steps: int
    _passed: Sequence[tuple[str, str, int]]
    _cut: Segments

    @cached_property
    def all(self) -> tuple[Task, ...]:
        """The tasks of the first segment, then those of the next one."""
        fields = [
            (*passed, segment, start, stop, step)
            for segment, (start, stop) in enumerate(self._cut)
            for step, passed in enumerate(self._passed)
        ]
        return tuple(map(Task._make, fields))

    def __len__(self) -> int:
        return self.steps * len(self._cut)

    @property
    def segments(self) -> int:
        """Number of segments of the message."""
        return len(self._cut) if self.steps else 1

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The links of one segment after the other: data, then order."""
        found: list[Link] = []
        for first in range(0, len(self.all), self.steps or 1):
            tasks, before = self._segment(first), self._segment(first - self.steps)
            found += [Link(a, b, "data") for a, b in pairwise(tasks)]
            found += [Link(a, b, "order") for a, b in zip(before, tasks, strict=False)]
        return tuple(found)

    def _segment(self, first: int) -> tuple[Task, ...]:
        return self.all[first : first + self.steps] if first >= 0 else ()

    def streams(self) -> Mapping[tuple[str, int], Sequence[Task]]:
        """Return the tasks of each stream in order, streams in the order of their first tasks."""
        steps = self.steps
        found = {task.stream: self.all[k::steps] for k, task in enumerate(self.all[:steps])}
        return super().streams() if len(found) < steps else found

    @cached_property
    def sources(self) -> dict[Task, list[Task]]:
        """The tasks whose data each task needs."""
        return {task: list(self.sources_of(task)) for task in self.all}

    def sources_of(self, task: Task) -> Sequence[Task]:
        """Return the tasks whose data `task` needs: that of the step before it."""
        return (self.all[task.segment * self.steps + task.step - 1],) if task.step else ()


def _freed(
    waits: dict[Task, int], following: Mapping[Task, Sequence[Task]], done: Iterable[Task]
) -> list[Task]:
    """Return the tasks that wait for no other task once `done` are done."""
    freed = []
    for task in done:
        for other in following[task]:
            waits[other] -= 1
            if not waits[other]:
                freed.append(other)
    return freed


def summarise(names: Iterable[str]) -> str:
    """Join the names of stages, repeated ones once: ``ib, 14 x sbib, sb``."""
    runs: list[list[object]] = []
    for name in names:
        if runs and runs[-1][1] == name:
            runs[-1][0] = int(str(runs[-1][0])) + 1
        else:
            runs.append([1, name])
    return ", ".join(str(n) if k == 1 else f"{k} x {n}" for k, n in runs)
