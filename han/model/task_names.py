"""Names of a program's tasks, as runs of segments: ``sr(0) sr(1) ... ib(0) ib(1) ...``."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, overload

from han.common.kept import kept


class Run(NamedTuple):
    """Tasks `name` of `number` segments from `first` on."""

    name: str
    first: int
    number: int


class TaskNames(Sequence[str]):
    """The names of tasks in their order, made when they are asked for: there may be thousands."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        self.runs = runs

    @classmethod
    def of(cls, tasks: Iterable[tuple[str, int]]) -> TaskNames:
        """Return the names of tasks, each a name and the number of a segment."""
        runs: list[list[Any]] = [["", 0, 0]]  # fields of runs
        for name, segment in tasks:
            last, first, number = runs[-1]
            if last == name and segment == first + number:
                runs[-1][2] += 1
            else:
                runs.append([name, segment, 1])
        return cls(tuple(map(Run._make, runs[1:])))

    def repeated(self, longer: TaskNames, times: int) -> TaskNames | None:
        """Return the names with `times` times those that `longer` has more of.

        None if more than the lengths of runs differ.
        """
        pairs = list(zip(self.runs, longer.runs, strict=False))
        if len(self.runs) != len(longer.runs) or any(a[:2] != b[:2] for a, b in pairs):
            return None
        return TaskNames(
            tuple([Run(*a[:2], a.number + times * (b.number - a.number)) for a, b in pairs])
        )

    @kept
    def _starts(self) -> list[int]:
        return list(accumulate((run.number for run in self.runs), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        """Return the name of a task, such as ``sr(3)``, or those of several."""
        if isinstance(index, slice):
            return tuple(self[k] for k in range(*index.indices(len(self))))
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"task {index} of {len(self)}")
        number = bisect_right(self._starts, at) - 1
        run = self.runs[number]
        return f"{run.name}({run.first + at - self._starts[number]})"

    def __eq__(self, other: object) -> bool:
        """Whether the other one has the same names; it may be a tuple."""
        if isinstance(other, TaskNames) and self.runs == other.runs:
            return True
        return isinstance(other, TaskNames | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"TaskNames({list(self)})"
