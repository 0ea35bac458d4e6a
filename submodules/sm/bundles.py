"""The algorithm ``blocks`` of ``sm`` where members give several blocks, or only some give any.

A member puts lots of the blocks that it gives into its cells, and the members that take them copy
them out. It gives a block when this rank's other streams have it: so blocks that come from other
nodes are handed on one after the other.

A giver uses a cell again when the takers have read it. Where all members give as much to all
others, this follows from what they show (:attr:`BlockCells.ahead`); elsewhere takers post a flag.
In an allgather some blocks may travel as messages (:mod:`han.submodules.parts.offload`).

Source: Tran et al., section 3 (phases 1 and 3); Jain et al., section III (cells).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from han.common.kept import kept
from han.model.program import Base, Ref
from han.submodules.parts.blocks import Blocks
from han.submodules.parts.cells import GATHERED, READ, RELEASED, TAKEN, Members
from han.submodules.parts.lots import Lot, Lots, cut_blocks, part_of, single
from han.submodules.parts.offload import Letter, Offload
from han.tasks.bundles import Shelf
from han.tasks.context import Context
from han.tasks.graph import Task

FIRST = ("gather", "alltoall", "reduce_scatter")  # kinds of first steps: a last one has other flags
Groups = list[list[list[Lot]]]  # by member and turn: the lots that go through one cell


def give_and_take(context: Context) -> None:
    """Emit this rank's copies of the blocks that members give to each other."""
    given = _Given(context, Blocks.of(context), Lots.of(context))
    for task in context.tasks:
        given.carry_out(task)


@dataclass(frozen=True)
class _Given:
    """What members give to each other, and the cells that it goes through."""

    context: Context
    blocks: Blocks
    lots: Lots

    def carry_out(self, task: Task) -> None:
        """Show this rank's lots of a task, keep its own, and take those of others."""
        stream, moves, most = self.context.stream, self.lots.moves, self.blocks.layout.chunk
        groups = [
            cut_blocks(moves.gives(m), task, self.lots.signature, most, *self._shelves(m))
            for m in range(self.context.group.size)
        ]
        kept = self.lots.to_keep(task, most)
        turns, ahead, first = max(map(len, groups)), self.blocks.layout.ahead, stream.sequence
        stream.begin_in_place(task)
        for turn in range(-ahead, max(turns, len(kept))):
            self._show(task, groups, first, turn + ahead)
            for lots in kept[turn : turn + 1] if turn >= 0 else ():
                self.lots.keep(task, lots)
            if 0 <= turn < turns:
                (self._combine if self.combines else self._take)(task, groups, first, turn)
        stream.sequence = first + turns
        self.offload.carry_out(task, self._received(groups), self._sent(groups))
        stream.end(task)

    def _received(self, groups: Groups) -> Iterator[Letter]:
        """Yield the lots that come as messages."""
        for m in self.offload.sources:
            for lot in chain.from_iterable(groups[m]):
                yield self._letter(m, self.lots.result(lot), lot)

    def _sent(self, groups: Groups) -> Iterator[Letter]:
        """Yield this rank's lots, in the order in which it gets them, for all that get messages."""
        for lot in chain.from_iterable(groups[self.context.group.me]):
            for m in self.offload.targets:
                yield self._letter(m, self.lots.source(lot), lot)

    def _letter(self, member: int, place: Ref, lot: Lot) -> Letter:
        return Letter(member, place, self.lots.nbytes(lot), lot, self.lots.named(lot))

    @property
    def offload(self) -> Offload:
        """The messages in place of copies."""
        return self.blocks.offload

    def _shelves(self, member: int) -> list[Shelf]:
        """Return where blocks must lie behind each other to be shown together.

        What is combined is taken block by block.
        """
        source = self.lots.moves.source(member)
        return [source, *[Shelf(Base.SCRATCH, self.lots.moves.gives(member))] * self.combines]

    def _show(self, task: Task, groups: Groups, first: int, turn: int) -> None:
        """Show the lots of a turn, if this rank has any."""
        me, stream, index = self.context.group.me, self.context.stream, first + turn
        if turn >= len(groups[me]):
            return
        for lot in groups[me][turn]:
            stream.begin_blocks(task, lot.blocks, lot.stop)
        if self.told:
            self.blocks.waits.wait(self.takers, self.read, index - self.blocks.layout.cells + 1)
        for lot, room in self._rooms(me, index, groups[me][turn]):
            if self.offload.copied and not (self.combines and {*lot.blocks} <= self.own):
                self.lots.copy(room, self.lots.source(lot), lot)
        self.blocks.post(self.shown, index + 1)

    def _take(self, task: Task, groups: Groups, first: int, turn: int) -> None:
        """Copy what this rank takes of the lots of a turn, and tell those that gave it."""
        index, stream = first + turn, self.context.stream
        stream.label(task)
        for m in self.givers:
            taken = [*self._taken(m, index, groups[m][turn : turn + 1])]
            if taken:
                self.blocks.waits.wait((m,), self.shown, index + 1)
            for lot, room in taken if m not in self.offload.sources else ():
                self.lots.copy(self.lots.result(lot), room, lot)
                stream.end_blocks(task, lot.blocks, lot.stop)
        if self.told and self.givers:
            self.blocks.post(self.read, index + 1)

    def _combine(self, task: Task, groups: Groups, first: int, turn: int) -> None:
        """Combine what all members show of the blocks that this rank carries, and tell them."""
        index, context, me = first + turn, self.context, self.context.group.me
        context.stream.label(task)
        if not self.own:
            return
        self.blocks.waits.wait(context.others, self.shown, index + 1)
        rooms = [[room for _, room in self._rooms(m, index, groups[me][turn])]
                 for m in range(context.group.size)]  # fmt: skip
        for k, lot in enumerate(groups[me][turn]):
            for number, block in enumerate(lot.blocks):
                if block in self.own:
                    one = single(lot, block)
                    shown = {
                        r: rooms[m][k].behind(number) for m, r in enumerate(context.group.ranks)
                    }
                    shown[self.lots.rank] = self.lots.source(one)
                    self.lots.fold(task, one, shown, lot.start)
        if self.told:
            self.blocks.post(self.read, index + 1)

    @property
    def combines(self) -> bool:
        """Whether members combine what others show."""
        return self.context.stream.kind == "reduce_scatter"

    @kept
    def own(self) -> frozenset[int]:
        """The blocks that this rank combines."""
        me = self.context.group.me
        return frozenset(self.lots.moves.given(me, me))

    def _taken(self, member: int, index: int, group: list[list[Lot]]) -> Iterator[tuple[Lot, Ref]]:
        """Yield what this rank takes of lots in a member's cell, and where it is there."""
        me, moves = self.context.group.me, self.lots.moves
        for lot, room in self._rooms(member, index, group[0] if group else []):
            if moves.spreads:
                yield lot, room
                continue
            wanted, result = moves.given(member, me), moves.result(me)
            for part in part_of(lot, wanted, self.lots.signature, result):
                yield part, room.behind(lot.blocks.index(part.blocks[0]))

    def _rooms(self, member: int, index: int, lots: list[Lot]) -> Iterator[tuple[Lot, Ref]]:
        """Yield lots that go through one cell of a member, and where each is in it."""
        room, before = self.blocks.cell(member, index), 0
        for lot in lots:
            yield lot, (room + before * self.lots.signature.nbytes).holding(lot.start)
            before += len(lot.blocks)

    @kept
    def givers(self) -> Members:
        """The members that give something to this one, the next one first."""
        me, moves = self.context.group.me, self.lots.moves
        return tuple(m for m in self.context.others if moves.given(m, me))

    @kept
    def takers(self) -> Members:
        """The members to which this one gives something."""
        me, moves = self.context.group.me, self.lots.moves
        return tuple(m for m in self.context.others if moves.given(me, m))

    @kept
    def told(self) -> bool:
        """Whether takers tell when they have read a cell."""
        moves, members = self.lots.moves, range(self.context.group.size)
        alike = moves.spreads and len({len(moves.gives(m)) for m in members}) == 1
        return self.blocks.layout.recycled and not alike

    @property
    def shown(self) -> int:
        """The flag that says that lots are shown."""
        return GATHERED if self.context.stream.kind in FIRST else RELEASED

    @property
    def read(self) -> int:
        """The flag that says that lots have been read."""
        return TAKEN if self.context.stream.kind in FIRST else READ
