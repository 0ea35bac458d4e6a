"""The allreduce algorithms of ``sm``: every member combines, all of the message or its share.

Source: Jain et al., section III (cells, pipelining, inlining).
"""

from __future__ import annotations

from dataclasses import dataclass

from han.model.channel_layout import FLAG, INLINE, LINE
from han.model.program import Ref
from han.submodules.parts.cells import COMBINED, COPIED, Ring, Shares
from han.submodules.parts.pieces import Piece, cut, share
from han.tasks.context import Context

BLOCK = 16 * 1024  # what is combined so far stays in the nearest cache


def direct(context: Context) -> None:
    """Allreduce of a small message: everyone shows its data and combines all, in rank order.

    One hop rather than a gather's and a release's two; all ranks combine in the same order,
    so that they agree to the last bit.
    """
    stream, group, builder = context.stream, context.group, context.builder
    (task,) = context.tasks
    slots = [builder.small(group.level, s) for s in group.slots]
    nbytes = task.nbytes
    data = [s + (FLAG if nbytes <= INLINE else LINE) for s in slots]
    stream.begin(task)
    stream.copy(data[group.me], context.source, nbytes)
    stream.post(slots[group.me], 1)
    dst = context.result
    for m in range(group.size):
        if m != group.me:
            stream.wait(slots[m], 1, group.ranks[m])
        if m:
            stream.reduce(dst, dst if m > 1 else data[0], data[m], nbytes)
    stream.end(task)


def split(context: Context) -> None:
    """Allreduce of a large message: copy in, combine one's share, copy out; two cells each.

    The copy of piece j + 1 goes in before piece j is combined. A rank that shows piece j + 1
    has copied out piece j - 1, so two cells need no further flags.
    """
    stream, group = context.stream, context.group
    shares = _Shares.of(context)
    pieces = cut(context.tasks, shares.layout.chunk, context.element, stream.sequence)
    stream.sequence += len(pieces)
    for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
        if piece.first:
            stream.begin(piece.task)
        if piece is pieces[0]:
            shares.copy_in(piece)
        if following is not None and following.task is piece.task:
            shares.copy_in(following)
        elif following is not None:
            stream.begin(following.task)
            shares.copy_in(following)
        shares.combine(piece)
        for m in _others(group.me, group.size):
            shares.copy_out(piece, m)
        if piece.last:
            stream.end(piece.task)


def each(context: Context) -> None:
    """Allreduce in which everyone combines all: ``direct`` for what cells hold, not a slot.

    One hop, where ``split`` takes two; between two ranks for as many bytes, among more for more.
    Pieces are shown ahead of the one that is due, so that cells need no readers' counters: who
    shows piece x has combined piece x - ahead - 1, hence all have shown that one and combined
    piece x - 2 ahead - 2, whose cell is free.
    """
    stream, cells = context.stream, _Shown.of(context)
    pieces = cut(context.tasks, cells.ring.chunk, context.element, stream.sequence)
    stream.sequence += len(pieces)
    shown = 0
    for k, piece in enumerate(pieces):
        while shown < min(len(pieces), k + 1 + cells.ahead):
            cells.show(pieces[shown])
            shown += 1
        stream.label(piece.task)
        cells.combine(piece)
        if piece.last:
            stream.end(piece.task)


@dataclass(frozen=True)
class _Shown:
    """Cells in which everyone shows all of its operand, piece by piece."""

    context: Context
    ring: Ring

    @classmethod
    def of(cls, context: Context) -> _Shown:
        """Look at the cells of the context's stream."""
        builder = context.builder
        ring = Ring.of(builder.plan, context.group.level, builder.tasks_of(context.stream))
        return cls(context, ring)

    @property
    def ahead(self) -> int:
        """How many pieces a rank shows before it has combined the one that is due."""
        return max(0, self.ring.cells // 2 - 1)

    def _cell(self, member: int, piece: Piece) -> Ref:
        group, builder = self.context.group, self.context.builder
        return builder.cells(group.level, group.slots[member]) + self.ring.cell(piece.index)

    def _flag(self, member: int) -> Ref:
        group, builder = self.context.group, self.context.builder
        return builder.flag(group.level, group.slots[member], COPIED)

    def show(self, piece: Piece) -> None:
        """Put a piece of this rank's operand into its cell."""
        context, stream, me = self.context, self.context.stream, self.context.group.me
        if piece.first:
            stream.begin(piece.task)
        stream.label(piece.task)
        stream.copy(self._cell(me, piece), context.source + piece.start, piece.nbytes)
        stream.post(self._flag(me), piece.index + 1)

    def combine(self, piece: Piece) -> None:
        """Combine a piece of everybody's operand in rank order, block by block.

        The own operand is read from its cell as well: in place the result lies over it, and is
        written before it is read among more than two; and a user's operation must see the operands
        in the same order everywhere, which MPI_Reduce_local gives only if the result is not the
        first of them.
        """
        context, group, stream = self.context, self.context.group, self.context.stream
        builder = context.builder
        operands = [self._cell(m, piece) for m in range(group.size)]
        if group.size == 2 and builder.signature.native:
            operands[group.me] = context.source + piece.start
        for m in _others(group.me, group.size):
            stream.wait(self._flag(m), piece.index + 1, group.ranks[m])
        step = max(context.element, BLOCK // context.element * context.element)
        if group.size == 2:  # nothing is combined twice
            step = max(1, piece.nbytes)
        for at in range(0, piece.nbytes, step):
            nbytes, dst = min(step, piece.nbytes - at), context.result + (piece.start + at)
            total = operands[0] + at
            for operand in operands[1:]:
                stream.reduce(dst, total, operand + at, nbytes)
                total = dst


def _others(me: int, size: int) -> list[int]:
    """Everyone else, the next one first: not all start at the same place."""
    return [(me + k) % size for k in range(1, size)]


@dataclass(frozen=True)
class _Shares:
    """Pieces split into one share a member: cells for what goes in and for what comes out."""

    context: Context
    layout: Shares
    partial: Ref  # a block that is not combined with all yet

    @classmethod
    def of(cls, context: Context) -> _Shares:
        """Look at the cells of the context's stream."""
        builder, group = context.builder, context.group
        layout = Shares.of(builder.plan, group.level, builder.tasks_of(context.stream))
        block = max(BLOCK, context.element) if group.size > 2 else 0
        return cls(context, layout, builder.scratch(block))

    def bounds(self, piece: Piece, member: int) -> tuple[int, int]:
        """The bytes of a piece that `member` combines, cut at cache lines where they fit."""
        return share(piece.nbytes, self.context.element, member, self.context.group.size)

    def _cell(self, member: int, piece: Piece, out: bool) -> Ref:
        group, builder = self.context.group, self.context.builder
        cells = builder.cells(group.level, group.slots[member])
        return cells + self.layout.cell(piece.index, out)

    def copy_in(self, piece: Piece) -> None:
        """Show what the others combine."""
        group, stream = self.context.group, self.context.stream
        cell = self._cell(group.me, piece, out=False)
        start, stop = self.bounds(piece, group.me)
        source = self.context.source + piece.start
        stream.copy(cell, source, start)
        stream.copy(cell + stop, source + stop, piece.nbytes - stop)
        flag = self.context.builder.flag(group.level, group.slots[group.me], COPIED)
        stream.post(flag, piece.index + 1)

    def combine(self, piece: Piece) -> None:
        """Combine this rank's share, block by block, into the result and a cell at once."""
        context, group = self.context, self.context.group
        start, stop = self.bounds(piece, group.me)
        step = max(context.element, BLOCK // context.element * context.element)
        if group.size == 2:  # nothing is combined twice
            step = max(1, stop - start)
        for at in range(start, stop, step) or [start]:
            self._combine_block(piece, start, at, min(step, stop - at))
        flag = context.builder.flag(group.level, group.slots[group.me], COMBINED)
        context.stream.post(flag, piece.index + 1)

    def _combine_block(self, piece: Piece, start: int, at: int, nbytes: int) -> None:
        """Combine some bytes in rank order; the share that begins at `start` holds them."""
        context, group, stream = self.context, self.context.group, self.context.stream
        shown = [self._cell(m, piece, out=False) + at for m in range(group.size)]
        shown[group.me] = context.source + piece.start + at
        for m in range(group.size):
            if m != group.me and at == start:
                flag = context.builder.flag(group.level, group.slots[m], COPIED)
                stream.wait(flag, piece.index + 1, group.ranks[m])
            a = self.partial if m > 1 else shown[0]
            if m == group.size - 1:  # the result may lie over our own operand: write it last
                cell = self._cell(group.me, piece, out=True) + (at - start)
                stream.reduce(context.result + piece.start + at, a, shown[m], nbytes, also=cell)
            elif m:
                stream.reduce(self.partial, a, shown[m], nbytes)

    def copy_out(self, piece: Piece, member: int) -> None:
        """Take another member's share."""
        context, group, stream = self.context, self.context.group, self.context.stream
        start, stop = self.bounds(piece, member)
        flag = context.builder.flag(group.level, group.slots[member], COMBINED)
        stream.wait(flag, piece.index + 1, group.ranks[member])
        target = context.result + piece.start + start
        stream.copy(target, self._cell(member, piece, out=True), stop - start)
