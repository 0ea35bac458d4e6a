"""Gathers and releases of ``sm``: reductions and broadcasts along trees of flags.

Source: Jain et al., sections II and III.
"""

from __future__ import annotations

from han.model.channel_layout import PAGE
from han.model.program import Base
from han.submodules.parts.cells import GATHERED, READ, RELEASED, TAKEN, Members
from han.submodules.parts.series import Place, Row
from han.submodules.parts.trees import Neighbours
from han.submodules.sm.member_cells import MemberCells, neighbours_of
from han.tasks.canonical import Order, linear, rooms
from han.tasks.context import Context


def gather(context: Context) -> None:
    """Reduce towards the group's root: children copy into their cells, parents combine."""
    stream, group, cells = context.stream, context.group, MemberCells.of(context)
    tree = neighbours_of(context)
    rows: list[Row] = [(stream, "begin", 0)]
    rows += (_at_root if tree.parent is None else _below)(cells, tree)
    if tree.children and cells.counts_reads:
        rows.append((stream, "post", 0, cells.flag(group.me, TAKEN), 1, 1))
    cells.series.emit([*rows, (stream, "end", 0)])
    if tree.parent is not None:
        cells.trail((tree.parent,), TAKEN)


def _below(cells: MemberCells, tree: Neighbours) -> list[Row]:
    """Combine a piece into this rank's cell, for its parent."""
    assert tree.parent is not None
    context, me = cells.context, cells.context.group.me
    return [
        *cells.await_reuse((tree.parent,), TAKEN),
        *_combine(cells, (me, *tree.children), cells.places(me), context.source),
        (context.stream, "post", 0, cells.flag(me, GATHERED), *cells.count(GATHERED)),
    ]


def _at_root(cells: MemberCells, tree: Neighbours) -> list[Row]:
    """Combine a piece into the result.

    In a flat tree members are combined in the canonical order, if this is asked for. Otherwise, if
    the operation does not commute, the children before the root in rank order come first.
    """
    context, me = cells.context, cells.context.group.me
    signature, stream, own = context.builder.signature, context.stream, context.source
    before = tuple([c for c in tree.children if c < me])
    room = _room(cells)
    dst: Place = room or context.result
    rows: list[Row] = []
    if signature.canonical and context.choice.algorithm == "flat":
        rows += _combine(cells, tuple(range(context.group.size)), dst, own, context.order)
    elif before and not signature.commutative:
        behind = [c for c in tree.children if c > me]
        left, combined = _combine_before(cells, before)
        rows += [*combined, (stream, "reduce", 0, dst, left, own)]
        rows += _combine(cells, (me, *behind), dst, dst)
    else:
        rows += _combine(cells, (me, *tree.children), dst, own)
    return rows if room is None else [*rows, (stream, "copy", 0, context.result, room)]


def _room(cells: MemberCells) -> Place | None:
    """Return where the root combines if not in its receive buffer (Jain et al., section III-E)."""
    context = cells.context
    if not context.group.leads or context.choice.get("in_recv", 1):
        return None
    most = max(task.nbytes for task in context.tasks)
    room = context.stream.room(min(most, PAGE if cells.small else cells.ring.chunk))
    return (room,) if cells.holders else None


def _combine(
    cells: MemberCells, members: Members, dst: Place, own: Place, order: Order | None = None
) -> list[Row]:
    """Combine a piece of the members' operands into `dst`; wait for that of each in turn.

    This rank is one of them. Members without an operand are awaited. `order` says how operands are
    combined, by default from left to right in the place of the result.
    """
    context, me, most = cells.context, cells.context.group.me, cells.series.most
    has_own, count = context.source.base != Base.NONE, cells.count(GATHERED)
    found = tuple([m for m in members if (has_own if m == me else m in cells.holders)])
    without = tuple([m for m in members if m != me and m not in cells.holders])
    rows = cells.await_flags(without, GATHERED, *count)
    if found:
        partials = [context.stream.room(most, k) for k in range(rooms(order) if order else 0)]
        operands = tuple(zip(*[cells.places(m) for m in found], strict=True))
        how = found.index(me) if has_own else len(found), order or linear(len(found))
        waits = cells.waits.of(found, GATHERED)
        rows.append((context.stream, "fold", 0, dst, own, operands, *how, tuple(partials), *waits,
                     *count))  # fmt: skip
    return rows


def _combine_before(cells: MemberCells, members: Members) -> tuple[Place, list[Row]]:
    """Combine the children before the root; return where, and how.

    It cannot be where the result goes, since in place the root's operand is there.
    """
    stream, left = cells.context.stream, cells.places(members[0])
    rows = cells.await_flags(members, GATHERED, *cells.count(GATHERED))
    if len(members) == 1:
        return left, rows
    spare = (stream.room(cells.series.most, "spare"),)
    for k, c in enumerate(members[1:]):
        rows.append((stream, "reduce", 0, spare, spare if k else left, cells.places(c)))
    return spare, rows


def release(context: Context) -> None:
    """Broadcast from the group's root: it copies into its cells, and all others copy out."""
    stream, group, cells = context.stream, context.group, MemberCells.of(context)
    tree = neighbours_of(context)
    others = tuple([m for m in range(group.size) if m != group.root])
    rows: list[Row] = [(stream, "begin", 0)]
    rows += (_put if tree.parent is None else _take)(cells, tree, others)
    cells.series.emit([*rows, (stream, "end", 0)])
    if tree.parent is None:
        cells.trail(others, READ)


def _put(cells: MemberCells, tree: Neighbours, others: Members) -> list[Row]:
    """Copy the root's piece into its cell, or the small slots of its children, and release them."""
    context = cells.context
    rows = cells.await_reuse(others, READ) if cells.counts_reads else []
    if not (cells.small and cells.to_children):
        me = context.group.me
        rows.append((context.stream, "copy", 0, cells.places(me), context.source))
    return rows + _release_children(cells, tree, context.source)


def _release_children(cells: MemberCells, tree: Neighbours, data: Place) -> list[Row]:
    """Post this rank's flag, or that of each child; copy a small message to each child first."""
    stream, count, rows = cells.context.stream, cells.count(RELEASED), list[Row]()
    if not cells.to_children:
        return [(stream, "post", 0, cells.flag(cells.context.group.me, RELEASED), *count)]
    for child in tree.children:
        if cells.small:
            rows.append((stream, "copy", 0, cells.places(child), data))
        rows.append((stream, "post", 0, cells.own_flag(child), *count))
    return rows


def _take(cells: MemberCells, tree: Neighbours, others: Members) -> list[Row]:
    """Wait until a piece is released, release the children, and copy it out."""
    context, stream, me = cells.context, cells.context.stream, cells.context.group.me
    assert tree.parent is not None
    flag, rank = cells.flag(tree.parent, RELEASED), context.group.ranks[tree.parent]
    holder = tree.parent if cells.small else context.group.root
    if cells.to_children:
        flag, holder = cells.own_flag(me), me if cells.small else holder
    source = cells.places(holder)
    rows: list[Row] = [(stream, "wait", 0, (flag,), (rank,), *cells.count(RELEASED))]
    if tree.children:
        if cells.small and not cells.to_children:  # the children read this rank's small slot
            rows.append((stream, "copy", 0, cells.places(me), source))
        rows += _release_children(cells, tree, source)
    rows.append((stream, "copy", 0, context.result, source))
    if cells.counts_reads:
        rows.append((stream, "post", 0, cells.flag(me, READ), 1, 1))
    return rows
