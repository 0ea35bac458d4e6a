"""The algorithm ``blocks`` of ``sm``: each block goes from its sender straight to its receiver.

A sender copies a piece of each block into its cells, and receivers copy their pieces out. So every
byte is copied twice. A rank copies its block for itself directly. In an allgather some blocks may
travel as messages instead (:mod:`han.submodules.parts.offload`).

Source: Jain et al., section III (cells, pipelining, inlining), for collectives without a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from han.model.program import Ref
from han.submodules.parts.blocks import Blocks
from han.submodules.parts.cells import GATHERED, READ, RELEASED, TAKEN
from han.submodules.parts.fold import step_of
from han.submodules.parts.lots import Lot
from han.submodules.parts.mail import MOST
from han.submodules.parts.offload import Letter
from han.submodules.parts.pieces import Piece, cut, in_turn, show_ahead
from han.submodules.sm.bundles import give_and_take
from han.tasks.canonical import rooms
from han.tasks.context import Context
from han.tasks.graph import Task

Move = Callable[[Blocks, Piece], None]


def blocks(context: Context) -> None:
    """Emit this rank's copies and reductions of blocks for the context's tasks."""
    if context.moves is not None:
        give_and_take(context)
        return
    kind, mine = context.tasks[0].kind, Blocks.of(context)
    if kind in ALL_TO_ALL:
        _all_to_all(mine, *ALL_TO_ALL[kind])
        return
    at_root, elsewhere = AT_ROOT[kind]
    move = at_root if context.group.leads else elsewhere
    for piece in in_turn(context, mine.pieces()):
        move(mine, piece)


# ---- all to all ---------------------------------------------------------------------------------


def _all_to_all(mine: Blocks, show: Move, take: Move) -> None:
    """Show pieces and take those of all peers; `BlockCells.ahead` says how far ahead."""
    stream = mine.context.stream

    def shown(piece: Piece) -> None:
        stream.label(piece.task)
        show(mine, piece)

    for piece in show_ahead(mine.context, mine.pieces(), mine.layout.ahead, shown):
        stream.label(piece.task)
        take(mine, piece)


def _show_one(mine: Blocks, piece: Piece) -> None:
    """Show this rank's block, which all peers receive."""
    stream, own, nbytes = mine.context.stream, mine.source(piece), mine.nbytes(piece, mine.me)
    if mine.offload.copied:
        stream.copy(mine.shown(mine.me, piece), own, nbytes, block=mine.me)
    mine.post(GATHERED, piece.index + 1)
    stream.copy(mine.result(piece, mine.me), own, nbytes, block=mine.me)


def _show_parts(mine: Blocks, piece: Piece) -> None:
    """Show a block for every peer."""
    stream, cells, start = mine.context.stream, mine.own_cells(piece), piece.start
    for m in mine.context.others:
        source, nbytes = mine.sources[m].to(start), mine.nbytes(piece, m)
        stream.copy(cells[m].holding(start), source, nbytes, block=m)
    mine.post(GATHERED, piece.index + 1)


def _take_blocks(mine: Blocks, piece: Piece) -> None:
    """Copy the block of every peer, unless it comes as a message."""
    stream, shown, offload = mine.context.stream, piece.index + 1, mine.offload
    for m, flag, rank in mine.shows:
        stream.wait(flag, shown, rank)
        if m not in offload.sources:
            result, nbytes = mine.results[m].to(piece.start), mine.nbytes(piece, m)
            stream.copy(result, mine.shown(m, piece), nbytes, block=m)
    if piece.last:
        offload.carry_out(piece.task, _received(mine, piece.task), _sent(mine, piece.task))


def _received(mine: Blocks, task: Task) -> Iterator[Letter]:
    """Yield the blocks of a task that come as messages."""
    for piece in cut((task,), MOST, mine.context.grain):
        for m in mine.offload.sources:
            yield _letter(mine, m, m, mine.results[m], piece)


def _sent(mine: Blocks, task: Task) -> Iterator[Letter]:
    """Yield this rank's block of a task for each member that gets it as a message."""
    for piece in cut((task,), MOST, mine.context.grain):
        for m in mine.offload.targets:
            yield _letter(mine, m, mine.me, mine.context.source, piece)


def _letter(mine: Blocks, member: int, block: int, begin: Ref, piece: Piece) -> Letter:
    lot = Lot((block,), False, piece.start, piece.stop)
    place = begin.to(min(piece.start, mine.signature.length(block)))
    return Letter(member, place, mine.nbytes(piece, block), lot, {"block": block, "count": 0})


def _take_parts(mine: Blocks, piece: Piece) -> None:
    """Copy every rank's block for this rank, its own included."""
    stream, me, start = mine.context.stream, mine.me, piece.start
    results, operands = mine.results, mine.operands(piece)
    stream.copy(results[me].to(start), operands[me].to(start), piece.nbytes)
    for m, flag, rank in mine.shows:
        stream.wait(flag, piece.index + 1, rank)
        stream.copy(results[m].to(start), operands[m].holding(start), piece.nbytes)


def _combine_parts(mine: Blocks, piece: Piece) -> None:
    """Combine every rank's block for this rank, in the order of operands.

    In place, the result overlays block 0 of this rank's buffer. A piece of that block has been
    shown to rank 0 before it is overwritten. At rank 0 it is the own operand, which is combined
    first. Blocks of different sizes are never in place here.
    """
    context = mine.context
    mine.wait_for_all(piece)
    operands = mine.operands(piece)
    dst, length = mine.result(piece), mine.nbytes(piece, mine.me)
    step = step_of(context.grain)
    order = context.order
    places = [context.stream.room(step, k) for k in range(1, rooms(order))]
    for at in range(piece.start, piece.start + length, step):
        nbytes, result = min(step, piece.start + length - at), dst.to(at)
        context.stream.fold_each(
            result, operands, mine.me, piece.start, nbytes, order, (result, *places), None, None,
            mine.me,
        )  # fmt: skip


ALL_TO_ALL: dict[str, tuple[Move, Move]] = {
    "allgather": (_show_one, _take_blocks),
    "alltoall": (_show_parts, _take_parts),
    "reduce_scatter": (_show_parts, _combine_parts),
}


# ---- to and from a root -------------------------------------------------------------------------


def _hand_in(mine: Blocks, piece: Piece) -> None:
    """Show a block to the root, after the root has taken the earlier piece in that cell."""
    mine.waits.wait((mine.context.group.root,), TAKEN, mine.read_before_reuse(piece))
    mine.context.stream.copy(mine.shown(mine.me, piece), mine.source(piece), piece.nbytes)
    mine.post(GATHERED, piece.index + 1)


def _collect(mine: Blocks, piece: Piece) -> None:
    """Copy every rank's block at the root."""
    own = mine.source(piece)
    mine.context.stream.copy(mine.result(piece, mine.me), own, piece.nbytes)
    _take_blocks(mine, piece)
    if mine.layout.recycled:
        mine.post(TAKEN, piece.index + 1)


def _hand_out(mine: Blocks, piece: Piece) -> None:
    """Show a block for every peer at the root, after all have read the cell's earlier piece."""
    mine.waits.wait(mine.context.others, READ, mine.read_before_reuse(piece))
    for m in mine.context.others:
        source = mine.source(piece, m)
        mine.context.stream.copy(mine.shown(mine.me, piece, m), source, piece.nbytes)
    mine.post(RELEASED, piece.index + 1)
    own = mine.source(piece, mine.me)
    mine.context.stream.copy(mine.result(piece), own, piece.nbytes)


def _fetch(mine: Blocks, piece: Piece) -> None:
    """Copy this rank's block from the root's cells."""
    root = mine.context.group.root
    mine.waits.wait((root,), RELEASED, piece.index + 1)
    source = mine.shown(root, piece, mine.me)
    mine.context.stream.copy(mine.result(piece), source, piece.nbytes)
    if mine.layout.recycled:
        mine.post(READ, piece.index + 1)


AT_ROOT: dict[str, tuple[Move, Move]] = {  # what the root does, what the other ranks do
    "gather": (_collect, _hand_in),
    "scatter": (_hand_out, _fetch),
}
KINDS = (*ALL_TO_ALL, *AT_ROOT)
