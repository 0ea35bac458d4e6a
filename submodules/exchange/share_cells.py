"""Where members show slices of the shares of lanes; the same on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from han.common.kept import kept
from han.model.channel_layout import LINE, RING_MIN, lines
from han.submodules.exchange.parted import cells_of
from han.submodules.exchange.steps import Pattern
from han.submodules.measured import CELL_CHUNK
from han.submodules.parts.cells import COUNTS
from han.tasks.choice import LevelChoice
from han.tasks.contract import Question
from han.tasks.lanes import inner_levels, lanes_at
from han.tasks.outline import Outline
from han.tasks.shares import unit_of

CELLS = 2
REMEMBERED = 256  # choices of levels
Patterns = Callable[[LevelChoice, int], Pattern]  # the pattern of a choice for so many members


@dataclass(frozen=True)
class ShareCells:
    """A member's cells for slices of shares.

    A cell holds a slice of `chunk` bytes of a share. `banks` of `made` cells each, in which shares
    are made, are used in turn; then as many of `done` cells each, for finished shares. A stream
    has at most `slices`.
    """

    lanes: int
    banks: int
    chunk: int
    slices: int
    made: int
    done: int

    @classmethod
    def of(cls, plan: Outline, level: int, patterns: Patterns) -> ShareCells:
        """Fit the configured number and size of cells into the part of the ring that a run has."""
        return plan.layout(("shares", level), lambda: cls._fit(plan, level, patterns))

    @classmethod
    def _fit(cls, plan: Outline, level: int, patterns: Patterns) -> ShareCells:
        geometry, choice = plan.geometry(level), plan.choice.levels[level]
        several = [patterns(choice, members) for members in _sizes(plan, level)]
        lanes, banks = lanes_at(plan.topology, level, choice), choice.get("cells", CELLS)
        made, done = _numbers(several, lanes)
        unit, longest = unit_of(plan.signature.grain), _longest(plan, level)
        counts = max(max(one.stages, one.gathers) for one in several)
        wanted = max(
            choice.get("chunk", CELL_CHUNK) // lanes, plan.signature.nbytes * counts >> COUNTS
        )
        most = geometry.area // (banks * (made + done)) // LINE * LINE
        chunk = max(unit, min(wanted, most, max(longest)) // unit * unit)
        slices = sum(max(1, -(-share // chunk)) for share in longest)
        return cls(lanes, banks, chunk, slices, made, done)

    @property
    def nbytes(self) -> int:
        """Bytes of all cells of a rank."""
        return min(self.banks, self.slices) * (self.made + self.done) * self.stride

    @property
    def recycled(self) -> bool:
        """Whether a cell is used more than once."""
        return self.slices > self.banks

    @kept
    def stride(self) -> int:
        """Bytes from the start of one cell to the start of the next."""
        return lines(self.chunk)

    def made_in(self, index: int) -> int:
        """Return the offset of the bank in which the shares of slice `index` are made."""
        return index % self.banks * self.made * self.stride

    def done_in(self, index: int) -> int:
        """Return the offset of the bank with the finished shares of slice `index`."""
        first = min(self.banks, self.slices) * self.made
        return (first + index % self.banks * self.done) * self.stride


def _sizes(plan: Outline | Question, level: int) -> list[int]:
    """Return how many members the groups of a level have."""
    units = plan.topology.units.get(level, {}).values()
    return sorted({len(of_domain) for of_domain in units} - {1})


def _numbers(several: Iterable[Pattern], lanes: int) -> tuple[int, int]:
    """Return how many cells a bank has, for shares that are made, and for finished ones."""
    each = [cells_of(one, lanes) for one in several]
    made, done = (max((numbers[k] for numbers in each), default=0) for k in (0, 1))
    return made, done


def _longest(plan: Outline, level: int) -> list[int]:
    """Return the bytes of the largest share of each task of a stream of a level."""
    view, unit = plan.topology, unit_of(plan.signature.grain)
    levels = [k for k in inner_levels(view) if k <= level]
    cut = unit * prod(lanes_at(view, k, plan.choice.levels[k]) for k in levels)
    tasks = next(tasks for (_, k), tasks in plan.streams.items() if k == level)
    return [-(-task.nbytes // cut) * unit for task in tasks]


def footprint(plan: Outline, level: int, patterns: Patterns) -> int:
    """Return how many bytes of each rank's ring of cells a run takes."""
    works = any(k == level for _, k in plan.streams)
    return ShareCells.of(plan, level, patterns).nbytes if works else 0


@lru_cache(REMEMBERED)
def _cells(choice: LevelChoice, sizes: tuple[int, ...], lanes: int, patterns: Patterns) -> int:
    """Return how many cells the groups of a level need; no size of a call changes that."""
    several = [patterns(choice, members) for members in sizes]
    return choice.get("cells", CELLS) * sum(_numbers(several, lanes))


def unfit(question: Question, patterns: Patterns) -> str | None:
    """Return the reason why cells cannot hold slices of all shares, or None."""
    level, choice, element = question.level, question.choice, question.signature.element
    lanes = lanes_at(question.topology, level, choice)
    cells = _cells(choice, tuple(_sizes(question, level)), lanes, patterns)
    least = cells * lines(unit_of(element))
    if least <= RING_MIN // 2:
        return None
    return (
        f"shares of {lanes} lanes take {least} bytes of cells for elements of {element} bytes; "
        f"the smallest ring has {RING_MIN // 2}"
    )
