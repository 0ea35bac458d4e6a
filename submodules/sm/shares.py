"""The tasks of lanes inside a node: shares are scattered or combined, and gathered when finished.

The members that are in a lane have a share of each segment, the others have none. A member shows
the shares of others in its cells, piece by piece, and each owner combines its share from the cells
of all members. When the lanes have combined the shares of all nodes, each owner shows its share,
and all others copy it. In a broadcast the root shows all shares, and each owner copies its own; in
a reduce only the root copies the finished shares.

Source: Jocksch et al., section 2 (reduce-scatter and allgather inside the node); Träff (lanes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from han.model.channel_layout import LINE, RING_MIN
from han.model.program import Ref
from han.model.topology import Topology
from han.submodules.parts.cells import CHUNK, COMBINED, COPIED, READ, RELEASED
from han.submodules.parts.fold import fold
from han.tasks.canonical import rooms
from han.tasks.choice import LevelChoice
from han.tasks.context import Context
from han.tasks.contract import Question
from han.tasks.graph import Task
from han.tasks.lanes import inner_levels, lanes_at, sizes_at
from han.tasks.outline import Outline
from han.tasks.shares import share

KINDS = ("reduce_scatter", "scatter", "gather", "allgather")
CELLS = 2
BLOCK = 16 * 1024  # bytes combined at a time: partial results stay in the nearest cache


def _unit(grain: int) -> int:
    return grain if LINE % grain else LINE


def _lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


@dataclass(frozen=True)
class Layout:
    """A rank's cells: `cells` for pieces of all shares, then `cells` for pieces of its own shares.

    `own` is the most shares that a rank has, `chunk` the most bytes of a share that a piece has.
    """

    lanes: int
    own: int
    cells: int
    chunk: int

    @classmethod
    def of(cls, plan: Outline, level: int) -> Layout:
        """Fit the configured number and size of cells into the part of the ring that a run has."""
        geometry, choice = plan.geometries[level], plan.choice.levels[level]
        assert geometry is not None, "supports() lets only levels with shared memory pass"
        view, cells = plan.topology, choice.get("cells", CELLS)
        lanes, own = _numbers(view, level, choice)
        below = (k for k in inner_levels(view) if k < level)
        cut = lanes * prod(lanes_at(view, k, plan.choice.levels[k]) for k in below)
        unit = _unit(plan.signature.grain)
        longest = max(-(-task.nbytes // (unit * cut)) * unit for task in plan.tasks)
        most = geometry.area // (cells * (lanes + own)) // LINE * LINE
        chunk = min(choice.get("chunk", CHUNK) // lanes, most, longest)
        return cls(lanes, own, cells, max(unit, chunk // unit * unit))

    @property
    def nbytes(self) -> int:
        """Bytes of all cells of a rank."""
        return self.cells * (self.lanes + self.own) * _lines(self.chunk)

    def shown(self, index: int, lane: int) -> int:
        """Return the offset of the cell with an operand: piece `index` of a lane's share."""
        return (index % self.cells * self.lanes + lane) * _lines(self.chunk)

    def finished(self, index: int, turn: int) -> int:
        """Return the offset of the cell with piece `index` of a rank's finished share `turn`."""
        first = self.cells * self.lanes
        return (first + index % self.cells * self.own + turn) * _lines(self.chunk)


def _numbers(view: Topology, level: int, choice: LevelChoice) -> tuple[int, int]:
    """Return the number of shares of a level, and the most that one member has."""
    lanes = lanes_at(view, level, choice)
    return lanes, -(-lanes // sizes_at(view, level)[0])


def unfit(question: Question) -> str | None:
    """Return the reason why the cells cannot hold pieces of all shares, or None."""
    signature, choice = question.signature, question.choice
    lanes, own = _numbers(question.topology, question.level, choice)
    cells = choice.get("cells", CELLS)
    least = cells * (lanes + own) * _lines(_unit(signature.element))
    if least <= RING_MIN // 2:
        return None
    return (
        f"shares of {lanes} lanes take {least} bytes of cells for elements of "
        f"{signature.element} bytes; the smallest ring has {RING_MIN // 2}"
    )


class Piece(NamedTuple):
    """Piece `index` of a stream: byte `at` and the `chunk` bytes behind it of every share."""

    index: int  # type: ignore[assignment]  # it hides tuple.index
    task: Task
    at: int
    first: bool
    last: bool


class _Shares:
    """One member's flags, cells and pieces."""

    def __init__(self, context: Context) -> None:
        self.context, self.stream, self.group = context, context.stream, context.group
        builder = context.builder
        self.layout = Layout.of(builder.plan, context.group.level)
        me, size, owners = self.group.me, self.group.size, context.owners
        self.own = [lane for lane, owner in enumerate(owners) if owner == me]
        self.others = [(me + k) % size for k in range(1, size)]
        self.owners = [m for m in self.others if m in owners]
        self.turns = [owners[:lane].count(owner) for lane, owner in enumerate(owners)]
        self.lanes = {m: [k for k, owner in enumerate(owners) if owner == m] for m in self.owners}
        self._shares: dict[Task, list[tuple[int, int]]] = {}
        self._flags: dict[tuple[int, int], Ref] = {}
        self.pieces = self._pieces()
        self.step = max(1, BLOCK // context.grain) * context.grain
        self.partials = [self.stream.room(self.step, k) for k in range(rooms(context.order))]

    def _pieces(self) -> list[Piece]:
        found: list[Piece] = []
        for task in self.context.tasks:
            longest = max(stop - start for start, stop in self._bounds(task))
            starts = range(0, max(1, longest), self.layout.chunk)
            for at in starts:
                index = self.stream.sequence + len(found)
                found.append(Piece(index, task, at, at == 0, at == starts[-1]))
        self.stream.sequence += len(found)
        return found

    def span(self, piece: Piece, lane: int) -> tuple[int, int]:
        """Return where in the message a piece of a lane's share starts and stops."""
        start, stop = self._bounds(piece.task)[lane]
        first = min(start + piece.at, stop)
        return first, min(first + self.layout.chunk, stop)

    def _bounds(self, task: Task) -> list[tuple[int, int]]:
        """Return where the share of each lane starts and stops in the message."""
        found = self._shares.get(task)
        if found is None:
            lanes, grain = self.layout.lanes, self.context.grain
            shares = (share(task.nbytes, grain, lane, lanes) for lane in range(lanes))
            found = [(task.start + start, task.start + stop) for start, stop in shares]
            self._shares[task] = found
        return found

    def cell(self, member: int, offset: int, start: int) -> Ref:
        """Return the cell of a member at an offset, which holds the message from `start` on."""
        cells = self.context.builder.cells(self.group.level, self.group.slots[member])
        return (cells + offset).holding(start)

    def post(self, kind: int, piece: Piece) -> None:
        """Count a piece in this member's flag."""
        self.stream.post(self._flag(self.group.me, kind), piece.index + 1)

    def wait(self, member: int, kind: int, pieces: int) -> None:
        """Wait until a member has counted that many pieces."""
        if pieces > 0:
            self.stream.wait(self._flag(member, kind), pieces, self.group.ranks[member])

    def _flag(self, member: int, kind: int) -> Ref:
        found = self._flags.get((member, kind))
        if found is None:
            level, slot = self.group.level, self.group.slots[member]
            found = self._flags[member, kind] = self.context.builder.flag(level, slot, kind)
        return found

    # ---- reduce-scatter -------------------------------------------------------------------

    def show(self, piece: Piece) -> None:
        """Copy a piece of the shares of others into the cells, when these are free."""
        self.begin(piece)
        for member in self.owners:  # they have combined or taken what the cells hold
            self.wait(member, COMBINED, piece.index - self.layout.cells + 1)
        for lane in range(self.layout.lanes):
            start, stop = self.span(piece, lane)
            if lane not in self.own:
                cell = self.cell(self.group.me, self.layout.shown(piece.index, lane), start)
                self.stream.copy(cell, self.context.source.to(start), stop - start)
        self.post(COPIED, piece)

    def combine(self, piece: Piece) -> None:
        """Combine a piece of this member's shares from the cells of all members, in their order."""
        for lane in self.own:
            if lane == self.own[0]:
                for member in self.others:
                    self.wait(member, COPIED, piece.index + 1)
            self._combine(piece, lane)
        if self.own:
            self.post(COMBINED, piece)

    def _combine(self, piece: Piece, lane: int) -> None:
        """Combine a piece of a share; in place, the result overlays the operand: it comes last."""
        start, stop = self.span(piece, lane)
        offset = self.layout.shown(piece.index, lane)
        operands = [self.cell(m, offset, start) for m in range(self.group.size)]
        operands[self.group.me] = self.context.source
        for at in range(start, stop, self.step):
            fold(
                self.stream, self.context.order, [operand.to(at) for operand in operands],
                min(self.step, stop - at), self.context.result.to(at),
                [place.holding(at) for place in self.partials],
            )  # fmt: skip

    def receive(self, piece: Piece) -> None:
        """Copy a piece of this member's shares out of the root's cells."""
        if not self.own:
            return
        root = self.group.root
        self.wait(root, COPIED, piece.index + 1)
        for lane in self.own:
            start, stop = self.span(piece, lane)
            cell = self.cell(root, self.layout.shown(piece.index, lane), start)
            self.stream.copy(self.context.result.to(start), cell, stop - start)
        self.post(COMBINED, piece)

    # ---- gathering ------------------------------------------------------------------------

    def release(self, piece: Piece, readers: Sequence[int]) -> None:
        """Copy a piece of the finished shares into cells that all readers have read."""
        if not self.own:
            return
        for member in readers:
            self.wait(member, READ, piece.index - self.layout.cells + 1)
        for lane in self.own:
            start, stop = self.span(piece, lane)
            cell = self.cell(self.group.me, self._finished(piece, lane), start)
            self.stream.copy(cell, self.context.source.to(start), stop - start)
        self.post(RELEASED, piece)

    def take(self, piece: Piece) -> None:
        """Copy a piece of the other finished shares out of their owners' cells."""
        for member in self.owners:
            self.wait(member, RELEASED, piece.index + 1)
            for lane in self.lanes[member]:
                start, stop = self.span(piece, lane)
                cell = self.cell(member, self._finished(piece, lane), start)
                self.stream.copy(self.context.result.to(start), cell, stop - start)
        self.post(READ, piece)

    def _finished(self, piece: Piece, lane: int) -> int:
        return self.layout.finished(piece.index, self.turns[lane])

    def begin(self, piece: Piece) -> None:
        """Wait for what a task needs, before its first piece."""
        if piece.first:
            self.stream.begin(piece.task)
        self.stream.label(piece.task)

    def end(self, piece: Piece) -> None:
        """End a task after its last piece."""
        if piece.last:
            self.stream.end(piece.task)


def shares(context: Context) -> None:
    """Emit this rank's part of the tasks."""
    MOVES[context.tasks[0].kind](_Shares(context))


def _reduce_scatter(mine: _Shares) -> None:
    """Show pieces ahead of the one that is combined: all cells but one are in use."""
    shown, ahead = 0, mine.layout.cells - 1
    for k, piece in enumerate(mine.pieces):
        while shown < min(len(mine.pieces), k + 1 + ahead):
            mine.show(mine.pieces[shown])
            shown += 1
        mine.stream.label(piece.task)
        mine.combine(piece)
        mine.end(piece)


def _scatter(mine: _Shares) -> None:
    """Show the shares at the root, which has its own already; receive them elsewhere."""
    for piece in mine.pieces:
        if mine.group.leads:
            mine.show(piece)
        else:
            mine.begin(piece)
            mine.receive(piece)
        mine.end(piece)


def _allgather(mine: _Shares) -> None:
    """Release pieces of the own share, and take those of the others.

    The root of a broadcast takes nothing, and others do not wait for it.
    """
    signature = mine.context.builder.signature
    roots = [signature.root] if signature.rooted else []
    readers = [m for m in mine.others if mine.group.ranks[m] not in roots]
    for piece in mine.pieces:
        mine.begin(piece)
        mine.release(piece, readers)
        if mine.group.ranks[mine.group.me] not in roots:
            mine.take(piece)
        mine.end(piece)


def _gather(mine: _Shares) -> None:
    """Release pieces of the own share; only the root takes them."""
    for piece in mine.pieces:
        mine.begin(piece)
        if mine.group.leads:
            mine.take(piece)
        else:
            mine.release(piece, [mine.group.root])
        mine.end(piece)


MOVES = {
    "reduce_scatter": _reduce_scatter,
    "scatter": _scatter,
    "gather": _gather,
    "allgather": _allgather,
}
