"""The flags and cells in a rank's part of a channel, the same on all ranks, and waits for flags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from han.common.kept import kept
from han.model.channel_layout import LINE, PAGE, lines
from han.model.program import Ref
from han.submodules.measured import CELL_CHUNK, CELLS
from han.submodules.parts.pieces import number
from han.tasks.choice import LevelChoice
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.outline import Outline

FLAGS = ("gathered", "taken", "released", "read", "copied", "combined")  # every rank has these
COUNTS = 23  # a run posts at most 2^COUNTS values in a flag (native/channel.h has 24 bits)
GATHERED, TAKEN, RELEASED, READ, COPIED, COMBINED = range(len(FLAGS))
Members = tuple[int, ...]


def tasks_at(plan: Outline, level: int) -> dict[str, tuple[Task, ...]]:
    """Return the tasks of a level, or their parts, by kind."""
    return {kind: tasks for (kind, k), tasks in plan.worked.items() if k == level}


def is_small(plan: Outline, level: int) -> bool:
    """Return whether the whole message goes through the ranks' small slots, as one segment.

    Where slots are in halves, a message fits into one.
    """
    whole = plan.choice.segment is None or plan.choice.segment >= plan.signature.nbytes
    inline = bool(plan.choice.levels[level].get("inline", 1)) and not plan.in_parts
    return inline and whole and plan.signature.nbytes <= PAGE // (2 if plan.in_halves else 1)


def _choice(plan: Outline, level: int, tasks: tuple[Task, ...]) -> LevelChoice:
    return plan.choice.levels[level].of(tasks[0].kind)


def _fit(chunk: int, most: int, plan: Outline, tasks: tuple[Task, ...]) -> int:
    """Return the bytes of a cell: at most `chunk`, `most` and the largest task.

    They are whole grains, and end at a cache line where grains allow it.
    """
    grain = plan.signature.grain
    chunk = min(chunk, most, lines(max([t.stop - t.start for t in tasks])))
    return max(grain, chunk // LINE * LINE // grain * grain)


@dataclass(frozen=True)
class Cells:
    """Cells used in turn: piece i goes through cell number i modulo `cells`."""

    cells: int
    chunk: int
    pieces: int

    @classmethod
    def of(cls, plan: Outline, level: int, tasks: tuple[Task, ...]) -> Cells:
        """Fit the configured number and size of cells into the part of the ring that a run has.

        `tasks` are all of a stream of the plan.
        """
        key = "ring", level, tasks[0].kind
        return plan.layout(key, lambda: cls._fit(plan, level, tasks))

    @classmethod
    def _fit(cls, plan: Outline, level: int, tasks: tuple[Task, ...]) -> Cells:
        geometry, choice = plan.geometry(level), _choice(plan, level, tasks)
        cells = choice.get("cells", CELLS)
        if choice.algorithm == "each":
            cells = max(2, cells)  # readers post no flag: see allreduce.each
        chunk = _fit(choice.get("chunk", CELL_CHUNK), geometry.area // cells, plan, tasks)
        pieces = number(tasks, chunk, plan.signature.grain)
        return cls(cells, chunk, pieces)

    @kept
    def stride(self) -> int:
        """Bytes from the start of one cell to the start of the next."""
        return lines(self.chunk)

    @property
    def nbytes(self) -> int:
        """Bytes of all cells of a rank."""
        return min(self.cells, self.pieces) * self.stride

    @property
    def recycled(self) -> bool:
        """Whether a run uses a cell more than once, so that readers tell when they are done."""
        return self.pieces > self.cells

    def cell(self, index: int) -> int:
        """Return the offset of the cell of piece `index`."""
        return index % self.cells * self.stride


@dataclass(frozen=True)
class Shares:
    """The cells of ``split``: two for pieces of the operand, two for shares of the result."""

    chunk: int
    share: int
    pieces: int

    @classmethod
    def of(cls, plan: Outline, level: int, tasks: tuple[Task, ...]) -> Shares:
        """Fit the cells into the part of the ring that a run has.

        A cell for a share holds half a piece, which is the largest share: that of a group of two.
        """
        geometry, choice = plan.geometry(level), _choice(plan, level, tasks)
        unit = max(LINE, plan.signature.grain)
        most = (geometry.area - 2 * unit - 8 * LINE) // 3
        chunk = _fit(choice.get("chunk", CELL_CHUNK), most, plan, tasks)
        pieces = number(tasks, chunk, plan.signature.grain)
        return cls(chunk, lines(chunk // 2 + unit), pieces)

    @property
    def nbytes(self) -> int:
        """Bytes of all cells of a rank."""
        return min(2, self.pieces) * (lines(self.chunk) + self.share)

    def cell(self, index: int, out: bool) -> int:
        """Return the offset of the cell for piece `index`: of the operand, or (`out`) a share."""
        at = index % 2 * (lines(self.chunk) + self.share)
        return at + (lines(self.chunk) if out else 0)


def footprint(plan: Outline, level: int) -> int:
    """Return the bytes of each rank's ring that a run takes."""
    most = 0
    for kind, tasks in tasks_at(plan, level).items():
        algorithm = plan.choice.levels[level].algorithm if kind == "allreduce" else ""
        if algorithm == "split":
            most = max(most, Shares.of(plan, level, tasks).nbytes)
        elif algorithm == "each" or not (algorithm == "direct" or is_small(plan, level)):
            most = max(most, Cells.of(plan, level, tasks).nbytes)
    return most


class Waits:
    """The flags that a rank waits for; `flag` returns that of a member and a kind.

    Those of the same members are looked up once: all pieces of a message wait for them.
    """

    def __init__(self, context: Context, flag: Callable[[int, int], Ref]) -> None:
        self.stream, self.members, self.flag = context.stream, context.group.ranks, flag
        self._known: dict[tuple[Members, int], tuple[tuple[Ref, ...], Members]] = {}

    def of(self, members: Members, kind: int) -> tuple[tuple[Ref, ...], Members]:
        """Return the flags of one kind of several members, and their ranks."""
        found = self._known.get((members, kind))
        if found is None:
            flags, ranks = [self.flag(m, kind) for m in members], [self.members[m] for m in members]
            found = self._known[members, kind] = tuple(flags), tuple(ranks)
        return found

    def wait(self, members: Members, kind: int, value: int) -> None:
        """Wait until the flags of members have reached a value, in turn; not for one below 1."""
        if value > 0:
            flags, ranks = self.of(members, kind)
            self.stream.wait_each(flags, value, ranks)
