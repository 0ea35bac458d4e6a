"""How flags and cells of ``sm`` lie in a rank's part of a channel: the same on all ranks."""

from __future__ import annotations

from dataclasses import dataclass

from han.model.channel_layout import LINE, PAGE
from han.submodules.parts.pieces import cut
from han.tasks.graph import Task
from han.tasks.outline import Outline

KiB = 1024
CHUNK = 128 * KiB
CELLS = 4
FLAGS = ("gathered", "taken", "released", "read", "copied", "combined")  # of a rank
GATHERED, TAKEN, RELEASED, READ, COPIED, COMBINED = range(len(FLAGS))


def _lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


def tasks_at(plan: Outline, level: int) -> dict[str, tuple[Task, ...]]:
    """Return the tasks of a level by kind."""
    return {kind: tasks for (kind, k), tasks in plan.streams.items() if k == level}


def is_small(plan: Outline, level: int) -> bool:
    """Whether the whole message travels in the ranks' small slots, beside the flags."""
    whole = plan.choice.segment is None or plan.choice.segment >= plan.signature.nbytes
    inline = bool(plan.choice.levels[level].get("inline", 1))
    return inline and whole and plan.signature.nbytes <= PAGE


def _fit(chunk: int, most: int, plan: Outline, tasks: tuple[Task, ...]) -> int:
    """Whole elements, whole lines where elements allow it, no more than the largest task."""
    element = plan.signature.element
    chunk = min(chunk, most, max(_lines(t.nbytes) for t in tasks))
    return max(element, chunk // LINE * LINE // element * element)


@dataclass(frozen=True)
class Ring:
    """Cells used in turn: piece i goes through cell i modulo `cells`."""

    cells: int
    chunk: int
    pieces: int

    @classmethod
    def of(cls, plan: Outline, level: int, tasks: tuple[Task, ...]) -> Ring:
        """Fit the asked number of cells and their size into what a run may use."""
        geometry, choice = plan.geometries[level], plan.choice.levels[level]
        assert geometry is not None
        cells = choice.get("cells", CELLS)
        if choice.algorithm == "each":
            cells = max(2, cells)  # nobody says what it has read
        chunk = _fit(choice.get("chunk", CHUNK), geometry.area // cells, plan, tasks)
        pieces = len(cut(tasks, chunk, plan.signature.element))
        return cls(cells, chunk, pieces)

    @property
    def stride(self) -> int:
        """Bytes from cell to cell."""
        return _lines(self.chunk)

    @property
    def nbytes(self) -> int:
        """Bytes of all cells."""
        return min(self.cells, self.pieces) * self.stride

    @property
    def recycled(self) -> bool:
        """Whether cells are used twice, so that readers must say when they are done."""
        return self.pieces > self.cells

    def cell(self, index: int) -> int:
        """Where piece `index` goes."""
        return index % self.cells * self.stride


@dataclass(frozen=True)
class Shares:
    """Two cells for what goes in, two for a rank's share of what comes out."""

    chunk: int
    share: int
    pieces: int

    @classmethod
    def of(cls, plan: Outline, level: int, tasks: tuple[Task, ...]) -> Shares:
        """Fit them into what a run may use; a group of two has the largest shares."""
        geometry, choice = plan.geometries[level], plan.choice.levels[level]
        assert geometry is not None
        unit = max(LINE, plan.signature.element)
        most = (geometry.area - 2 * unit - 8 * LINE) // 3
        chunk = _fit(choice.get("chunk", CHUNK), most, plan, tasks)
        pieces = len(cut(tasks, chunk, plan.signature.element))
        return cls(chunk, _lines(chunk // 2 + unit), pieces)

    @property
    def nbytes(self) -> int:
        """Bytes of all cells."""
        return min(2, self.pieces) * (_lines(self.chunk) + self.share)

    def cell(self, index: int, out: bool) -> int:
        """Where piece `index` goes in, or a share of it comes out."""
        at = index % 2 * (_lines(self.chunk) + self.share)
        return at + (_lines(self.chunk) if out else 0)


def footprint(plan: Outline, level: int) -> int:
    """Return the bytes of each rank's ring that a run takes."""
    most = 0
    for kind, tasks in tasks_at(plan, level).items():
        algorithm = plan.choice.levels[level].algorithm if kind == "allreduce" else ""
        if algorithm == "split":
            most = max(most, Shares.of(plan, level, tasks).nbytes)
        elif algorithm == "each" or not (algorithm == "direct" or is_small(plan, level)):
            most = max(most, Ring.of(plan, level, tasks).nbytes)
    return most
