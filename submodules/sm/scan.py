"""The scans of ``sm``: a member combines its operand with those of the members before it.

With ``prefix`` members show their operands, and each combines all that it needs. With ``chain`` a
member shows the combination of all operands up to its own to the next member, piece by piece.

Where nodes scan together, the last member of a node releases what comes before the node.

Source: Jain et al., section III (cells, pipelining, inlining).
"""

from __future__ import annotations

from dataclasses import replace

from han.model.program import Ref
from han.submodules.parts.cells import GATHERED, READ, TAKEN, Members
from han.submodules.parts.fold import fold, step_of
from han.submodules.parts.pieces import Piece, in_turn
from han.submodules.sm.gather_release import release
from han.submodules.sm.member_cells import MemberCells
from han.tasks.canonical import rooms
from han.tasks.choice import LevelChoice
from han.tasks.context import Context
from han.tasks.contract import Algorithm

AT_ONCE = 4  # members that read the same cells
IN_CELLS = ("cells", "chunk", "inline")
SCANNING = {
    "prefix": Algorithm(
        "scans: every member combines the operands of those before it",
        ("scan", "exscan"),
        "always",
        takes=IN_CELLS,
        canonical=True,
    ),
    "chain": Algorithm(
        "scans: every member hands what it has combined to the next one",
        ("scan", "exscan"),
        "always",
        takes=IN_CELLS,
    ),
}


def lower(context: Context) -> None:
    """Emit this rank's part of the scan of each task."""
    cells = _ScanCells.of(context)
    move = _in_chain if context.choice.algorithm == "chain" else _all_before
    for piece in in_turn(context, cells.pieces()):
        move(cells, piece)


def hand_down(context: Context) -> None:
    """Broadcast what comes before the node: to few members at once, to many along a tree."""
    shape = "flat" if context.group.size <= AT_ONCE else "knomial"
    release(replace(context, choice=LevelChoice("sm", shape, context.choice.parameters)))


class _ScanCells(MemberCells):
    """The cells or small slots of all members in a scan, which hand pieces on."""

    @property
    def inclusive(self) -> bool:
        """Whether a member's result holds its own operand."""
        return self.context.stream.kind == "scan"

    @property
    def read(self) -> int:
        """The flag of a member that counts what it has read; a release has the other one."""
        return TAKEN if self.context.builder.plan.nested_scan else READ

    def await_free(self, piece: Piece, readers: Members) -> None:
        """Wait until readers have read the earlier piece in the cell of `piece`."""
        self.waits.wait(readers, self.read, self.read_before_reuse(piece))

    def post(self, kind: int, piece: Piece) -> None:
        """Post that a piece is shown, or that this member has read it, if anyone waits for that."""
        if kind == GATHERED or self.counts_reads:
            flag = self.flag(self.context.group.me, kind)
            self.context.stream.post(flag, piece.index + 1)


def _all_before(cells: _ScanCells, piece: Piece) -> None:
    """Show this member's operand to those behind it; combine those of the members before it."""
    context, stream = cells.context, cells.context.stream
    me, own = context.group.me, context.source.to(piece.start)
    behind = tuple(range(me + 1, context.group.size))
    if behind:
        cells.await_free(piece, behind)
        stream.copy(cells.cell(me, piece), own, piece.nbytes)
        cells.post(GATHERED, piece)
    cells.waits.wait(tuple(range(me)), GATHERED, piece.index + 1)
    operands = [cells.cell(m, piece) for m in range(me)] + [own] * cells.inclusive
    if operands:
        _fold(context, operands, piece)
    if me:
        cells.post(cells.read, piece)


def _fold(context: Context, operands: list[Ref], piece: Piece) -> None:
    """Combine a piece of operands in their order; in place the result overlays the last of them."""
    stream, order = context.stream, context.order_of(range(len(operands)))
    step = step_of(context.grain) if len(operands) > 2 else max(1, piece.nbytes)
    for at in range(piece.start, piece.stop, step) or (piece.start,):
        nbytes, number = min(step, piece.stop - at), max(1, rooms(order))
        partials = [
            stream.room(step, k).holding(at) for k in range(number if len(operands) > 2 else 0)
        ]
        here = [operand.to(at) for operand in operands]
        fold(stream, order, here, nbytes, context.result.to(at), partials)


def _in_chain(cells: _ScanCells, piece: Piece) -> None:
    """Combine a piece of what the member before has shown with this one's, and show that."""
    context, me = cells.context, cells.context.group.me
    if me:
        cells.waits.wait((me - 1,), GATHERED, piece.index + 1)
    shown = None
    if me + 1 < context.group.size:
        cells.await_free(piece, (me + 1,))
        shown = cells.cell(me, piece)
    (_hand_on if me else _begin_chain)(cells, piece, shown)


def _begin_chain(cells: _ScanCells, piece: Piece, shown: Ref | None) -> None:
    """Show a piece of the first operand."""
    context, stream = cells.context, cells.context.stream
    own = context.source.to(piece.start)
    if shown is not None:
        stream.copy(shown, own, piece.nbytes)
        cells.post(GATHERED, piece)
    if cells.inclusive:
        stream.copy(context.result.to(piece.start), own, piece.nbytes)


def _hand_on(cells: _ScanCells, piece: Piece, shown: Ref | None) -> None:
    """Combine a piece, and show it to the next member, if there is one."""
    context, stream, nbytes = cells.context, cells.context.stream, piece.nbytes
    own, result = context.source.to(piece.start), context.result.to(piece.start)
    before = cells.cell(context.group.me - 1, piece)
    if cells.inclusive:
        stream.reduce(result, before, own, nbytes, also=shown)
    elif shown is not None:
        stream.reduce(shown, before, own, nbytes)
    if shown is not None:
        cells.post(GATHERED, piece)
    if not cells.inclusive:
        stream.copy(result, before, nbytes)
    cells.post(cells.read, piece)
