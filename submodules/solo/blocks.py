"""The algorithm ``blocks`` of ``solo``: receivers read blocks from the senders' buffers.

Every byte is copied once. A receiver must not overwrite data that its peers still read, so ``solo``
refuses an alltoall and a reduce-scatter in place.
"""

from __future__ import annotations

from collections.abc import Callable

from han.model.program import Base, Ref
from han.submodules.parts.cells import GATHERED, READ, RELEASED, TAKEN, Members
from han.submodules.parts.pieces import Piece
from han.submodules.solo.combine import Combiner
from han.submodules.solo.reads import Reads
from han.tasks.bundles import block_of


def _block(solo: Reads, base: Base, piece: Piece, number: int = 0) -> Ref:
    """Return where a piece of block `number` is in a send or receive buffer."""
    return block_of(Ref(base), number, solo.context.builder.signature).to(piece.start)


def _fetch(solo: Reads, piece: Piece, to: int, member: int, number: int = 0) -> None:
    """Read a piece of a member's block `number` into block `to` of the receive buffer."""
    source, dst = _block(solo, Base.SEND, piece, number), _block(solo, Base.RECV, piece, to)
    nbytes = piece.within(solo.context.builder.signature.length(to))
    if member == solo.context.group.me:
        solo.context.stream.copy(dst, source, nbytes, block=to)
    else:
        solo.pull(dst, source, nbytes, member, block=to)


def _post_and_wait(solo: Reads, piece: Piece, posts: bool, kind: int, waits: Members) -> None:
    """Before the first piece, let peers read this rank's blocks and wait until theirs are ready."""
    if piece is solo.pieces[0]:
        if posts:
            solo.post(kind, solo.last)
        solo.waits.wait(waits, kind, solo.last)


def _exchange(solo: Reads) -> None:
    """Read the block of every rank; in an alltoall, every rank's block for this rank."""
    me, signature = solo.context.group.me, solo.context.builder.signature
    number = me if signature.collective == "alltoall" else 0
    for piece in solo.turns():
        _post_and_wait(solo, piece, True, GATHERED, solo.others)
        for m in (me, *solo.others):
            _fetch(solo, piece, m, m, number)
    _leave_together(solo)


def _reduce_scatter(solo: Reads) -> None:
    """Combine every rank's block for this rank, in rank order."""
    signature, me = solo.context.builder.signature, solo.context.group.me
    combiner = Combiner.of(solo, max(piece.nbytes for piece in solo.pieces))
    for piece in solo.turns():
        _post_and_wait(solo, piece, True, GATHERED, solo.others)
        nbytes = piece.within(signature.length(me))
        combiner.combine(piece.start, nbytes, _block(solo, Base.RECV, piece), me)
    _leave_together(solo)


def _leave_together(solo: Reads) -> None:
    """Tell the peers that this rank has read all, and wait until they have read its buffer."""
    solo.post(READ, solo.last)
    solo.await_all(READ)


def _gather(solo: Reads) -> None:
    """Read the block of every rank at the root; the others wait until it has."""
    group = solo.context.group
    for piece in solo.turns():
        _post_and_wait(solo, piece, not group.leads, GATHERED, solo.others if group.leads else ())
        for m in (group.me, *solo.others) if group.leads else ():
            _fetch(solo, piece, m, m)
    if group.leads:
        solo.post(TAKEN, solo.last)
    else:
        solo.await_(group.root, TAKEN, solo.last)


def _scatter(solo: Reads) -> None:
    """Read this rank's block from the root, which waits until all ranks have read theirs."""
    group = solo.context.group
    for piece in solo.turns():
        _post_and_wait(solo, piece, group.leads, RELEASED, () if group.leads else (group.root,))
        _fetch(solo, piece, 0, group.root, group.me)
    if group.leads:
        solo.await_all(READ)
    else:
        solo.post(READ, solo.last)


BLOCKS: dict[str, Callable[[Reads], None]] = {
    "gather": _gather,
    "scatter": _scatter,
    "allgather": _exchange,
    "alltoall": _exchange,
    "reduce_scatter": _reduce_scatter,
}
