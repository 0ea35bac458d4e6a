"""Tasks and the links between them; the stages they form are HAN's composite tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby, pairwise
from typing import NamedTuple

from han.common.kept import kept
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
        return self[1:3]


_made = partial(tuple.__new__, Task)  # Task._make without its check: there may be thousands


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


@dataclass(frozen=True)
class Tasks(Staged):
    """The tasks of a call: segments of the message pass through the same steps.

    A task waits for that of the step before, and for that of the segment before. So what follows
    from the links is known without them, and tasks are made when they are first asked for.

    `passed` are name, kind and level of each step, and `cut` says where each segment starts and
    stops. The planner uses this class; :class:`han.tasks.task_graph.TaskGraph` is for users.
    """

    passed: tuple[tuple[str, str, int], ...]
    cut: Segments | tuple[tuple[int, int], ...]

    @kept
    def all(self) -> tuple[Task, ...]:
        """The tasks of the first segment, then those of the next one."""
        fields = [
            (*passed, segment, start, stop, step)
            for segment, (start, stop) in enumerate(self.cut)
            for step, passed in enumerate(self.passed)
        ]
        return tuple(map(_made, fields))

    def __iter__(self) -> Iterator[Task]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.passed) * len(self.cut)

    @property
    def segments(self) -> int:
        """Number of segments of the message."""
        return len(self.cut) if self.passed else 1

    @property
    def links(self) -> Iterator[Link]:
        """The links of one segment after the other: data, then order."""
        steps = len(self.passed)
        for first in range(0, len(self.all), steps or 1):
            tasks = self.all[first : first + steps]
            yield from (Link(a, b, "data") for a, b in pairwise(tasks))
            before = self.all[first - steps : first] if first else ()
            yield from (Link(a, b, "order") for a, b in zip(before, tasks, strict=False))

    def stages(self) -> list[list[Task]]:
        """Return the topological generations: HAN's composite tasks (section III of the paper)."""
        found: dict[int, list[Task]] = {}
        for task in self.all:
            found.setdefault(task.segment + task.step, []).append(task)
        return list(found.values())

    def streams(self) -> Mapping[tuple[str, int], Sequence[Task]]:
        """Return the tasks of each stream in order, streams in the order of their first tasks."""
        steps = len(self.passed)
        found = {task.stream: self.all[k::steps] for k, task in enumerate(self.all[:steps])}
        return super().streams() if len(found) < steps else found

    def sources_of(self, task: Task) -> Sequence[Task]:
        """Return the tasks whose data `task` needs: that of the step before it."""
        return (self.all[task.segment * len(self.passed) + task.step - 1],) if task.step else ()


def summarise(names: Iterable[str]) -> str:
    """Join the names of stages, repeated ones once: ``ib, 14 x sbib, sb``."""
    runs = [(name, len(list(same))) for name, same in groupby(names)]
    return ", ".join(name if times == 1 else f"{times} x {name}" for name, times in runs)
