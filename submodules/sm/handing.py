"""What ``pairs`` of ``sm`` does with blocks that a rank hands on (:mod:`han.tasks.handed`).

The rank that has received a block puts a small one into a cell. A large one stays in its receive
buffer, where the others read it by cross-memory attach.
"""

from __future__ import annotations

from dataclasses import dataclass

from han.common.kept import kept
from han.model.program import ALL
from han.submodules.parts.cells import COPIED, TAKEN
from han.submodules.sm.pair_cells import DATA, FACTS, START, PairCells, tell
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.handed import Handed, HandOn
from han.tasks.own_sizes import taken_from


@dataclass(frozen=True)
class Handing:
    """One rank's part in what ranks of its node hand on."""

    context: Context
    handed: Handed
    cells: PairCells

    def carry_out(self, task: Task) -> None:
        """Hand blocks on when they have come, then take those of others."""
        for k, one in enumerate(self.mine, 1):
            self._show(task, one, k)
        taken = [self._take_of(member) for member in self.context.others]
        if any(taken):
            self.context.stream.post(self.context.flag(self.context.group.me, COPIED), 1)
        for one in self.mine:
            self._leave(one)

    @kept
    def mine(self) -> tuple[HandOn, ...]:
        """What this rank hands on."""
        return self._of(self.context.group.me)

    def _of(self, member: int) -> tuple[HandOn, ...]:
        return self.handed.by_giver.get(self.context.group.ranks[member], ())

    def _show(self, task: Task, one: HandOn, number: int) -> None:
        """Put a block into a cell if it is small, and tell that it is there."""
        context, me, block = self.context, self.context.group.me, self._block(one)
        cell = self.cells.handed(context, me, number)
        context.stream.begin_blocks(task, (one.source,), 1)
        tell(context, cell, block)
        context.stream.copy(
            cell + DATA, context.result.behind(block), self._nbytes, block=block,
            upto=self.cells.room,
        )  # fmt: skip
        context.builder.show(context.group.level, given=True)
        context.stream.post(context.flag(me, TAKEN), number)

    def _take_of(self, member: int) -> bool:
        """Take the blocks that a member hands on to this one; return whether there are any."""
        rank = self.context.group.ranks[self.context.group.me]
        wanted = [(k, one) for k, one in enumerate(self._of(member), 1) if rank in one.takers]
        for number, one in wanted:
            self._take(member, one, number)
        return bool(wanted)

    def _take(self, member: int, one: HandOn, number: int) -> None:
        context, stream, block = self.context, self.context.stream, self._block(one)
        cell, giver = self.cells.handed(context, member, number), context.group.ranks[member]
        result, room = context.result.behind(block), self.cells.room
        stream.wait(context.flag(member, TAKEN), number, giver)
        stream.expect(cell + FACTS, self._nbytes, giver, block=block)
        stream.copy(result, cell + DATA, self._nbytes, block=block, upto=room)
        stream.pull(
            result, context.result, self._nbytes, context.peer(member), block=block, above=room,
            upto=ALL, from_=cell + START,
        )  # fmt: skip

    def _leave(self, one: HandOn) -> None:
        """Wait until a large block has been read."""
        context = self.context
        for rank in one.takers:
            flag = context.flag(context.group.ranks.index(rank), COPIED)
            context.stream.wait(
                flag, 1, rank, block=self._block(one), above=self.cells.room, upto=ALL
            )

    def _block(self, one: HandOn) -> int:
        return taken_from(one.source, self.handed.bundles.size)

    @property
    def _nbytes(self) -> int:
        """The bytes of a block, as long as its size is not known."""
        return self.context.builder.signature.nbytes
