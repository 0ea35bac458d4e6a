"""The halves of a tree inside a node: a reduce to the group's root, and a broadcast from it.

Levels below the outermost one reduce and broadcast apart.

- In a *reduce*, all members combine as in :mod:`han.submodules.exchange.gathered`. The root writes
  its own share into its result, and copies the shares of the others out of the cells of member 0.
- In a *broadcast*, the root copies the message into its cells. In each gathering step but the last
  one, groups of members divide, and each new group without the root gets a copy of its own, in the
  cells of its first member: all members of the group copy a share. In the last step all members
  copy the message out of the cells that are nearest.

Two banks of cells are used in turn. A member writes a bank of a reduce again when the root has its
result of the earlier piece there: that result is made from all that members have read. A root
writes a bank of a broadcast again when all members have read the earlier piece; the others write
theirs when they have seen the root's new piece.

A small message goes through small slots, where a group has one copy, and the flag of a slot serves
the reduce first, then the broadcast. The root overwrites its operand there when it has the result.

Source: Jocksch et al., section 2.3 and figures 6 and 7, and section 2.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from han.model.channel_layout import FLAG, INLINE, LINE, PAGE, lines
from han.model.program import Ref
from han.submodules.exchange.gathered import Copies
from han.submodules.exchange.layout import (
    BANKS,
    Layout,
    Partition,
    Run,
    in_cells,
    kinds_at,
    least,
    no_room,
    runs,
)
from han.submodules.exchange.node import Exchange, exchange_pieces, laid_out
from han.submodules.exchange.patterns import misfit_of_any
from han.submodules.exchange.rounds import Rounds
from han.submodules.exchange.steps import Recursive
from han.submodules.measured import HALF_CHUNK
from han.submodules.parts.cells import COMBINED, COUNTS, READ, RELEASED, Waits, tasks_at
from han.submodules.parts.pieces import Piece, in_turn, number, numbered
from han.tasks.context import Context
from han.tasks.contract import Question
from han.tasks.graph import Task
from han.tasks.outline import Outline

HALVES = ("reduce", "bcast")
SLOT_RELEASED = 64  # of a small slot's flag: above the number of stages of any reduce


def unfit(question: Question) -> str | None:
    """Return the reason why members cannot reduce and broadcast through cells, or None."""
    topology, level, choice = question.topology, question.level, question.choice
    element = question.signature.element
    reason = misfit_of_any(choice, topology.group_sizes[level])
    if reason is not None:
        return reason
    taken = least(choice, topology.widest(level), element) + BANKS * lines(element)
    what = f"{choice.algorithm} among {topology.widest(level)} members"
    return no_room(what, taken, element, 2, "half of the smallest ring has")


def footprint(plan: Outline, level: int) -> int:
    """Return how many bytes of each rank's ring of cells a run takes."""
    tasks = _tasks(plan, level, "bcast")
    spreads = [Spread.of(plan, level, tasks, n) for n in _sizes(plan, level)] if tasks else []
    return _reduce_bytes(plan, level) + max((one.nbytes for one in spreads), default=0)


def _reduce_bytes(plan: Outline, level: int) -> int:
    """Return how many bytes of each rank's ring the reduce of a level takes: the first ones."""
    tasks = _tasks(plan, level, "reduce")
    if tasks and plan.repeats:
        return Rounds.of(plan, level, "reduce").nbytes
    layouts = [Layout.of(plan, level, tasks, n) for n in _sizes(plan, level)] if tasks else []
    return max((layout.nbytes for layout in layouts), default=0)


def _tasks(plan: Outline, level: int, kind: str) -> tuple[Task, ...]:
    """Return the tasks of a kind that go through cells; those of `scatter` are in messages."""
    through_cells = plan.choice.levels[level].of(kind).algorithm == "tree"
    return tasks_at(plan, level).get(kind, ()) if through_cells else ()


def _sizes(plan: Outline, level: int) -> list[int]:
    return [size for size in plan.topology.group_sizes[level] if size > 1]


def lower(context: Context) -> None:
    """Emit this rank's operations for the reduce or the broadcast of each task."""
    if context.tasks[0].kind == "reduce":
        exchange_pieces(context, Reduce(context, laid_out(context)))
    else:
        _broadcast(context)


# ---- reduce -------------------------------------------------------------------------------------


class Reduce(Exchange):
    """One member's part in a reduce: only the root takes the finished blocks."""

    def __init__(self, context: Context, layout: Layout) -> None:
        super().__init__(context, layout)
        self.steps = range(0)
        self._collected: dict[int, list[tuple[int, list[Run]]]] = {}  # by bytes of a piece
        self.taken = self.pattern.stages + 1  # what the root's flag counts when it has a result

    def targets(self, cell: Ref) -> tuple[Ref, Ref | None]:
        """Return where the last stage combines: at the root the result, elsewhere a cell."""
        return (self.context.result if self.group.leads else cell), None

    def tells(self, worked: bool, final: bool) -> bool:
        """Return whether others wait for a stage of this one; the root waits for the last one."""
        return worked and not (final and self.group.leads)

    def await_readers(self, piece: Piece) -> None:
        """Wait until the root has the result of the piece that was in the bank before."""
        if not self.group.leads:
            root = self.group.root
            done = (piece.index - BANKS) * self.values + self.taken
            self.wait_until(root, COMBINED, done)

    def leave(self, piece: Piece) -> None:
        """Wait until other members have read this one's operand; the root has the result then."""
        if self.layout.arrays and not self.group.leads:
            for member in self.pattern.readers(self.group.me, 1):
                self.wait_for(piece, (member, 1))

    def combine_and_take(self, piece: Piece) -> None:
        """Carry out all combining stages; the root copies the blocks of the others."""
        self.combine(piece)
        if not self.group.leads:
            return
        finished = self.pattern.stages
        for member, parts in self._of_others(piece):
            home = self.pattern.home(member, finished)
            for run in parts:
                self.wait_for(piece, (member, finished))
                result = self.context.result.to(piece.start + run.start)
                source = self.cell(home, piece, finished, run, 0)
                self.stream.copy(result, source, run.stop - run.start)
        if not self.layout.small and self.layout.pieces > BANKS:
            self.post(piece, self.taken)

    def _of_others(self, piece: Piece) -> list[tuple[int, list[Run]]]:
        """Return the members whose blocks the root copies, the next first, and these blocks."""
        found = self._collected.get(piece.nbytes)
        if found is None:
            bounds = self.layout.partition.bounds(piece.nbytes)
            found = self._collected[piece.nbytes] = []
            for distance in range(1, self.group.size):
                member = (self.group.me + distance) % self.group.size
                blocks = self.pattern.held(member, self.pattern.stages)
                theirs = self.layout.offsets(member, self.pattern.stages, bounds)
                found.append((member, runs(blocks, bounds, [theirs])))
        return found


# ---- broadcast ----------------------------------------------------------------------------------


class Part(NamedTuple):
    """Blocks [first, stop) that a member has written in a step; in step 0 the root has all.

    If the writer is the member that copies, it has them in its result.
    """

    writer: int
    step: int
    first: int
    stop: int


@dataclass(frozen=True)
class Spread:
    """Which member copies what of a broadcast in each step, and where the copies lie.

    `base` is where the cells begin in a rank's ring.
    """

    copies: Copies
    partition: Partition
    chunk: int
    pieces: int
    small: bool
    base: int

    @classmethod
    def of(cls, plan: Outline, level: int, tasks: tuple[Task, ...], members: int) -> Spread:
        """Lay out the tasks of a level's stream; a single one goes to small slots if it fits."""
        geometry, signature = plan.geometry(level), plan.signature
        choice, largest = plan.choice.levels[level].of("bcast"), max(t.nbytes for t in tasks)
        small = len(tasks) == 1 and largest <= PAGE
        pattern, partition = in_cells(choice, members, signature.grain)
        assert isinstance(pattern, Recursive), "the pattern of a tree"
        gather = pattern.gather
        most = geometry.area // kinds_at(plan, level) // BANKS // LINE * LINE
        total = sum(task.nbytes for task in tasks)
        chunk = max(choice.get("chunk", HALF_CHUNK), total * len(gather) >> COUNTS)
        chunk = min(chunk, most, lines(largest))
        chunk = max(signature.grain, chunk // LINE * LINE // signature.grain * signature.grain)
        return cls(
            Copies(members, partition.blocks, (members,) if small else gather),
            partition,
            chunk,
            number(tasks, PAGE if small else chunk, signature.grain),
            small,
            0 if small else _reduce_bytes(plan, level),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all banks in a rank's ring."""
        return 0 if self.small else min(BANKS, self.pieces) * lines(self.chunk)

    @property
    def recycled(self) -> bool:
        """Whether a bank is used more than once."""
        return self.pieces > BANKS

    @property
    def steps(self) -> range:
        """The steps, of which the first is 1."""
        return range(1, len(self.copies.gather) + 1)

    def copied(self, member: int, step: int, root: int) -> list[Part]:
        """Return what a member copies in a step, by those who have written it."""
        if member == root:
            return []
        copies = self.copies
        wanted: Sequence[int] = copies.share(member, step, root)
        has = {b for k in range(1, step) for b in copies.share(member, k, root)}
        if step == self.steps[-1]:
            wanted = [b for b in range(copies.blocks) if b not in has]
        found: list[Part] = []
        for block in wanted:
            mine = block in has
            writer, since = (member, 0) if mine else copies.writer(member, step - 1, block, root)
            if found and found[-1][:2] == (writer, since) and found[-1].stop == block:
                found[-1] = found[-1]._replace(stop=block + 1)
            else:
                found.append(Part(writer, since, block, block + 1))
        return found


class _Broadcast:
    """One member's part in a broadcast, piece by piece."""

    def __init__(self, context: Context) -> None:
        self.context, self.stream, self.group = context, context.stream, context.group
        self.builder = context.builder
        tasks = self.builder.tasks_of(context.stream)
        level, size = context.group.level, context.group.size
        self.spread = Spread.of(self.builder.plan, level, tasks, size)
        self.steps = self.spread.steps
        me, root = self.group.me, self.group.root
        self.parts = {k: self.spread.copied(me, k, root) for k in self.steps}
        self.homes = [self.spread.copies.home(me, k, root) for k in (0, *self.steps)]
        self.waits = Waits(context, context.flag)
        self.others = tuple(m for m in range(size) if m != root)

    def put(self, piece: Piece) -> None:
        """Copy a piece of the root's data into its cells, when all have read what was there."""
        self.waits.wait(self.others, READ, piece.index - BANKS + 1)
        cell = self._cell(self.group.me, piece)
        self.stream.copy(cell, self.context.source.to(piece.start), piece.nbytes)
        self.stream.post(*self._counter(self.group.me, piece, 0))

    def take(self, piece: Piece) -> None:
        """Copy shares into the cells of this member's groups, then all else into the result."""
        awaited: set[tuple[int, int]] = set()
        for step in self.steps:
            for part in self.parts[step]:
                self._copy(piece, step, part, awaited)
            if step < self.steps[-1] and self.parts[step]:
                self.stream.post(*self._counter(self.group.me, piece, step))
        if not piece.nbytes:
            self._await(piece, self.group.root, 0)
        if self.spread.recycled:
            self.stream.post(self.context.flag(self.group.me, READ), piece.index + 1)

    def _copy(self, piece: Piece, step: int, part: Part, awaited: set[tuple[int, int]]) -> None:
        start, stop = self.spread.partition.span(piece.nbytes, part.first, part.stop)
        if start == stop:
            return
        result = self.context.result.to(piece.start + start)
        if part.writer != self.group.me:
            if part[:2] not in awaited:
                awaited.add(part[:2])
                self._await(piece, part.writer, part.step)
            source = self._cell(self.homes[step - 1], piece).to(piece.start + start)
            self.stream.copy(result, source, stop - start)
        if step < self.steps[-1]:
            cell = self._cell(self.homes[step], piece).to(piece.start + start)
            self.stream.copy(cell, result, stop - start)

    def _cell(self, member: int, piece: Piece) -> Ref:
        if self.spread.small:
            beside = FLAG if piece.nbytes <= INLINE else LINE
            return (self.context.small(member) + beside).holding(piece.start)
        bank = piece.index % BANKS * lines(self.spread.chunk)
        return (self.context.cells(member) + (self.spread.base + bank)).holding(piece.start)

    def _counter(self, member: int, piece: Piece, step: int) -> tuple[Ref, int]:
        """Return a member's flag, and its value once the member has copied in a step."""
        if self.spread.small:
            return self.context.small(member), SLOT_RELEASED
        return self.context.flag(member, RELEASED), piece.index * len(self.steps) + step + 1

    def _await(self, piece: Piece, member: int, step: int) -> None:
        flag, value = self._counter(member, piece, step)
        self.stream.wait(flag, value, self.group.ranks[member])


def _broadcast(context: Context) -> None:
    """Emit this rank's operations for the broadcast of each task."""
    mine = _Broadcast(context)
    pieces = numbered(context, PAGE if mine.spread.small else mine.spread.chunk)
    for piece in in_turn(context, pieces):
        (mine.put if context.group.leads else mine.take)(piece)
