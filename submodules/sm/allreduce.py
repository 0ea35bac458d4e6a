"""The allreduce algorithms of ``sm``: each member combines the whole message or a share of it.

Source: Jain et al., section III (cells, pipelining, inlining).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from han.common.kept import kept
from han.model.channel_layout import FLAG, INLINE, LINE, PAGE
from han.model.program import Ref
from han.submodules.parts.cells import COMBINED, COPIED, Cells, Members, Shares
from han.submodules.parts.fold import fold, step_of
from han.submodules.parts.pieces import Piece, numbered, show_ahead
from han.tasks.canonical import rooms
from han.tasks.context import Context
from han.tasks.contract import ANY, Algorithm
from han.tasks.shares import shares

Awaited = tuple[tuple[Ref, ...], int, Members]  # flags, the value that they reach, and ranks


def direct(context: Context) -> None:
    """Allreduce of a small message: each member shows its operand and combines all operands.

    Data moves once between members, while a gather and a release move it twice. All members
    combine in rank order, so that their results agree to the last bit.

    If a run has several of these tasks, they use the halves of the slots in turn: a member that
    begins a task has seen that all members have begun the task before, and so have finished the
    one before that. So members without an operand post too, and all members wait for them.
    """
    stream, group = context.stream, context.group
    (task,) = context.tasks
    slots = [context.small(m) for m in range(group.size)]
    beside = _beside(context, stream.sequence)
    data = [(s + beside).holding(task.start) for s in slots]
    source, result = (ref.to(task.start) for ref in (context.source, context.result))
    stream.sequence += 1
    stream.begin(task)
    if group.me in context.contributors:
        stream.copy(data[group.me], source, task.nbytes)
    stream.post(slots[group.me], stream.sequence)
    partials = _partials(context, task.nbytes, result)
    operands = _awaited(context, slots, data)
    fold(stream, context.order, operands, task.nbytes, result, partials)
    for _ in operands:  # members without an operand
        pass
    stream.end(task)


def _awaited(context: Context, slots: list[Ref], data: list[Ref]) -> Iterator[Ref]:
    """Yield the operand of each contributor after a wait for it; wait for all members."""
    stream, group = context.stream, context.group
    for m in range(group.size):
        if m != group.me:
            stream.wait(slots[m], stream.sequence, group.ranks[m])
        if m in context.contributors:
            yield data[m]


def _partials(context: Context, nbytes: int, first: Ref) -> list[Ref]:
    """Return places for partial results of pieces of `nbytes` bytes, `first` the first of them."""
    number = rooms(context.order)
    return [first, *(context.stream.room(nbytes, k) for k in range(1, number))][:number]


def _beside(context: Context, turn: int) -> int:
    """Return where a member's operand is in its small slot: beside the flag if it fits there."""
    nbytes = context.tasks[0].nbytes
    if len(context.builder.tasks_of(context.stream)) == 1:
        return FLAG if nbytes <= INLINE else LINE
    return FLAG * (1 + turn % 2) if nbytes <= FLAG else LINE + turn % 2 * PAGE // 2


def split(context: Context) -> None:
    """Allreduce of a large message: copy in, combine a share, copy out the other shares.

    A member copies in piece j + 1 before it combines piece j. It has then copied out piece j - 1,
    which all members have therefore combined. So the cells of piece j - 1 are free, and two cells
    of each kind need no flags of readers.
    """
    mine = _Shares.of(context)
    for piece in show_ahead(context, numbered(context, mine.layout.chunk), 1, mine.copy_in):
        mine.combine(piece)
        mine.copy_out(piece)


def each(context: Context) -> None:
    """Allreduce in which each member combines all operands: ``direct`` for larger messages.

    Data moves once between members, and twice in ``split``. Two members move as many bytes as in
    ``split``; more members move more.

    A member shows pieces ahead of the one that it combines, and readers post no flag. A member
    that shows piece x has combined piece x - ahead - 1, so all members had shown that one. Each of
    them had combined piece x - 2 ahead - 2 before, so the cell of that piece is free.
    """
    cells = _Shown.of(context)
    pieces = numbered(context, cells.ring.chunk)
    for piece in show_ahead(context, pieces, cells.ahead, cells.show):
        context.stream.label(piece.task)
        cells.combine(piece)


@dataclass(frozen=True)
class _Shown:
    """The cells in which each member shows its operand, piece by piece."""

    context: Context
    ring: Cells

    @classmethod
    def of(cls, context: Context) -> _Shown:
        """Return the cells of the context's stream."""
        builder = context.builder
        ring = Cells.of(builder.plan, context.group.level, builder.tasks_of(context.stream))
        return cls(context, ring)

    @property
    def ahead(self) -> int:
        """How many pieces a member shows beyond the one that it combines next."""
        return max(0, self.ring.cells // 2 - 1)

    def _cell(self, member: int, piece: Piece) -> Ref:
        return self.context.cells(member) + self.ring.cell(piece.index)

    def show(self, piece: Piece) -> None:
        """Copy a piece of this member's operand into its cell, and post that it is there."""
        context, stream, me = self.context, self.context.stream, self.context.group.me
        stream.label(piece.task)
        if me in context.contributors:
            cell = self._cell(me, piece).holding(piece.start)
            stream.copy(cell, context.source.to(piece.start), piece.nbytes)
        stream.post(self.context.flag(me, COPIED), piece.index + 1)

    def combine(self, piece: Piece) -> None:
        """Combine a piece of all operands in rank order, block by block.

        A member reads its own operand from the send buffer if there are two members and the
        operation is native, else from its cell. In place, the result overlays the operand, and
        among more than two members it is written before the operand is read. A user's operation
        must get the operands in the same order on all ranks; MPI_Reduce_local keeps the order only
        if the result does not overlay the first operand.
        """
        context, group, stream = self.context, self.context.group, self.context.stream
        operands, mine = [self._cell(m, piece) for m in context.contributors], group.size
        if group.size == len(operands) == 2 and context.builder.signature.native:
            mine, operands[group.me] = group.me, context.source
        for m in context.others:
            stream.wait(self.context.flag(m, COPIED), piece.index + 1, group.ranks[m])
        step = step_of(context.grain)
        if group.size == 2:  # there are no partial results
            step = max(1, piece.nbytes)
        partials = _partials(context, step, context.result)
        for at in range(piece.start, piece.stop, step):
            dst = context.result.to(at)
            stream.fold_each(
                dst, tuple(operands), mine, piece.start, min(step, piece.stop - at), context.order,
                (dst, *partials[1:]), None, None,
            )  # fmt: skip


@dataclass(frozen=True)
class _Shares:
    """Pieces split into one share per member, with cells for operands and for results.

    `cells`, `copied` and `combined` are the cells and flags of all members.
    """

    context: Context
    layout: Shares
    partials: tuple[Ref, ...]  # where partial results of a block are
    step: int  # bytes of a block
    cells: tuple[Ref, ...]
    copied: tuple[Ref, ...]
    combined: tuple[Ref, ...]
    _operands: dict[int, tuple[Ref, ...]] = field(default_factory=dict)  # by cell

    @classmethod
    def of(cls, context: Context) -> _Shares:
        """Return the cells of the context's stream, and memory for partial results."""
        builder, members = context.builder, range(context.group.size)
        layout = Shares.of(builder.plan, context.group.level, builder.tasks_of(context.stream))
        step = step_of(context.grain)
        return cls(
            context,
            layout,
            tuple(context.stream.room(step, k) for k in range(rooms(context.order))),
            step,
            tuple(context.cells(m) for m in members),
            tuple(context.flag(m, COPIED) for m in members),
            tuple(context.flag(m, COMBINED) for m in members),
        )

    def bounds(self, piece: Piece) -> tuple[tuple[int, int], ...]:
        """Return where in a piece the share of each member lies."""
        return shares(piece.nbytes, self.context.grain, self.context.group.size)

    def copy_in(self, piece: Piece) -> None:
        """Copy the piece, without this member's own share, into its cell."""
        me, stream, source = self.context.group.me, self.context.stream, self.context.source
        cell = (self.cells[me] + self.layout.cell(piece.index, out=False)).holding(piece.start)
        start, stop = self.bounds(piece)[me]
        after = piece.start + stop
        if me in self.context.contributors:
            stream.copy(cell, source.to(piece.start), start)
            stream.copy(cell.to(after), source.to(after), piece.nbytes - stop)
        stream.post(self.copied[me], piece.index + 1)

    def combine(self, piece: Piece) -> None:
        """Combine this member's share, block by block, into the result and a cell at once.

        In place, the result overlays the operand, so it is written last.
        """
        group, stream = self.context.group, self.context.stream
        start, stop = (piece.start + edge for edge in self.bounds(piece)[group.me])
        step = self.step
        if group.size == 2:  # there are no partial results
            step = max(1, stop - start)
        flags, ranks, mine = self._operands_of
        waits: Awaited | None = (flags, piece.index + 1, ranks)
        cell = self.cells[group.me] + self.layout.cell(piece.index, out=True)
        finished, operands = cell.holding(start), self._shown(piece.index % 2)
        for at in range(start, stop, step) or [start]:
            stream.fold_each(
                self.context.result.to(at), operands, mine, piece.start, min(step, stop - at),
                self.context.order, self.partials, waits, finished.to(at),
            )  # fmt: skip
            waits = None
        stream.post(self.combined[group.me], piece.index + 1)

    @kept
    def _operands_of(self) -> tuple[tuple[Ref, ...], Members, int]:
        """The flags and ranks of the contributors, and this member's number among them."""
        group, members = self.context.group, self.context.contributors
        mine = members.index(group.me) if group.me in members else len(members)
        flags, ranks = [self.copied[m] for m in members], [group.ranks[m] for m in members]
        return tuple(flags), tuple(ranks), mine

    def _shown(self, turn: int) -> tuple[Ref, ...]:
        """Return where the contributors show the pieces that go through a cell, in their order.

        This member reads its own operand where it is.
        """
        found = self._operands.get(turn)
        if found is None:
            offset = self.layout.cell(turn, out=False)
            cells = {m: self.cells[m] + offset for m in self.context.contributors}
            own = {self.context.group.me: self.context.source}
            found = self._operands[turn] = tuple([own.get(m, cell) for m, cell in cells.items()])
        return found

    def copy_out(self, piece: Piece) -> None:
        """Copy the other members' shares of the result out of their cells."""
        me, bounds = self.context.group.me, self.bounds(piece)
        cells, flags, ranks = self._others
        self.context.stream.take_each(
            self.context.result, cells, self.layout.cell(piece.index, out=True),
            bounds[me + 1 :] + bounds[:me], (piece.start, 0, piece.nbytes),
            flags, piece.index + 1, ranks,
        )  # fmt: skip

    @kept
    def _others(self) -> tuple[tuple[Ref, ...], tuple[Ref, ...], Members]:
        """The cells, flags and ranks of the other members, the next one first."""
        group = self.context.group
        others = self.context.others
        cells, flags = ([found[m] for m in others] for found in (self.cells, self.combined))
        return tuple(cells), tuple(flags), tuple([group.ranks[m] for m in others])


ALLREDUCES = {"direct": direct, "each": each, "split": split}
WHOLE = {
    "direct": Algorithm(
        "every member combines the data of all; one step",
        ("allreduce",),
        "always",
        one_segment=True,
        takes=(),
        families=ANY,
        canonical=True,
    ),
    "each": Algorithm(
        "every member combines the data of all, piece by piece",
        ("allreduce",),
        "always",
        takes=("cells", "chunk"),
        families=ANY,
        canonical=True,
    ),
    "split": Algorithm(
        "every member combines its share, then copies the shares of the others",
        ("allreduce",),
        "always",
        takes=("cells", "chunk"),
        families=ANY,
        canonical=True,
    ),
}
