"""The algorithm ``meet`` of ``solo``: a broadcast in which the root copies too.

In ``pull`` the root is idle while the members read. Here a member reads most of each piece from the
root, and the root writes the rest into the member's memory meanwhile. All ranks copy the same
number of bytes: of two ranks, each copies half of the message. Each receiver gets every byte by one
copy.
"""

from __future__ import annotations

from han.submodules.parts.cells import COPIED, READ, RELEASED
from han.submodules.parts.pieces import Piece
from han.submodules.solo.reads import Reads
from han.tasks.shares import share


def _cut(solo: Reads, piece: Piece) -> int:
    """Return the byte of the message from which on the root writes: the last of equal shares."""
    size = len(solo.members)
    return piece.start + share(piece.nbytes, solo.context.grain, size - 1, size)[0]


def meet(solo: Reads) -> None:
    """Broadcast from the group's root, which writes a part of each piece into every member."""
    if solo.context.group.leads:
        _lead(solo)
    else:
        _follow(solo)


def _lead(solo: Reads) -> None:
    """Release a piece, then write a part of it into each member's memory, the next member first.

    The root adds one to its flag when it releases a piece, and one after each member.
    """
    context, size = solo.context, len(solo.members)
    for piece in solo.turns():
        released = piece.index * size + 1
        solo.post(RELEASED, released)
        for nth, m in enumerate(solo.others, 1):
            solo.await_(m, COPIED, solo.last)
            at = _cut(solo, piece)
            solo.push(context.result.to(at), context.source.to(at), piece.stop - at, m)
            solo.post(RELEASED, released + nth)
    solo.await_all(READ)


def _follow(solo: Reads) -> None:
    """Allow the root to write, read the rest of each piece, and wait for the root's part."""
    context, group, size = solo.context, solo.context.group, len(solo.members)
    nth = (group.me - group.root) % size
    for piece in solo.turns():
        if piece is solo.pieces[0]:
            solo.post(COPIED, solo.last)
        solo.await_(group.root, RELEASED, piece.index * size + 1)
        here, there = (ref.to(piece.start) for ref in (context.result, context.source))
        solo.pull(here, there, _cut(solo, piece) - piece.start, group.root)
        solo.await_(group.root, RELEASED, piece.index * size + 1 + nth)
    solo.post(READ, solo.last)
