"""The algorithm ``meet`` of ``solo``: a broadcast in which the root works too.

Whoever pulls alone leaves the root idle. Here a member reads most of each piece from the root, and
the root writes the rest into the member's memory meanwhile, so that all ranks copy equally much:
between two ranks each copies half of the message. One copy a byte and receiver.
"""

from __future__ import annotations

from han.submodules.parts.cells import COPIED, READ, RELEASED
from han.submodules.parts.pieces import Piece, share
from han.submodules.solo.reads import Reads


def _cut(solo: Reads, piece: Piece) -> int:
    """Where the part of a piece begins that the root writes: its share of the work."""
    size = len(solo.members)
    return share(piece.nbytes, solo.context.element, size - 1, size)[0]


def meet(solo: Reads) -> None:
    """Read from the root what it does not write; it waits until all have, they until it has."""
    if solo.context.group.leads:
        _lead(solo)
    else:
        _follow(solo)


def _lead(solo: Reads) -> None:
    """Release a piece, then write a part of it into each member's memory, in their order.

    The flag counts that: one for the release of a piece, and one for each member.
    """
    context, size = solo.context, len(solo.members)
    for piece in solo.pieces:
        solo.begin(piece)
        told = piece.index * size + 1
        solo.tell(RELEASED, told)
        for nth, m in enumerate(solo.others, 1):
            solo.await_(m, COPIED, solo.last)
            at = piece.start + _cut(solo, piece)
            solo.push(context.result + at, context.source + at, piece.stop - at, m)
            solo.tell(RELEASED, told + nth)
        solo.end(piece)
    solo.await_all(READ)


def _follow(solo: Reads) -> None:
    """Let the root write, read the rest, and wait for what it writes."""
    context, group, size = solo.context, solo.context.group, len(solo.members)
    nth = (group.me - group.root) % size
    for piece in solo.pieces:
        solo.begin(piece)
        if piece is solo.pieces[0]:
            solo.tell(COPIED, solo.last)
        solo.await_(group.root, RELEASED, piece.index * size + 1)
        at = context.source + piece.start
        solo.pull(context.result + piece.start, at, _cut(solo, piece), group.root)
        solo.await_(group.root, RELEASED, piece.index * size + 1 + nth)
        solo.end(piece)
    solo.tell(READ, solo.last)
