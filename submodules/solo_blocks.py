"""The algorithm ``blocks`` of ``solo``: blocks are read from where their senders have them.

One copy a byte. Only collectives whose receivers write nothing that others still read, also in
place: an alltoall's and a reduce-scatter's do.
"""

from __future__ import annotations

from collections.abc import Callable

from han.program import Base, Ref
from han.submodules.cells import GATHERED, READ, RELEASED, TAKEN
from han.submodules.pieces import Piece
from han.submodules.solo_reads import Reads


def _block(solo: Reads, base: Base, piece: Piece, number: int = 0) -> Ref:
    """A piece of a block in a rank's own buffer."""
    nbytes = solo.context.builder.signature.nbytes
    return Ref(base, number * nbytes + piece.start)


def _fetch(solo: Reads, piece: Piece, to: int, member: int, number: int = 0) -> None:
    """Put a piece of a member's block `number` into block `to` of the receive buffer."""
    source, dst = _block(solo, Base.SEND, piece, number), _block(solo, Base.RECV, piece, to)
    if member == solo.context.group.me:
        solo.context.stream.copy(dst, source, piece.nbytes)
    else:
        solo.pull(dst, source, piece.nbytes, member)


def _tell_or_wait(solo: Reads, piece: Piece, tells: bool, kind: int, waits: list[int]) -> None:
    """Before the first piece: say that this rank's blocks may be read, hear that others' may."""
    solo.begin(piece)
    if piece is solo.pieces[0]:
        if tells:
            solo.tell(kind, solo.last)
        for m in waits:
            solo.await_(m, kind, solo.last)


def _allgather(solo: Reads) -> None:
    """Read everybody's block."""
    me = solo.context.group.me
    for piece in solo.pieces:
        _tell_or_wait(solo, piece, True, GATHERED, solo.others)
        for m in (me, *solo.others):
            _fetch(solo, piece, m, m)
        solo.end(piece)
    solo.tell(READ, solo.last)
    solo.await_all(READ)


def _gather(solo: Reads) -> None:
    """Read everybody's block at the root; the others wait until it has."""
    group = solo.context.group
    for piece in solo.pieces:
        _tell_or_wait(solo, piece, not group.leads, GATHERED, solo.others if group.leads else [])
        for m in (group.me, *solo.others) if group.leads else ():
            _fetch(solo, piece, m, m)
        solo.end(piece)
    if group.leads:
        solo.tell(TAKEN, solo.last)
    else:
        solo.await_(group.root, TAKEN, solo.last)


def _scatter(solo: Reads) -> None:
    """Read a block from the root, which waits until all have."""
    group = solo.context.group
    for piece in solo.pieces:
        _tell_or_wait(solo, piece, group.leads, RELEASED, [] if group.leads else [group.root])
        _fetch(solo, piece, 0, group.root, group.me)
        solo.end(piece)
    if group.leads:
        solo.await_all(READ)
    else:
        solo.tell(READ, solo.last)


BLOCKS: dict[str, Callable[[Reads], None]] = {
    "gather": _gather,
    "scatter": _scatter,
    "allgather": _allgather,
}
