"""The tasks of lanes inside a node: shares are scattered or combined, and gathered when finished.

The members that are in a lane have a share of each segment, the others have none. A member shows
the shares of others in its cells, piece by piece, and each owner combines its share from the cells
of all members. When the lanes have combined the shares of all nodes, each owner shows its share,
and all others copy it. In a broadcast the root shows all shares, and each owner copies its own; in
a reduce only the root copies the finished shares.

Source: Jocksch et al., section 2 (reduce-scatter and allgather inside the node); Träff (lanes).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from han.common.kept import kept
from han.model.channel_layout import LINE, RING_MIN, lines
from han.model.program import Ref
from han.model.topology import Topology
from han.submodules.parts.cells import CHUNK, COMBINED, COPIED, READ, RELEASED
from han.submodules.parts.fold import step_of
from han.submodules.parts.waits import Members, Waits
from han.tasks.canonical import rooms
from han.tasks.choice import LevelChoice
from han.tasks.context import Context
from han.tasks.contract import Question
from han.tasks.graph import Task
from han.tasks.lanes import inner_levels, lanes_at, sizes_at
from han.tasks.outline import Outline
from han.tasks.shares import shares as shares_of

KINDS = ("reduce_scatter", "scatter", "gather", "allgather")
Spans = tuple[tuple[int, int], ...]
CELLS = 2


def _unit(grain: int) -> int:
    return grain if LINE % grain else LINE


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
        return self.cells * (self.lanes + self.own) * self.stride

    @kept
    def stride(self) -> int:
        """Bytes from the start of one cell to the start of the next."""
        return lines(self.chunk)

    def shown(self, index: int, lane: int) -> int:
        """Return the offset of the cell with an operand: piece `index` of a lane's share."""
        return (index % self.cells * self.lanes + lane) * self.stride

    def finished(self, index: int, turn: int) -> int:
        """Return the offset of the cell with piece `index` of a rank's finished share `turn`."""
        first = self.cells * self.lanes
        return (first + index % self.cells * self.own + turn) * self.stride


def _numbers(view: Topology, level: int, choice: LevelChoice) -> tuple[int, int]:
    """Return the number of shares of a level, and the most that one member has."""
    lanes = lanes_at(view, level, choice)
    return lanes, -(-lanes // sizes_at(view, level)[0])


def unfit(question: Question) -> str | None:
    """Return the reason why the cells cannot hold pieces of all shares, or None."""
    signature, choice = question.signature, question.choice
    lanes, own = _numbers(question.topology, question.level, choice)
    cells = choice.get("cells", CELLS)
    least = cells * (lanes + own) * lines(_unit(signature.element))
    if least <= RING_MIN // 2:
        return None
    return (
        f"shares of {lanes} lanes take {least} bytes of cells for elements of "
        f"{signature.element} bytes; the smallest ring has {RING_MIN // 2}"
    )


class Bounds(NamedTuple):
    """Where the shares of the lanes start and stop in a task.

    `shown` are those of the lanes of other members, `taken` the same in the order of their owners.
    """

    each: Spans
    shown: Spans
    taken: Spans


class Piece(NamedTuple):
    """Piece `index` of a stream: of each lane's share, the bytes from its byte `at` on."""

    index: int  # type: ignore[assignment]  # it hides tuple.index
    task: Task
    bounds: Bounds
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
        lanes: dict[int, list[int]] = {}
        self.turns: list[int] = []  # of each lane among those of its owner
        for lane, owner in enumerate(owners):
            of_owner = lanes.setdefault(owner, [])
            self.turns.append(len(of_owner))
            of_owner.append(lane)
        self.own = lanes.get(me, [])
        self.others = tuple([(me + k) % size for k in range(1, size)])
        self.owners = tuple([m for m in self.others if m in lanes])
        self.shown = [lane for lane, owner in enumerate(owners) if owner != me]
        self.taken = [lane for m in self.owners for lane in lanes[m]]
        self.waits = Waits(context, self._flag)
        self.cells = [builder.cells(self.group.level, slot) for slot in self.group.slots]
        self.pieces = self._pieces()
        self.step = step_of(context.grain)
        self.partials = tuple([self.stream.room(self.step, k) for k in range(rooms(context.order))])
        self._operands: dict[int, tuple[Ref, ...]] = {}  # by offset

    def _pieces(self) -> list[Piece]:
        found, known, chunk = list[Piece](), dict[int, Bounds](), self.layout.chunk
        for task in self.context.tasks:
            bounds = known.get(task.nbytes) or known.setdefault(task.nbytes, self._bounds(task))
            starts = range(0, max(1, *[stop - start for start, stop in bounds.each]), chunk)
            for at in starts:
                index = self.stream.sequence + len(found)
                found.append(Piece(index, task, bounds, at, at == 0, at == starts[-1]))
        self.stream.sequence += len(found)
        return found

    def _bounds(self, task: Task) -> Bounds:
        """Return where the share of each lane starts and stops in a task."""
        each = shares_of(task.nbytes, self.context.grain, self.layout.lanes)
        shown, taken = (tuple([each[k] for k in lanes]) for lanes in (self.shown, self.taken))
        return Bounds(each, shown, taken)

    def _part(self, piece: Piece) -> tuple[int, int, int]:
        """Return where the task starts, and which bytes of each of its shares are in the piece."""
        return piece.task.start, piece.at, self.layout.chunk

    def _span(self, piece: Piece, lane: int) -> tuple[int, int]:
        """Return where a piece of a lane's share starts and stops in the message."""
        (start, stop), origin = piece.bounds.each[lane], piece.task.start
        first = min(start + piece.at, stop)
        return origin + first, origin + min(first + self.layout.chunk, stop)

    def post(self, kind: int, piece: Piece) -> None:
        """Count a piece in this member's flag."""
        self.stream.post(self._flag(self.group.me, kind), piece.index + 1)

    def _flag(self, member: int, kind: int) -> Ref:
        return self.context.builder.flag(self.group.level, self.group.slots[member], kind)

    # ---- reduce-scatter -------------------------------------------------------------------

    def show(self, piece: Piece) -> None:
        """Copy a piece of the shares of others into the cells, when these are free."""
        self.begin(piece)
        # The owners have combined or taken what the cells hold.
        self.waits.wait(self.owners, COMBINED, piece.index - self.layout.cells + 1)
        offset = self.layout.shown(piece.index, 0)
        self.stream.show_each(
            self._own_cells, offset, self.context.source, piece.bounds.shown, self._part(piece)
        )
        self.post(COPIED, piece)

    @kept
    def _own_cells(self) -> tuple[Ref, ...]:
        """This member's cells for the shares of others; the number of the piece adds an offset."""
        cells, stride = self.cells[self.group.me], self.layout.stride
        return tuple([cells + lane * stride for lane in self.shown])

    def combine(self, piece: Piece) -> None:
        """Combine a piece of this member's shares from the cells of all members, in their order."""
        for lane in self.own:
            if lane == self.own[0]:
                self.waits.wait(self.others, COPIED, piece.index + 1)
            self._combine(piece, lane)
        if self.own:
            self.post(COMBINED, piece)

    def _combine(self, piece: Piece, lane: int) -> None:
        """Combine a piece of a share; in place, the result overlays the operand: it comes last."""
        start, stop = self._span(piece, lane)
        operands = self._shown_in(self.layout.shown(piece.index, lane))
        for at in range(start, stop, self.step):
            self.stream.fold_each(
                self.context.result.to(at), operands, self.group.me, start,
                min(self.step, stop - at), self.context.order, self.partials, None, None,
            )  # fmt: skip

    def _shown_in(self, offset: int) -> tuple[Ref, ...]:
        """Return the cells of all members at an offset; this member's operand instead of its own.

        They are the same for all pieces that go through one cell.
        """
        found = self._operands.get(offset)
        if found is None:
            cells = [cells + offset for cells in self.cells]
            cells[self.group.me] = self.context.source
            found = self._operands[offset] = tuple(cells)
        return found

    def receive(self, piece: Piece) -> None:
        """Copy a piece of this member's shares out of the root's cells."""
        if not self.own:
            return
        root = self.group.root
        self.waits.wait((root,), COPIED, piece.index + 1)
        for lane in self.own:
            start, stop = self._span(piece, lane)
            cell = (self.cells[root] + self.layout.shown(piece.index, lane)).holding(start)
            self.stream.copy(self.context.result.to(start), cell, stop - start)
        self.post(COMBINED, piece)

    # ---- gathering ------------------------------------------------------------------------

    def release(self, piece: Piece, readers: Members) -> None:
        """Copy a piece of the finished shares into cells that all readers have read."""
        if not self.own:
            return
        self.waits.wait(readers, READ, piece.index - self.layout.cells + 1)
        for lane in self.own:
            start, stop = self._span(piece, lane)
            cell = self.cells[self.group.me] + self._finished(piece, lane)
            self.stream.copy(cell.holding(start), self.context.source.to(start), stop - start)
        self.post(RELEASED, piece)

    def take(self, piece: Piece) -> None:
        """Copy a piece of the other finished shares out of their owners' cells."""
        flags, ranks = self._releases
        offset = self.layout.finished(piece.index, 0)
        self.stream.take_each(
            self.context.result, self._finished_cells, offset, piece.bounds.taken,
            self._part(piece), flags, piece.index + 1, ranks,
        )  # fmt: skip
        self.post(READ, piece)

    @kept
    def _releases(self) -> tuple[tuple[Ref, ...], Members]:
        """The flag and the rank of the owner of each share that is taken."""
        return self.waits.of(tuple([self.context.owners[k] for k in self.taken]), RELEASED)

    @kept
    def _finished_cells(self) -> tuple[Ref, ...]:
        """The cells of the shares that are taken; the number of the piece adds an offset."""
        cells, owners, stride = self.cells, self.context.owners, self.layout.stride
        return tuple([cells[owners[k]] + self.turns[k] * stride for k in self.taken])

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
    readers = tuple([m for m in mine.others if mine.group.ranks[m] not in roots])
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
            mine.release(piece, (mine.group.root,))
        mine.end(piece)


MOVES = {
    "reduce_scatter": _reduce_scatter,
    "scatter": _scatter,
    "gather": _gather,
    "allgather": _allgather,
}
