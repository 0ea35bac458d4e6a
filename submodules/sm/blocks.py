"""The algorithm ``blocks`` of ``sm``: every block goes from its sender to its receiver in one hop.

A sender copies a piece of each block into its cells, and receivers copy their pieces out: two
copies a byte. A rank copies its block for itself directly.

Source: Jain et al., section III (cells, pipelining, inlining), for collectives without a tree.
"""

from __future__ import annotations

from collections.abc import Callable

from han.submodules.parts.blocks import Blocks
from han.submodules.parts.cells import GATHERED, READ, RELEASED, TAKEN
from han.submodules.parts.pieces import Piece
from han.tasks.context import Context

BLOCK = 16 * 1024  # what is combined so far stays in the nearest cache
Move = Callable[[Blocks, Piece], None]


def blocks(context: Context) -> None:
    """Emit this rank's operations for the context's tasks."""
    kind, mine = context.tasks[0].kind, Blocks.of(context)
    if kind in ALL_TO_ALL:
        _all_to_all(mine, *ALL_TO_ALL[kind])
        return
    at_root, elsewhere = AT_ROOT[kind]
    move = at_root if context.group.leads else elsewhere
    for piece in mine.pieces():
        if piece.first:
            context.stream.begin(piece.task)
        move(mine, piece)
        if piece.last:
            context.stream.end(piece.task)


# ---- all to all ---------------------------------------------------------------------------------


def _all_to_all(mine: Blocks, show: Move, take: Move) -> None:
    """Show some pieces ahead of the one that is taken; see :attr:`Layout.ahead`."""
    stream, pieces = mine.context.stream, mine.pieces()
    shown = 0
    for k, piece in enumerate(pieces):
        while shown < min(len(pieces), k + 1 + mine.layout.ahead):
            following = pieces[shown]
            _turn_to(mine, following)
            show(mine, following)
            shown += 1
        stream.label(piece.task)
        take(mine, piece)
        if piece.last:
            stream.end(piece.task)


def _turn_to(mine: Blocks, piece: Piece) -> None:
    if piece.first:
        mine.context.stream.begin(piece.task)
    mine.context.stream.label(piece.task)


def _show_one(mine: Blocks, piece: Piece) -> None:
    """Show the one block that all others want."""
    stream, own, nbytes = mine.context.stream, mine.source(piece), mine.nbytes(piece, mine.me)
    stream.copy(mine.shown(mine.me, piece), own, nbytes)
    mine.tell(GATHERED, piece.index + 1)
    stream.copy(mine.result(piece, mine.me), own, nbytes)


def _show_parts(mine: Blocks, piece: Piece) -> None:
    """Show every other rank its block."""
    for m in mine.others:
        target = mine.shown(mine.me, piece, m)
        mine.context.stream.copy(target, mine.source(piece, m), mine.nbytes(piece, m))
    mine.tell(GATHERED, piece.index + 1)


def _take_blocks(mine: Blocks, piece: Piece) -> None:
    """Copy everybody's block."""
    for m in mine.others:
        mine.wait(m, GATHERED, piece.index + 1)
        nbytes = mine.nbytes(piece, m)
        mine.context.stream.copy(mine.result(piece, m), mine.shown(m, piece), nbytes)


def _take_parts(mine: Blocks, piece: Piece) -> None:
    """Copy what everybody has for this rank, itself included."""
    stream, me = mine.context.stream, mine.me
    stream.copy(mine.result(piece, me), mine.source(piece, me), piece.nbytes)
    for m in mine.others:
        mine.wait(m, GATHERED, piece.index + 1)
        stream.copy(mine.result(piece, m), mine.shown(m, piece, me), piece.nbytes)


def _combine_parts(mine: Blocks, piece: Piece) -> None:
    """Combine what everybody has for this rank, in rank order.

    In place, the result lies over a piece that was shown before; over the own operand only at
    rank 0, where that is the first one. Blocks of different sizes are never in place here.
    """
    context, group = mine.context, mine.context.group
    for m in mine.others:
        mine.wait(m, GATHERED, piece.index + 1)
    operands = [mine.shown(m, piece, mine.me) for m in range(group.size)]
    operands[mine.me] = mine.source(piece, mine.me)
    dst, length = mine.result(piece), mine.nbytes(piece, mine.me)
    step = max(context.element, BLOCK // context.element * context.element)
    for at in range(0, length, step):
        nbytes, total = min(step, length - at), operands[0] + at
        for operand in operands[1:]:
            context.stream.reduce(dst + at, total, operand + at, nbytes)
            total = dst + at


ALL_TO_ALL: dict[str, tuple[Move, Move]] = {
    "allgather": (_show_one, _take_blocks),
    "alltoall": (_show_parts, _take_parts),
    "reduce_scatter": (_show_parts, _combine_parts),
}


# ---- to and from a root -------------------------------------------------------------------------


def _hand_in(mine: Blocks, piece: Piece) -> None:
    """Show a block to the root, once the cell's last piece is taken."""
    if mine.reused(piece):
        mine.wait(mine.context.group.root, TAKEN, mine.reused(piece))
    mine.context.stream.copy(mine.shown(mine.me, piece), mine.source(piece), piece.nbytes)
    mine.tell(GATHERED, piece.index + 1)


def _collect(mine: Blocks, piece: Piece) -> None:
    """Copy everybody's block at the root."""
    own = mine.source(piece)
    mine.context.stream.copy(mine.result(piece, mine.me), own, piece.nbytes)
    _take_blocks(mine, piece)
    if mine.layout.recycled:
        mine.tell(TAKEN, piece.index + 1)


def _hand_out(mine: Blocks, piece: Piece) -> None:
    """Show everybody a block at the root, once all have read the cell's last piece."""
    for m in mine.others if mine.reused(piece) else ():
        mine.wait(m, READ, mine.reused(piece))
    for m in mine.others:
        source = mine.source(piece, m)
        mine.context.stream.copy(mine.shown(mine.me, piece, m), source, piece.nbytes)
    mine.tell(RELEASED, piece.index + 1)
    own = mine.source(piece, mine.me)
    mine.context.stream.copy(mine.result(piece), own, piece.nbytes)


def _fetch(mine: Blocks, piece: Piece) -> None:
    """Copy this rank's block from the root's cells."""
    root = mine.context.group.root
    mine.wait(root, RELEASED, piece.index + 1)
    source = mine.shown(root, piece, mine.me)
    mine.context.stream.copy(mine.result(piece), source, piece.nbytes)
    if mine.layout.recycled:
        mine.tell(READ, piece.index + 1)


AT_ROOT: dict[str, tuple[Move, Move]] = {  # at the root, elsewhere
    "gather": (_collect, _hand_in),
    "scatter": (_hand_out, _fetch),
}
KINDS = (*ALL_TO_ALL, *AT_ROOT)
