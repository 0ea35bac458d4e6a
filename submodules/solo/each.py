"""The algorithm ``each`` of ``solo``: an allreduce in which every member combines everything.

What ``split`` reads twice, operands and then results, is read once here: the second time lines are
still in the cache of who has just written them, and have to come from there. More is combined
instead, so that it serves few members. A member combines a piece when all others have read its own
operand of it, which it may overwrite then, and reads the next piece before: two rooms take turns.
"""

from __future__ import annotations

from han.model.program import Ref
from han.submodules.parts.cells import COPIED, TAKEN
from han.submodules.parts.pieces import Piece
from han.submodules.solo.reads import Reads

Rooms = dict[int, tuple[Ref, Ref]]  # of every other member, for its operand


def each(solo: Reads) -> None:
    """Read everybody's operands a piece ahead, and combine them."""
    rooms, before = _rooms(solo), None
    for piece in solo.pieces:
        _read(solo, piece, rooms)
        if before is not None:
            _combine(solo, before, rooms)
        before = piece
    assert before is not None, "a task has a piece"
    _combine(solo, before, rooms)


def _rooms(solo: Reads) -> Rooms:
    size = max(piece.nbytes for piece in solo.pieces)
    scratch = solo.context.builder.scratch
    return {m: (scratch(size), scratch(size)) for m in solo.others}


def _read(solo: Reads, piece: Piece, rooms: Rooms) -> None:
    """Read a piece of the others' operands, and say that it is read."""
    solo.begin(piece)
    solo.tell(COPIED, piece.index + 1)
    for m in solo.others:
        solo.await_(m, COPIED, piece.index + 1)
        solo.pull(rooms[m][piece.index % 2], solo.operand(m) + piece.start, piece.nbytes, m)
    solo.tell(TAKEN, piece.index + 1)


def _combine(solo: Reads, piece: Piece, rooms: Rooms) -> None:
    """Combine a piece in the order of members, once nobody reads this member's operand of it."""
    context, nbytes = solo.context, piece.nbytes
    for m in solo.others:
        solo.await_(m, TAKEN, piece.index + 1)
    mine = context.source + piece.start
    total, *others, last = (
        mine if m == context.group.me else rooms[m][piece.index % 2] for m in solo.members
    )
    for operand in others:
        target = operand if total == mine else total
        context.stream.reduce(target, total, operand, nbytes)
        total = target
    context.stream.reduce(context.result + piece.start, total, last, nbytes)
    solo.end(piece)
