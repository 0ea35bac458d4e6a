"""Copies of an allgather that travel as messages of the same node, beside those that remain.

A member takes the blocks of other members, the next one first. Those of the first `offload` of
them come as messages, so that adapters carry a part of what processors would copy. A branch of the
stream sends and receives; the stream itself copies meanwhile. Flags are posted and awaited as
without messages, so the use of cells does not depend on them.

Source: Tran et al., section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from han.common.kept import kept
from han.model.program import Ref
from han.submodules.parts.lots import Lot, Named
from han.tasks.bundles import Members
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.stream import Stream

Start = Callable[..., None]  # a stream's method that starts a message
KIND = "allgather"  # the kind of tasks whose copies may be messages


class Letter(NamedTuple):
    """A message to or from a member, and how its operation names what it moves."""

    member: int
    place: Ref
    nbytes: int
    lot: Lot
    named: Named


class Offload:
    """What a rank sends and receives in place of copies."""

    def __init__(self, context: Context) -> None:
        self.context = context
        wanted = context.choice.get("offload", 0)
        self.number = wanted if context.stream.kind == KIND else 0

    @kept
    def sources(self) -> Members:
        """The members whose blocks this rank receives as messages."""
        return self._sources_of(self.context.group.me)

    @kept
    def targets(self) -> Members:
        """The members to which this rank sends its blocks."""
        me = self.context.group.me
        if not self.number or not self._gives(me):
            return ()
        return tuple(m for m in self.context.others if me in self._sources_of(m))

    @property
    def copied(self) -> bool:
        """Whether any member copies what this rank shows."""
        return len(self.targets) < self.context.group.size - 1

    def _sources_of(self, member: int) -> Members:
        size = self.context.group.size
        following = ((member + k) % size for k in range(1, size if self.number else 1))
        return tuple([m for m in following if self._gives(m)][: self.number])

    def _gives(self, member: int) -> bool:
        moves = self.context.moves
        return moves is None or bool(moves.gives(member))

    def carry_out(self, task: Task, receives: Iterable[Letter], sends: Iterable[Letter]) -> None:
        """Emit the messages of a task; the stream waits for them here."""
        if not self.sources and not self.targets:
            return
        branch, started = self._branch, list[int]()
        branch.begin_blocks(task, (), task.stop)
        for letter in receives:
            started.append(self._start(branch.irecv, letter))
        for letter in sends:
            branch.begin_blocks(task, letter.lot.blocks, letter.lot.stop)
            started.append(self._start(branch.isend, letter))
        for request in started:
            branch.test(request)
        self._free += reversed(started)
        self.context.stream.follow(branch)

    @kept
    def _branch(self) -> Stream:
        return self.context.builder.branch(self.context.stream, 0)

    @kept
    def _free(self) -> list[int]:
        """The requests that are complete."""
        return []

    def _start(self, start_message: Start, letter: Letter) -> int:
        request = self._free.pop() if self._free else self.context.builder.request()
        rank = self.context.group.ranks[letter.member]
        start_message(letter.place, letter.nbytes, rank, request, **letter.named)
        return request
