"""The messages of a gather or a scatter by a binomial tree.

Members count from the root on. Member k leads those whose numbers begin with its bits: in a scatter
it gets their bundles in one message, and sends parts of them on. What does not lie in one piece in
a member's buffers passes through scratch memory, its own bundle first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from han.common.kept import kept
from han.model.program import Base, Ref
from han.submodules.bundle.whole import Whole
from han.submodules.parts.lots import Lot, cut_blocks
from han.submodules.parts.mail import MOST
from han.tasks.bundles import Blocks, Members, Shelf


class Tree(Whole):
    """The messages of one task."""

    def _exchange(self) -> None:
        if self.task.kind == "gather":
            self._gather()
        else:
            self._scatter()
        self._keep(self.lots.to_keep(self.task, self.segment))

    # ---- who sends what -----------------------------------------------------------------------

    @kept
    def root(self) -> int:
        """The member to which all give, or that gives to all."""
        moves, size = self.lots.moves, self.context.group.size
        pairs = ((m, (m + 1) % size) for m in range(size))
        if self.task.kind == "gather":
            return next(m for m, other in pairs if moves.given(other, m))
        return next(m for m, other in pairs if moves.given(m, other))

    @kept
    def number(self) -> int:
        """How many members this one is behind the root."""
        return (self.context.group.me - self.root) % self.context.group.size

    @kept
    def parent(self) -> int:
        """The member that leads this one."""
        return (self.root + (self.number & (self.number - 1))) % self.context.group.size

    @kept
    def leads(self) -> Members:
        """This member and those that it leads, in order."""
        size = self.context.group.size
        span = self.number & -self.number if self.number else size
        numbers = range(self.number, min(self.number + span, size))
        return tuple([(self.root + k) % size for k in numbers])

    @kept
    def children(self) -> list[Members]:
        """What each member leads to which this one sends, or from which it receives."""
        found, distance = list[Members](), 1
        while distance < len(self.leads):
            found.append(self.leads[distance : 2 * distance])
            distance *= 2
        return found

    def _bundle(self, member: int) -> Blocks:
        moves = self.lots.moves
        if member == self.root:
            return ()
        gather = self.task.kind == "gather"
        return moves.given(member, self.root) if gather else moves.given(self.root, member)

    def _blocks(self, members: Members) -> tuple[int, ...]:
        return tuple(chain.from_iterable(map(self._bundle, members)))

    # ---- memory -------------------------------------------------------------------------------

    @kept
    def led(self) -> tuple[int, ...]:
        """The blocks of all members that this one leads."""
        return self._blocks(self.leads)

    @kept
    def shelf(self) -> Shelf:
        """The scratch memory for all blocks that this member leads."""
        return Shelf(Base.SCRATCH, self.led)

    @kept
    def room(self) -> Ref:
        """Where that memory is."""
        return self.stream.room(len(self.led) * self.lots.signature.nbytes, "tree")

    def _passed(self, blocks: tuple[int, ...]) -> Ref:
        """Return where blocks of one member or more are in scratch memory."""
        return self.lots.on(self.room, self.shelf, self._whole(blocks))

    def _cut_runs(self, blocks: Blocks, shelf: Shelf) -> list[Lot]:
        """Cut blocks into lots that lie in one piece on a shelf and in scratch memory."""
        signature = self.lots.signature
        groups = cut_blocks(blocks, self.task, signature, MOST, self.shelf, shelf)
        return [*chain.from_iterable(groups)]

    # ---- messages -----------------------------------------------------------------------------

    def _gather(self) -> None:
        me, moves = self.context.group.me, self.lots.moves
        coming = [*self._receive_all()]
        own = self._blocks((me,))
        runs = self._cut_runs(own, moves.source(me)) if own else []
        for lot in runs:
            self.stream.begin_blocks(self.task, lot.blocks, lot.stop)
        straight = len(runs) == 1 and not self.children
        for lot in () if straight else runs:
            self.lots.copy(self._passed(lot.blocks), self.lots.source(lot), lot)
        for blocks, request, passes in coming:
            self._complete(request)
            if passes and me == self.root:
                self._deliver(blocks)
        if me != self.root:
            place = self.lots.source(runs[0]) if straight else self.room
            self._send_to(self.parent, place, self.led)

    def _receive_all(self) -> Iterator[tuple[tuple[int, ...], int, bool]]:
        """Receive from all children: yield blocks, the request, and whether they are in scratch."""
        me, moves = self.context.group.me, self.lots.moves
        for members in self.children:
            blocks = self._blocks(members)
            runs = self._cut_runs(blocks, moves.result(me)) if me == self.root else []
            place = self.lots.result(runs[0]) if len(runs) == 1 else self._passed(blocks)
            yield blocks, self._receive_from(members[0], place, blocks), len(runs) != 1

    def _scatter(self) -> None:
        me, moves = self.context.group.me, self.lots.moves
        own = self._blocks((me,))
        runs = self._cut_runs(own, moves.result(me)) if own else []
        straight = len(runs) == 1 and not self.children
        if me != self.root:
            place = self.lots.result(runs[0]) if straight else self.room
            self._complete(self._receive_from(self.parent, place, self.led))
        for members in reversed(self.children):
            blocks = self._blocks(members)
            place = self._at_root(blocks) if me == self.root else self._passed(blocks)
            self._send_to(members[0], place, blocks)
        if straight:
            self.stream.end_blocks(self.task, own, self.lots.signature.nbytes)
        else:
            self._deliver(own)

    def _at_root(self, blocks: tuple[int, ...]) -> Ref:
        """Return where blocks are in one piece on the root, which may have to pack them."""
        runs = self._cut_runs(blocks, self.lots.moves.source(self.context.group.me))
        for lot in runs:
            self.stream.begin_blocks(self.task, lot.blocks, lot.stop)
        if len(runs) == 1:
            return self.lots.source(runs[0])
        for lot in runs:
            self.lots.copy(self._passed(lot.blocks), self.lots.source(lot), lot)
        return self._passed(blocks)

    def _deliver(self, blocks: tuple[int, ...]) -> None:
        """Copy blocks from scratch memory to where this member wants them."""
        for lot in self._cut_runs(blocks, self.lots.moves.result(self.context.group.me)):
            self.lots.copy(self.lots.result(lot), self._passed(lot.blocks), lot)
            self.stream.end_blocks(self.task, lot.blocks, lot.stop)
