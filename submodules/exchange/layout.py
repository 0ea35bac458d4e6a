"""Where the blocks of an exchange lie: in the message, and in a member's cells or small slot.

Each combining stage has a region of its own, so that partial results stay where they are until
their readers have read them. In a pattern of many stages a region serves several of them in turn,
after its readers have finished the stage in which they read it. The last region holds finished
blocks. The regions of a piece form a bank, and two banks are used in turn. The layout is the same
on all ranks.

Source: Jocksch et al., sections 2.1.1 (partitions) and 5.1 (a message of one line is not split).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from han.common.kept import kept
from han.model.channel_layout import INLINE, LINE, PAGE, RING_MIN, lines
from han.submodules.exchange.arrays import reads_in_plan
from han.submodules.exchange.gathered import Gathered
from han.submodules.exchange.patterns import pattern_of
from han.submodules.exchange.steps import Blocks, Pattern, Recursive, Steps
from han.submodules.measured import EXCHANGE_CHUNK, HALF_CHUNK
from han.submodules.parts.cells import COUNTS
from han.submodules.parts.pieces import number
from han.tasks.choice import LevelChoice
from han.tasks.graph import Task
from han.tasks.outline import Outline
from han.tasks.shares import share, shares

BANKS = 2


def kinds_at(plan: Outline, level: int) -> int:
    """Return among how many kinds of tasks the cells of a level are shared out."""
    return sum(k == level for _, k in plan.streams)


@dataclass(frozen=True)
class Partition:
    """How a piece is cut: into equal blocks, blocks of `size` bytes, or (``tree``) one block."""

    algorithm: str
    blocks: int
    grain: int
    size: int = 0

    def bounds(self, nbytes: int) -> list[tuple[int, int]]:
        """Return where each block starts and stops."""
        if self.algorithm != "tree" and not self.size:
            return list(shares(nbytes, self.grain, self.blocks))
        return [self.span(nbytes, b, b + 1) for b in range(self.blocks)]

    def span(self, nbytes: int, first: int, stop: int) -> tuple[int, int]:
        """Return where blocks [first, stop) start and stop."""
        return self._start(nbytes, first), self._start(nbytes, stop)

    def _start(self, nbytes: int, block: int) -> int:
        if self.algorithm == "tree":
            return nbytes if block else 0
        if not self.size:
            return _share_start(nbytes, self.grain, block, self.blocks)
        return min(nbytes, block * self._step(nbytes))

    def _step(self, nbytes: int) -> int:
        """Return the bytes of a block: `size`, or a multiple of it if the message is longer."""
        unit = max(1, self.size // self.grain) * self.grain
        return max(1, -(-nbytes // (unit * self.blocks))) * unit


@lru_cache(maxsize=1 << 14)
def _share_start(nbytes: int, grain: int, block: int, blocks: int) -> int:
    """Return where a block starts; all steps and tasks of an exchange ask for the same ones."""
    return share(nbytes, grain, block, blocks)[0]


class Spot(NamedTuple):
    """A place in a region: the piece's byte `origin`, and all that follow it there, at `offset`."""

    offset: int
    origin: int


@dataclass(frozen=True)
class Layout:
    """The pieces and blocks of a run of an exchange, and where each member's memory holds them."""

    pattern: Pattern
    partition: Partition
    chunk: int
    pieces: int
    small: bool
    writes: bool = False  # members write finished blocks into the cells of those who need them
    arrays: bool = False  # members read the operands of others in users' arrays

    @classmethod
    def of(cls, plan: Outline, level: int, tasks: tuple[Task, ...], members: int) -> Layout:
        """Lay out the tasks of a level's stream; a single one goes to small slots if it fits."""
        kind, geometry, grain = tasks[0].kind, plan.geometry(level), plan.signature.grain
        choice, largest = plan.choice.levels[level].of(kind), max(t.nbytes for t in tasks)
        arrays = reads_in_plan(plan, level, choice)
        if len(tasks) == 1 and not arrays:
            for whole in (True, False):
                tried = cls.in_slots(choice, members, grain, largest, whole)
                if tried is not None:
                    return tried
        one = replace(cls.in_rings(choice, members, grain), arrays=arrays)
        area = geometry.area // kinds_at(plan, level)
        if kind == "reduce" and not arrays and 0 < largest <= choice.get("whole", 0):
            alone = cls.of_first_members(choice, members, grain)
            if min(BANKS, len(tasks)) * alone.bank(lines(largest)) <= area:
                one = alone
        usual = EXCHANGE_CHUNK if kind == "allreduce" else HALF_CHUNK
        chunk = min(choice.get("chunk", usual), lines(largest))
        chunk = max(chunk, plan.signature.nbytes * one.values >> COUNTS)
        at_once = len(tasks) == 1 and largest <= chunk and one.bank(chunk) <= area
        chunk = one.fitting(chunk, area if not at_once else BANKS * area)
        return replace(one, chunk=chunk, pieces=number(tasks, chunk, grain))

    @classmethod
    def of_first_members(cls, choice: LevelChoice, members: int, grain: int) -> Layout:
        """Return the layout of a tree in which only the first members of groups combine."""
        pattern = pattern_of(choice, members, whole=False)
        return cls(pattern, partition_of(choice, pattern, grain), grain, 1, False)

    @classmethod
    def in_rings(cls, choice: LevelChoice, members: int, grain: int) -> Layout:
        """Return the layout of a piece of one grain in the rings of cells."""
        pattern, partition = in_cells(choice, members, grain)
        writes = bool(choice.get("writes", 0)) and pattern.gathers > 0
        return cls(pattern, partition, grain, 1, False, writes)

    @classmethod
    def in_slots(
        cls, choice: LevelChoice, members: int, grain: int, nbytes: int, whole: bool
    ) -> Layout | None:
        """Return the layout of a message in small slots, `whole` or in blocks; None: too large."""
        if whole and (choice.algorithm != "recursive" or nbytes > choice.get("whole", PAGE)):
            return None
        pattern = pattern_of(choice, members, whole)
        one = cls(pattern, partition_of(choice, pattern, grain), nbytes, 1, True)
        return one if one.inline(nbytes) or one.bank(nbytes) <= PAGE else None

    def fitting(self, chunk: int, area: int) -> int:
        """Return the bytes of a piece, at most `chunk`, whose two banks fit into an area."""
        while chunk > self.chunk and BANKS * self.bank(chunk) > area:
            chunk //= 2
        grain = self.partition.grain
        return max(grain, chunk // LINE * LINE // grain * grain)

    # ---- regions --------------------------------------------------------------------------

    def regions(self, nbytes: int) -> list[int]:
        """Return the bytes of each region of a piece: of stages, then of finished blocks."""
        found = self._regions.get(nbytes)
        if found is None:
            largest = max([stop - start for start, stop in self.partition.bounds(nbytes)])
            found = [min(nbytes, number * largest) for number in self._numbers]
            self._regions[nbytes] = found
        return found

    @kept
    def _regions(self) -> dict[int, list[int]]:
        return {}

    @kept
    def _numbers(self) -> list[int]:
        """How many blocks each region holds, the same for every member."""
        pattern = self.pattern
        numbers = [len(pattern.laid(0, stage)) for stage in range(pattern.rooms)]
        if self.arrays:
            numbers[0] = 0
        kept = pattern.gathers and not self.in_results
        return [*numbers, len(self._laid(0, pattern.stages)) if kept else 0]

    @kept
    def in_results(self) -> bool:
        """Whether members read finished blocks in the results of others, and not in cells."""
        return self.arrays and not self.writes and not isinstance(self.pattern, Gathered)

    def _laid(self, member: int, stage: int) -> Blocks:
        """Return the blocks in a region of a member, in order; all of them if others write them."""
        if self.writes and stage >= self.pattern.stages:
            return range(self.pattern.blocks)
        return self.pattern.laid(member, stage)

    def region(self, stage: int) -> int:
        """Return where the region of a stage begins; that of finished blocks is the last one."""
        rooms, stages = self.pattern.rooms, self.pattern.stages
        return self.starts[rooms if stage >= stages else stage % rooms]

    def inline(self, nbytes: int) -> bool:
        """Return whether all regions fit into the cache line of a small slot's flag."""
        return self.small and sum(self.regions(nbytes)) <= INLINE

    def bank(self, nbytes: int) -> int:
        """Return the bytes of all regions of a piece; each begins on a cache line."""
        return sum(map(lines, self.regions(nbytes)))

    @kept
    def starts(self) -> list[int]:
        """Return where each region begins, in its bank or beside the flag.

        Shorter pieces use the same offsets. With others, a region could overlap a later region of
        the earlier piece in that bank, which readers release later.
        """
        sizes = self.regions(self.chunk)
        return [0, *accumulate(sizes if self.inline(self.chunk) else map(lines, sizes))]

    @kept
    def values(self) -> int:
        """By how much a flag grows for one piece."""
        return self.pattern.stages + self.pattern.gathers + 1

    @property
    def nbytes(self) -> int:
        """Bytes of all banks in a rank's ring."""
        return 0 if self.small else min(BANKS, self.pieces) * self.bank(self.chunk)

    def offsets(
        self, member: int, stage: int, bounds: Sequence[tuple[int, int]]
    ) -> Mapping[int, Spot]:
        """Return the places of blocks in a member's region of a stage, or of finished blocks."""
        return _packed(self._laid(member, stage), bounds)


def _packed(blocks: Blocks, bounds: Sequence[tuple[int, int]]) -> dict[int, Spot]:
    """Return the places of blocks that lie one behind the other."""
    if isinstance(blocks, range):  # they do so in the piece, too
        return dict.fromkeys(blocks, Spot(0, bounds[blocks.start][0] if blocks else 0))
    places: dict[int, Spot] = {}
    spot, offset, end = Spot(0, 0), 0, None
    for block in blocks:
        start, stop = bounds[block]
        if start != end:
            spot = Spot(offset, start)
        places[block] = spot
        offset, end = offset + stop - start, stop
    return places


def partition_of(choice: LevelChoice, pattern: Steps, grain: int) -> Partition:
    """Return how a choice cuts a piece into the blocks of a pattern."""
    return Partition(choice.algorithm, pattern.blocks, grain, choice.get("partition", 0))


def in_cells(choice: LevelChoice, members: int, grain: int) -> tuple[Pattern, Partition]:
    """Return the pattern of a choice through cells, and how it cuts a piece.

    All members of a tree combine there, where in small slots its message would be cut into parts of
    less than a cache line.
    """
    pattern = pattern_of(choice, members, whole=False)
    if choice.algorithm == "tree" and isinstance(pattern, Recursive):
        pattern = Gathered(pattern.scatter, (), pattern.gather)
        return pattern, Partition("recursive", pattern.blocks, grain, choice.get("partition", 0))
    return pattern, partition_of(choice, pattern, grain)


ITSELF = Spot(0, 0)


class Run(NamedTuple):
    """Consecutive bytes [start, stop) of a piece, which are consecutive in other places too."""

    start: int
    stop: int
    places: tuple[Spot, ...]


def runs(
    blocks: Blocks, bounds: Sequence[tuple[int, int]], places: Sequence[Mapping[int, Spot] | None]
) -> list[Run]:
    """Join blocks that are consecutive in the piece and in all `places`.

    A place maps blocks to their spots; None stands for the piece itself.
    """
    found: list[Run] = []
    for block in blocks:
        start, stop = bounds[block]
        spots = tuple([ITSELF if place is None else place[block] for place in places])
        if start == stop:
            continue
        if found and found[-1].stop == start and found[-1].places == spots:
            start = found.pop().start
        found.append(Run(start, stop, spots))
    return found


def least(choice: LevelChoice, members: int, element: int) -> int:
    """Return the bytes of cells that pieces of one element take: the least that can be used."""
    return BANKS * Layout.in_rings(choice, members, element).bank(element)


LEAST_AREA = RING_MIN // 2  # han.model.channel_layout.Geometry.area of the smallest ring


def no_room(what: str, taken: int, element: int, kinds: int, has: str) -> str | None:
    """Return why cells for elements do not fit where `kinds` kinds of tasks share a ring, or None.

    `has` says who has the room.
    """
    most = LEAST_AREA // kinds
    if taken <= most:
        return None
    return f"{what} takes {taken} bytes of cells for elements of {element} bytes; {has} {most}"
