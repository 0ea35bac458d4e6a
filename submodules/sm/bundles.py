"""The algorithm ``blocks`` of ``sm`` where members give several blocks, or only some give any.

A member puts lots of the blocks that it gives into its cells, and the members that take them copy
them out. It gives a block when this rank's other streams have it: so blocks that come from other
nodes are handed on one after the other.

A giver uses a cell again when the takers have read it. Where all members give as much to all
others, this follows from what they show (:attr:`BlockCells.ahead`); elsewhere takers post a flag.

Source: Tran et al., section 3 (phases 1 and 3); Jain et al., section III (cells).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from han.common.kept import kept
from han.model.program import Ref
from han.submodules.parts.blocks import Blocks
from han.submodules.parts.cells import GATHERED, READ, RELEASED, TAKEN, Members
from han.submodules.parts.lots import Lot, Lots, cut_blocks
from han.tasks.bundles import BlockMap
from han.tasks.context import Context
from han.tasks.graph import Task

Groups = list[list[list[Lot]]]  # by member and turn: the lots that go through one cell


def give_and_take(context: Context) -> None:
    """Emit this rank's copies of the blocks that members give to each other."""
    assert context.given is not None, "the place says what members give"
    given = _Given(context, context.given, Blocks.of(context), Lots(context))
    for task in context.tasks:
        given.carry_out(task)


@dataclass(frozen=True)
class _Given:
    """What members give to each other, and the cells that it goes through."""

    context: Context
    known: BlockMap
    blocks: Blocks
    lots: Lots

    def carry_out(self, task: Task) -> None:
        """Show this rank's lots of a task, and take those of others."""
        stream, me = self.context.stream, self.context.group.me
        signature, most = self.lots.signature, self.blocks.layout.chunk
        groups = [cut_blocks(ranks, task, signature, most) for ranks in self.known.gives]
        turns, ahead, first = max(map(len, groups)), self.blocks.layout.ahead, stream.sequence
        stream.label(task)
        if not groups[me]:
            self.lots.copy_own(task)
        for turn in range(-ahead, turns):
            self._show(task, groups, first, turn + ahead)
            if turn >= 0:
                self._take(groups, first, turn)
        stream.sequence = first + turns
        stream.end(task)

    def _show(self, task: Task, groups: Groups, first: int, turn: int) -> None:
        """Show the lots of a turn, if this rank has any."""
        me, stream, index = self.context.group.me, self.context.stream, first + turn
        if turn >= len(groups[me]):
            return
        stream.begin_blocks(task, [rank for lot in groups[me][turn] for rank in lot.ranks])
        if self.told:
            self.blocks.waits.wait(self.takers, self.read, index - self.blocks.layout.cells + 1)
        for lot, room in self._rooms(me, index, groups[me][turn]):
            self.lots.copy(room, self.lots.source(lot), lot)
        self.blocks.post(self.shown, index + 1)
        for lot in groups[me][turn]:
            self.lots.copy_to_result(lot)

    def _take(self, groups: Groups, first: int, turn: int) -> None:
        """Copy the lots of a turn that others show, and tell them."""
        index = first + turn
        for m in self.takes:
            if turn >= len(groups[m]):
                continue
            self.blocks.waits.wait((m,), self.shown, index + 1)
            for lot, room in self._rooms(m, index, groups[m][turn]):
                self.lots.copy(self.lots.result(lot), room, lot)
        if self.told and self.takes:
            self.blocks.post(self.read, index + 1)

    def _rooms(self, member: int, index: int, lots: list[Lot]) -> Iterator[tuple[Lot, Ref]]:
        """Yield lots that go through one cell of a member, and where each is in it."""
        room, before = self.blocks.cell(member, index), 0
        for lot in lots:
            yield lot, (room + before * self.lots.signature.nbytes).holding(lot.start)
            before += lot.count

    @kept
    def takes(self) -> Members:
        """The members from which this one takes lots, the next one first."""
        takes = self.known.takes
        mine = takes[self.context.group.me] if takes else ()
        return tuple(m for m in self.context.others if m in mine) if takes else self.context.others

    @kept
    def takers(self) -> Members:
        """The members that take this one's lots."""
        me, takes = self.context.group.me, self.known.takes
        return tuple(m for m in self.context.others if not takes or me in takes[m])

    @kept
    def told(self) -> bool:
        """Whether takers tell when they have read a cell."""
        alike = not self.known.takes and len({*map(len, self.known.gives)}) == 1
        return self.blocks.layout.recycled and not alike

    @property
    def shown(self) -> int:
        """The flag that says that lots are shown."""
        return GATHERED if self.context.stream.kind == "gather" else RELEASED

    @property
    def read(self) -> int:
        """The flag that says that lots have been read."""
        return TAKEN if self.context.stream.kind == "gather" else READ
