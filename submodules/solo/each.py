"""The algorithm ``each`` of ``solo``: an allreduce in which every member combines all operands.

A member reads its peers once, for their operands. In ``split`` it reads them a second time, for
their results, which then come from the cache of the peer that has just written them. In return, a
member combines more bytes here, so this algorithm suits few members.

A member combines a piece after all peers have read its operand of that piece, which the result may
overwrite. It reads the next piece before, so it has two buffers for each peer, used in turn.
"""

from __future__ import annotations

from functools import partial

from han.model.program import Ref
from han.submodules.parts.cells import COPIED, TAKEN
from han.submodules.parts.pieces import Piece, show_ahead
from han.submodules.solo.reads import Reads

Rooms = dict[int, tuple[Ref, Ref]]  # two buffers for the operand of each other member


def each(solo: Reads) -> None:
    """Read the operands of all peers one piece ahead, and combine them."""
    rooms = _rooms(solo)
    for piece in show_ahead(solo.context, solo.pieces, 1, partial(_read, solo, rooms)):
        _combine(solo, rooms, piece)


def _rooms(solo: Reads) -> Rooms:
    size = max(piece.nbytes for piece in solo.pieces)
    scratch = solo.context.builder.scratch
    return {m: (scratch(size), scratch(size)) for m in solo.others}


def _read(solo: Reads, rooms: Rooms, piece: Piece) -> None:
    """Read a piece of the operands of all peers, and post that it has been read."""
    solo.post(COPIED, piece.index + 1)
    for m in solo.others:
        solo.await_(m, COPIED, piece.index + 1)
        room = rooms[m][piece.index % 2].holding(piece.start)
        solo.pull(room, solo.operand(m).to(piece.start), piece.nbytes, m)
    solo.post(TAKEN, piece.index + 1)


def _combine(solo: Reads, rooms: Rooms, piece: Piece) -> None:
    """Combine a piece, after all peers have read this member's operand of it.

    Partial results are where one of their operands was read.
    """
    context, nbytes = solo.context, piece.nbytes
    solo.await_all(TAKEN, piece.index + 1)
    mine = context.source.to(piece.start)
    stack: list[Ref] = []
    for m, combinations in zip(solo.members, context.order, strict=True):
        here = m == context.group.me
        stack.append(mine if here else rooms[m][piece.index % 2].holding(piece.start))
        for _ in range(combinations):
            right, left = stack.pop(), stack.pop()
            target = right if left == mine else left
            if m == solo.members[-1] and not stack:
                target = context.result.to(piece.start)
            context.stream.reduce(target, left, right, nbytes)
            stack.append(target)
