"""The tasks of lanes inside a node, in shared memory: shares are made, and gathered when finished.

The members that are in a lane own a share of each segment, the others own none. A pattern says in
which stages members combine shares, and in which steps they take finished ones. A member shows its
operand in its cells, slice by slice, and combines or copies what others show. `sm` has a pattern of
one stage and one step; `exchange` has the halves of a recursive exchange or a cyclic shift. In a
broadcast the root shows all shares, and each owner copies its own; in a reduce only the root copies
the finished shares.

A member that does not see the whole result does not know what others have read. So, where cells are
used more than once, a member waits for its readers before it writes a cell again.

Source: Jocksch et al., section 2 (reduce-scatter and allgather inside the node) and section 2.1.2
(in steps); Träff (lanes).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from han.model.channel_layout import PAGE
from han.model.program import Ref
from han.submodules.exchange.parted import (
    RESULT,
    Collecting,
    Dealing,
    Numbers,
    ShareFold,
    Taking,
    moves,
)
from han.submodules.exchange.share_cells import Patterns, ShareCells
from han.submodules.exchange.steps import Pattern
from han.submodules.parts.cells import COMBINED, COPIED, READ, RELEASED, Waits
from han.submodules.parts.fold import step_of
from han.submodules.parts.pieces import in_turn, show_ahead
from han.tasks.canonical import rooms
from han.tasks.context import Context
from han.tasks.contract import Parameter
from han.tasks.graph import Task
from han.tasks.shares import shares

KINDS = ("reduce_scatter", "scatter", "gather", "allgather")
LANES = Parameter(
    "int", "shares: how many there are on a level; 0: as many as the smallest group has ranks",
    0, 1 << 16
)  # fmt: skip
Spans = tuple[tuple[int, int], ...]


class Slice(NamedTuple):
    """Slice `index` of a stream: of each lane's share, the bytes from its byte `at` on.

    `spans` say where the shares start and stop in the task.
    """

    index: int  # type: ignore[assignment]  # it hides tuple.index
    task: Task
    spans: Spans
    at: int
    first: bool
    last: bool

    @property
    def whole(self) -> bool:
        """Whether it has all bytes of all shares: they lie side by side in the message."""
        return self.first and self.last


class _Part:
    """The shares of some lanes, and a cell for each; the number of the slice adds an offset."""

    def __init__(self, lanes: Numbers, cells: Sequence[Ref]) -> None:
        self.lanes, self.cells = lanes, tuple(cells)
        self._spans: dict[int, Spans] = {}  # by bytes of a task

    def spans(self, piece: Slice) -> Spans:
        """Return where the shares start and stop in the task."""
        found = self._spans.get(piece.task.nbytes)
        if found is None:
            found = tuple([piece.spans[lane] for lane in self.lanes])
            self._spans[piece.task.nbytes] = found
        return found


class _Step(NamedTuple):
    """What a member takes in a step: the shares `there`, and before the last step `into` its cells.

    It waits for one of `flags`, those of `ranks`, before each share.
    """

    there: _Part
    into: _Part | None
    flags: tuple[Ref, ...]
    ranks: Numbers


class _Member:
    """One member's flags, cells and slices."""

    def __init__(self, context: Context, patterns: Patterns) -> None:
        self.context, self.stream, self.group = context, context.stream, context.group
        builder, group = context.builder, context.group
        self.layout = ShareCells.of(builder.plan, group.level, patterns)
        self.pattern = _pattern(context, patterns)
        free = _free(context)
        self.has_all = free == group.me
        self.moves = moves(self.pattern, context.owners, group.me, free)
        self.waits = Waits(context, cache(context.flag))  # a flag is one object: see `take_each`
        self.cells = [context.cells(m) for m in range(group.size)]
        self.slices = self._slices()

    def _slices(self) -> list[Slice]:
        """Cut each task into slices of all its shares."""
        found, chunk, grain = list[Slice](), self.layout.chunk, self.context.grain
        for task in self.context.tasks:
            spans = shares(task.nbytes, grain, self.layout.lanes)
            starts = range(0, max(1, *[stop - start for start, stop in spans]), chunk)
            for at in starts:
                index = self.stream.sequence + len(found)
                found.append(Slice(index, task, spans, at, at == 0, at == starts[-1]))
        self.stream.sequence += len(found)
        return found

    def _post(self, kind: int, value: int) -> None:
        self.stream.post(self.context.flag(self.group.me, kind), value)

    def _cell(self, member: int, number: int) -> Ref:
        """Return a cell of a member in its first bank."""
        return self.cells[member] + number * self.layout.stride

    def _own_cells(self, lanes: Numbers, numbers: Numbers) -> _Part:
        return _Part(lanes, [self._cell(self.group.me, number) for number in numbers])

    def _span(self, piece: Slice, lane: int) -> tuple[int, int]:
        """Return where a slice of a lane's share starts and stops in the message."""
        (start, stop), origin = piece.spans[lane], piece.task.start
        first = min(start + piece.at, stop)
        return origin + first, origin + min(first + self.layout.chunk, stop)

    def _bytes_of(self, piece: Slice) -> tuple[int, int, int]:
        """Return where the task starts, and which bytes of each of its shares are in the slice."""
        return piece.task.start, piece.at, self.layout.chunk

    def _show(self, piece: Slice, src: Ref, part: _Part, bank: int) -> None:
        """Copy a slice of shares into cells of this member."""
        self.stream.show_each(part.cells, bank, src, part.spans(piece), self._bytes_of(piece))


class _Maker(_Member):
    """One member's part in tasks that make shares."""

    def __init__(self, context: Context, patterns: Patterns) -> None:
        super().__init__(context, patterns)
        self.shown = self._own_cells(self.moves.shown, self.moves.shown)
        self.step = step_of(context.grain)
        self.orders = [[context.order_of(f.members) for f in folds] for folds in self.moves.folds]
        number = max((rooms(order) for orders in self.orders for order in orders), default=0)
        self.partials = tuple([self.stream.room(self.step, k) for k in range(number)])
        self._operands: dict[tuple[int, int, int, bool], tuple[Ref, ...]] = {}

    def run(self) -> None:
        """Show slices ahead of the one that is combined: all banks but one are in use."""
        works = self.shown.lanes and any(self.moves.folds)
        ahead = self.layout.banks - 1 if works else 0
        for piece in show_ahead(self.context, self.slices, ahead, self._show_operand):
            self.stream.label(piece.task)
            self._combine(piece)

    def _show_operand(self, piece: Slice) -> None:
        """Show a slice of the operand, when readers have combined what was in the bank."""
        self.stream.label(piece.task)
        before = (piece.index - self.layout.banks) * self.pattern.stages
        for stage, members in self.moves.readers.items():
            self.waits.wait(members, COMBINED, before + stage if before >= 0 else 0)
        if not self.shown.lanes:
            return
        bank = self.layout.made_in(piece.index)
        if piece.whole:
            self._show_image(piece, bank)
        else:
            self._show(piece, self.context.source, self.shown, bank)
        self._post(COPIED, piece.index + 1)

    def _show_image(self, piece: Slice, bank: int) -> None:
        """Show whole shares where they are in the message: up to a page of them is one copy.

        Other streams have their turns between copies, so larger ones are not joined.
        """
        image = (self.cells[self.group.me] + bank).holding(piece.task.start)
        joined: list[tuple[int, int]] = []
        for start, stop in (self._span(piece, lane) for lane in self.shown.lanes):
            joins = joined and joined[-1][1] == start and stop - joined[-1][0] <= PAGE
            joined.append((joined.pop()[0] if joins else start, stop))
        for start, stop in joined:
            self.stream.copy(image.to(start), self.context.source.to(start), stop - start)

    def _combine(self, piece: Slice) -> None:
        """Carry out all stages of a slice."""
        stages = self.pattern.stages
        for stage, folds in enumerate(self.moves.folds, 1):
            before, count = (COPIED, 1) if stage == 1 else (COMBINED, stages)
            value = piece.index * count + max(1, stage - 1)
            self.waits.wait(self.moves.sources[stage - 1], before, value)
            for number in range(len(folds)):
                self._fold(piece, stage, number)
            if stage < stages or (folds and self.layout.recycled):
                self._post(COMBINED, piece.index * stages + stage)

    def _fold(self, piece: Slice, stage: int, number: int) -> None:
        """Combine a slice of a share; in place, the result overlays the operand: it comes last."""
        fold, order = self.moves.folds[stage - 1][number], self.orders[stage - 1][number]
        start, stop = self._span(piece, fold.lane)
        bank, image = self.layout.made_in(piece.index), stage == 1 and piece.whole
        key = stage, number, bank, image
        operands = self._operands.get(key)
        if operands is None:
            operands = self._operands[key] = self._operands_of(fold, bank, image)
        target, origin = self.context.result, piece.task.start if image else start
        if fold.into != RESULT:
            target = (self._cell(self.group.me, fold.into) + bank).holding(start)
        step = self.step if len(operands) > 1 else max(1, stop - start)
        for at in range(start, stop, step):
            self.stream.fold_each(
                target.to(at), operands, fold.own, origin, min(step, stop - at),
                order, self.partials, None, None,
            )  # fmt: skip

    def _operands_of(self, fold: ShareFold, bank: int, image: bool) -> tuple[Ref, ...]:
        """Return the operands of a fold: the same for all slices in one bank."""
        there = (0,) * len(fold.there) if image else fold.there
        cells = [self._cell(m, k) + bank for m, k in zip(fold.members, there, strict=True)]
        if fold.own < len(cells):
            cells[fold.own] = self.context.source
        return tuple(cells)


class _Gatherer(_Member):
    """One member's part in tasks that gather finished shares."""

    def __init__(self, context: Context, patterns: Patterns) -> None:
        super().__init__(context, patterns)
        self.own = self._own_cells(self.moves.own, self.moves.into)
        self.steps = [self._step(k, taking) for k, taking in enumerate(self.moves.takes, 1)]

    def _step(self, step: int, taking: Taking) -> _Step:
        there = [self._cell(*one) for one in zip(taking.members, taking.there, strict=True)]
        into = self._own_cells(taking.lanes, taking.into) if step < self.pattern.gathers else None
        flags, ranks = self.waits.of(taking.members, RELEASED if step == 1 else READ)
        return _Step(_Part(taking.lanes, there), into, flags, ranks)

    def run(self) -> None:
        """Show slices of the own shares, and take those of the others."""
        for piece in in_turn(self.context, self.slices):
            bank = self.layout.done_in(piece.index)
            self._release(piece, bank)
            for step, taking in enumerate(self.steps, 1):
                self._take(piece, bank, step, taking)

    def _release(self, piece: Slice, bank: int) -> None:
        """Show a slice of the finished shares, when takers have copied what was in the cells."""
        before = (piece.index - self.layout.banks) * self.pattern.gathers
        for step, members in self.moves.takers.items():
            self.waits.wait(members, READ, before + step if before >= 0 else 0)
        if self.own.lanes:
            self._show(piece, self.context.source, self.own, bank)
            self._post(RELEASED, piece.index + 1)

    def _take(self, piece: Slice, bank: int, step: int, taking: _Step) -> None:
        """Copy shares out of the cells of others; show them again before the last step."""
        gathers, result = self.pattern.gathers, self.context.result
        if not self.has_all:
            value = piece.index + 1 if step == 1 else piece.index * gathers + step - 1
            self.stream.take_each(
                result, taking.there.cells, bank, taking.there.spans(piece),
                self._bytes_of(piece), taking.flags, value, taking.ranks,
            )  # fmt: skip
        if taking.into is not None:
            have = self.context.source if self.has_all else result
            self._show(piece, have, taking.into, bank)
        takes = taking.there.lanes and not self.has_all
        if taking.into is not None or (self.layout.recycled and takes):
            self._post(READ, piece.index * gathers + step)


def _pattern(context: Context, patterns: Patterns) -> Pattern:
    """Return the pattern of a kind of tasks."""
    kind, size, root = context.tasks[0].kind, context.group.size, context.group.root
    if kind == "scatter":
        return Dealing(size, root)
    return Collecting(size, root) if kind == "gather" else patterns(context.choice, size)


def _free(context: Context) -> int:
    """Return the member that takes nothing: the root of a broadcast; -1 if there is none."""
    signature, ranks = context.builder.signature, context.group.ranks
    gathers = signature.collective == "bcast" and context.tasks[0].kind == "allgather"
    return ranks.index(signature.root) if gathers and signature.root in ranks else -1


def lower(context: Context, patterns: Patterns) -> None:
    """Emit this rank's operations for each task."""
    made = context.tasks[0].kind in ("reduce_scatter", "scatter")
    (_Maker if made else _Gatherer)(context, patterns).run()
