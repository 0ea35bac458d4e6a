"""The algorithm ``pairs`` of ``sm``: blocks whose sizes only their sender and their receiver know.

A sender puts a small block into a cell of its receiver, and beside it the block's size and where it
begins in the send buffer. A large block stays there: the receiver reads it by cross-memory attach.
Both know which of the two it is. A rank that sends a large block leaves when it has been read.

Source: Jain et al., section III (cells), for blocks of any size.
"""

from __future__ import annotations

from dataclasses import dataclass

from han.common.kept import kept
from han.model.channel_layout import LINE, lines
from han.model.program import ALL, OWN_BLOCK, Base, Ref
from han.submodules.parts.cells import GATHERED, READ, Members
from han.tasks.bundles import Moves
from han.tasks.context import Context
from han.tasks.outline import Outline
from han.tasks.own_sizes import sent_to, taken_from
from han.tasks.stream import Peer

BESIDE = LINE // 2  # bytes of a cell for the facts about its block, which begins behind them
START = OWN_BLOCK.fields["start"][1]  # of these facts, behind the size


def takers_of(moves: Moves, member: int, size: int) -> Members:
    """Return the other members to which one gives a block."""
    return tuple(m for m in range(size) if m != member and moves.given(member, m))


@dataclass(frozen=True)
class PairCells:
    """The cells of a rank: one for each block that it gives, of up to `room` bytes."""

    parts: int
    room: int

    @classmethod
    def of(cls, plan: Outline, level: int) -> PairCells:
        """Fit the cells into the part of the ring that a run has."""
        geometry, steps = plan.geometries[level], plan.block_steps
        assert geometry is not None and steps is not None
        parts = max(1, steps.most_takers)
        room = geometry.area // parts // LINE * LINE - BESIDE
        return cls(parts, max(0, min(room, plan.signature.nbytes)))

    @property
    def stride(self) -> int:
        """Bytes from cell to cell."""
        return lines(BESIDE + self.room)


def footprint(plan: Outline, level: int) -> int:
    """Return the bytes of each rank's ring that a run takes."""
    cells = PairCells.of(plan, level)
    return cells.parts * cells.stride


def pairs(context: Context) -> None:
    """Emit this rank's copies of the blocks that members give to each other."""
    for task in context.tasks:
        context.stream.label(task)
        one = _Pairs(context)
        one.give()
        one.keep()
        one.take()
        one.leave()
        context.stream.end(task)


@dataclass(frozen=True)
class _Pairs:
    """One rank's blocks in a group."""

    context: Context

    @kept
    def moves(self) -> Moves:
        """What members give to each other."""
        assert self.context.moves is not None, "calls by blocks have moves"
        return self.context.moves

    @kept
    def cells(self) -> PairCells:
        """The cells of all members."""
        return PairCells.of(self.context.builder.plan, self.context.group.level)

    @kept
    def takers(self) -> Members:
        """The members to which this one gives a block."""
        return takers_of(self.moves, self.context.group.me, self.context.group.size)

    @kept
    def givers(self) -> Members:
        """The members of which this one takes a block, the next one first."""
        return tuple(m for m in self.context.others if self.moves.given(m, self.context.group.me))

    def give(self) -> None:
        """Put small blocks into cells, and let the takers read the others."""
        stream, me = self.context.stream, self.context.group.me
        for m in self.takers:
            block, cell = self._sent(m), self._cell(me, m)
            facts = Ref(Base.TABLE, (block - 1) * OWN_BLOCK.itemsize)
            stream.copy(cell, facts, OWN_BLOCK.itemsize)
            if self.cells.room:
                stream.copy(
                    cell + BESIDE, self.context.source.behind(block), self.nbytes, block=block,
                    upto=self.cells.room,
                )  # fmt: skip
        if self.takers:
            self.context.builder.show(self.context.group.level)
            stream.post(self.context.flag(me, GATHERED), 1)

    def keep(self) -> None:
        """Copy this rank's block for itself."""
        me, context = self.context.group.me, self.context
        if self.moves.given(me, me):
            block, to = self._sent(me), context.result.behind(self._taken(me))
            context.stream.copy(to, context.source.behind(block), self.nbytes, block=block)

    def take(self) -> None:
        """Copy or read what other members give to this one."""
        stream, group = self.context.stream, self.context.group
        for m in self.givers:
            rank, block, cell = group.ranks[m], self._taken(m), self._cell(m, group.me)
            result, room = self.context.result.behind(block), self.cells.room
            stream.wait(self.context.flag(m, GATHERED), 1, rank)
            stream.expect(cell, self.nbytes, rank, block)
            if room:
                stream.copy(result, cell + BESIDE, self.nbytes, block=block, upto=room)
            stream.pull(
                result, self.context.source, self.nbytes, self._peer(m), block=block, above=room,
                upto=ALL, from_=cell + START,
            )  # fmt: skip
        if self.givers:
            stream.post(self.context.flag(group.me, READ), 1)

    def leave(self) -> None:
        """Wait until large blocks have been read."""
        for m in self.takers:
            flag, rank = self.context.flag(m, READ), self.context.group.ranks[m]
            block, room = self._sent(m), self.cells.room
            self.context.stream.wait(flag, 1, rank, block=block, above=room, upto=ALL)

    @property
    def nbytes(self) -> int:
        """The bytes of a block, as long as its size is not known."""
        return self.context.builder.signature.nbytes

    def _sent(self, member: int) -> int:
        return sent_to(self.context.group.ranks[member])

    def _taken(self, member: int) -> int:
        return taken_from(self.context.group.ranks[member], self.context.builder.plan.topology.size)

    def _cell(self, giver: int, taker: int) -> Ref:
        """Return the cell for the block from one member to another."""
        number = takers_of(self.moves, giver, self.context.group.size).index(taker)
        return self.context.cells(giver) + number * self.cells.stride

    def _peer(self, member: int) -> Peer:
        group, builder = self.context.group, self.context.builder
        return Peer(group.ranks[member], builder.channel(group.level), group.slots[member])
