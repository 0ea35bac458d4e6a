"""Gathers and releases of ``sm``: reductions and broadcasts along trees of flags.

Source: Jain et al., sections II and III.
"""

from __future__ import annotations

from collections.abc import Callable

from han.model.channel_layout import PAGE
from han.model.program import Base, Ref
from han.submodules.parts.cells import GATHERED, READ, RELEASED, TAKEN, Members
from han.submodules.parts.pieces import Piece, in_strides
from han.submodules.parts.trees import Neighbours
from han.submodules.sm.member_cells import MemberCells, neighbours_of
from han.tasks.canonical import Order, linear, rooms
from han.tasks.context import Context

Move = Callable[[Piece], None]


class _Combining:
    """Combines operands of members piece by piece; this rank is one of them.

    Members without an operand are awaited. `order` says how operands are combined, by default from
    left to right in the place of the result.
    """

    def __init__(self, cells: MemberCells, members: Members, order: Order | None = None) -> None:
        self.cells, self.stream = cells, cells.context.stream
        me = cells.context.group.me
        has_own = cells.context.source.base != Base.NONE
        found = [m for m in members if (has_own if m == me else m in cells.holders)]
        self.mine = found.index(me) if has_own else len(found)
        self.members, self.order = tuple(found), order or linear(len(found))
        self.rooms = rooms(order) if order else 0
        self.without = tuple([m for m in members if m != me and m not in cells.holders])
        self.flags, self.ranks = cells.waits.of(self.members, GATHERED)
        self._cells: dict[int, tuple[Ref, ...]] = {}

    def emit(self, piece: Piece, dst: Ref, own: Ref) -> None:
        """Combine a piece of all operands into `dst`; wait for that of each in turn."""
        value, mine, stream = self.cells.value(piece, GATHERED), self.mine, self.stream
        self.cells.waits.wait(self.without, GATHERED, value)
        cells = self._cells.get(piece.index % self.cells.ring.cells) or self._of(piece)
        if cells:
            partials = [stream.room(piece.nbytes, k) for k in range(self.rooms)]
            stream.fold_each(
                dst, (*cells[:mine], own, *cells[mine + 1 :]) if mine < len(cells) else cells, mine,
                piece.start, piece.nbytes, self.order, tuple(partials) or (dst,),
                (self.flags, value, self.ranks), None,
            )  # fmt: skip

    def _of(self, piece: Piece) -> tuple[Ref, ...]:
        """Return the cells where members bring `piece`, the same for all pieces of one cell."""
        found = tuple([self.cells.cell(m, piece) for m in self.members])
        self._cells[piece.index % self.cells.ring.cells] = found
        return found


def gather(context: Context) -> None:
    """Reduce towards the group's root: children copy into their cells, parents combine."""
    stream, group, cells = context.stream, context.group, MemberCells.of(context)
    tree = neighbours_of(context)
    pieces = cells.pieces()
    combine = (_at_root if tree.parent is None else _below)(context, cells, tree)
    taken = cells.flag(group.me, TAKEN) if tree.children and cells.counts_reads else None
    for piece in in_strides(context, pieces, cells.alike):
        combine(piece)
        if taken is not None:
            stream.post(taken, piece.index + 1)
        if tree.parent is not None and cells.trailing:
            until = cells.read_before_end(piece, piece is pieces[-1])
            cells.waits.wait((tree.parent,), TAKEN, until)


def _below(context: Context, cells: MemberCells, tree: Neighbours) -> Move:
    """Return what combines a piece into this rank's cell, for its parent."""
    assert tree.parent is not None
    stream, source, me = context.stream, context.source, context.group.me
    combining, flag = _Combining(cells, (me, *tree.children)), cells.flag(me, GATHERED)
    taken, rank = cells.flag(tree.parent, TAKEN), context.group.ranks[tree.parent]

    def combine(piece: Piece) -> None:
        before = cells.read_before_reuse(piece)
        if before:
            stream.wait(taken, before, rank)
        combining.emit(piece, cells.cell(me, piece), source.to(piece.start))
        stream.post(flag, cells.value(piece, GATHERED))

    return combine


def _room(context: Context, cells: MemberCells) -> Ref | None:
    """Return where the root combines if not in its receive buffer (Jain et al., section III-E)."""
    if not context.group.leads or context.choice.get("in_recv", 1):
        return None
    most = max(task.nbytes for task in context.tasks)
    return context.stream.room(min(most, PAGE if cells.small else cells.ring.chunk))


def _at_root(context: Context, cells: MemberCells, tree: Neighbours) -> Move:
    """Return what combines a piece into the result.

    In a flat tree members are combined in the canonical order, if this is asked for. Otherwise, if
    the operation does not commute, the children before the root in rank order come first.
    """
    signature, me = context.builder.signature, context.group.me
    before = tuple([c for c in tree.children if c < me])
    room = _room(context, cells)
    room = room if cells.holders else None
    canonical = signature.canonical and context.choice.algorithm == "flat"
    apart = bool(before) and not (canonical or signature.commutative)
    together = tuple([c for c in tree.children if c > me]) if apart else tree.children
    combining = _Combining(cells, (me, *together))
    if canonical:
        combining = _Combining(cells, tuple(range(context.group.size)), context.order)
    stream, result, source = context.stream, context.result, context.source

    def combine(piece: Piece) -> None:
        own, final = source.to(piece.start), result.to(piece.start)
        dst = final if room is None else room.holding(piece.start)
        if apart:
            left = _combine_before(context, cells, piece, before)
            stream.reduce(dst, left, own, piece.nbytes)
            own = dst
        combining.emit(piece, dst, own)
        if room is not None:
            stream.copy(final, dst, piece.nbytes)

    return combine


def _combine_before(context: Context, cells: MemberCells, piece: Piece, members: Members) -> Ref:
    """Combine the children before the root; return where their combination is.

    It cannot be where the result goes, since in place the root's operand is there.
    """
    stream = context.stream
    left = cells.cell(members[0], piece)
    cells.waits.wait(members, GATHERED, cells.value(piece, GATHERED))
    if len(members) == 1:
        return left
    spare = stream.room(piece.nbytes, "spare").holding(piece.start)
    for k, c in enumerate(members[1:]):
        stream.reduce(spare, spare if k else left, cells.cell(c, piece), piece.nbytes)
    return spare


def release(context: Context) -> None:
    """Broadcast from the group's root: it copies into its cells, and all others copy out."""
    stream, group, cells = context.stream, context.group, MemberCells.of(context)
    tree = neighbours_of(context)
    pieces = cells.pieces()
    move = (_put if tree.parent is None else _take)(context, cells, tree)
    others = tuple([m for m in range(group.size) if m != group.root])
    waits = tree.parent is None and cells.counts_reads
    readers, ranks = cells.waits.of(others, READ) if waits else ((), ())
    read = cells.flag(group.me, READ) if tree.parent is not None and cells.counts_reads else None
    for piece in in_strides(context, pieces, cells.alike):
        before = cells.read_before_reuse(piece) if waits else 0
        if before:
            stream.wait_each(readers, before, ranks)
        move(piece)
        if waits and cells.trailing:
            cells.waits.wait(others, READ, cells.read_before_end(piece, piece is pieces[-1]))
        elif read is not None:
            stream.post(read, piece.index + 1)


def _put(context: Context, cells: MemberCells, tree: Neighbours) -> Move:
    """Return what copies the root's piece into its cell, or the small slots of its children.

    It releases them.
    """
    stream, source, me = context.stream, context.source, context.group.me
    release_children, to_slots = _releasing(context, cells, tree), cells.small and cells.to_children

    def put(piece: Piece) -> None:
        data = source.to(piece.start)
        if not to_slots:
            stream.copy(cells.cell(me, piece), data, piece.nbytes)
        release_children(piece, data)

    return put


def _releasing(
    context: Context, cells: MemberCells, tree: Neighbours
) -> Callable[[Piece, Ref], None]:
    """Return what posts this rank's flag, or that of each child.

    It copies a small message to each child first.
    """
    stream = context.stream
    flags = [cells.flag(context.group.me, RELEASED)]
    if cells.to_children:
        flags = [cells.own_flag(child) for child in tree.children]
    to_slots = cells.small and cells.to_children

    def release_children(piece: Piece, data: Ref) -> None:
        value = cells.value(piece, RELEASED)
        for number, flag in enumerate(flags):
            if to_slots:
                stream.copy(cells.cell(tree.children[number], piece), data, piece.nbytes)
            stream.post(flag, value)

    return release_children


def _take(context: Context, cells: MemberCells, tree: Neighbours) -> Move:
    """Return what waits until a piece is released, releases the children, and copies it out."""
    stream, group, result = context.stream, context.group, context.result
    assert tree.parent is not None
    flag, rank = cells.flag(tree.parent, RELEASED), group.ranks[tree.parent]
    holder = tree.parent if cells.small else group.root
    if cells.to_children:
        flag, holder = cells.own_flag(group.me), group.me if cells.small else holder
    release_children = _releasing(context, cells, tree) if tree.children else None
    copies = cells.small and not cells.to_children  # the children read this rank's small slot

    def take(piece: Piece) -> None:
        source = cells.cell(holder, piece)
        stream.wait(flag, cells.value(piece, RELEASED), rank)
        if release_children is not None:
            if copies:
                stream.copy(cells.cell(group.me, piece), source, piece.nbytes)
            release_children(piece, source)
        stream.copy(result.to(piece.start), source, piece.nbytes)

    return take
