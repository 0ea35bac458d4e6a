"""The places of a rank in nap: a tree inside its node, and messages between nodes."""

from __future__ import annotations

from collections.abc import Sequence

from han.model.program import Ref
from han.model.topology import Group
from han.tasks.compositions import nap_of
from han.tasks.context import Letters
from han.tasks.graph import Task
from han.tasks.lanes import inner_levels
from han.tasks.outline import Outline
from han.tasks.place import RECV, SEND, Place
from han.tasks.stream import NOWHERE, Builder


class NapPlaces:
    """The tasks of nap take turns inside nodes and between them; one segment has them all.

    After a round, the first ranks of a node have the operands that are combined inside it. So the
    lowest rank of a domain, which leads it, has an operand if any of its ranks has one.
    """

    alone = False

    def __init__(self, plan: Outline, builder: Builder) -> None:
        view, rank = plan.topology, builder.rank
        self.plan, self.builder = plan, builder
        self.nap = nap_of(view, plan.choice)
        self.outer = view.active[-1]
        ranks = view.domain(inner_levels(view)[-1], rank)
        self.ranks, self.node, self.me = ranks, view.node_ranks.index(ranks), ranks.index(rank)
        self.groups = {k: _group(view.group(k, rank, 0)) for k in inner_levels(view)}
        self.first = next((k for k, group in self.groups.items() if group is not None), None)
        self.each = len({t.step for t in plan.tasks if t.level != self.outer}) // (
            self.nap.rounds + 1
        )
        self.here = SEND  # where the operand or the partial result of the node is
        self.inbox: Ref | None = None

    def at(self, tasks: Sequence[Task]) -> list[Place]:
        """Return the place for one task; none if this rank has no part in it."""
        (task,) = tasks
        number = (task.step + 1) // (self.each + 1) if task.level != self.outer else 0
        if task.level == self.outer:
            place = self._between(task, 1 + task.step // (self.each + 1))
        else:
            place = self._inside(task, number)
        return [] if place is None else [place]

    def _inside(self, task: Task, number: int) -> Place | None:
        """Return the place for a task of the allreduce inside the node that follows a round."""
        group, parts = self.groups[task.level], len(self.ranks)
        if group is None:
            return None
        self.here = RECV
        if number:
            parts = self.nap.round(self.node, number).parts
            if parts == 1:
                return None
        if task.kind == "bcast":
            return Place((task,), group, RECV, RECV)
        has = tuple(self.ranks.index(rank) < parts for rank in group.ranks) if number else ()
        return Place((task,), group, self._operand(task.level, number, parts), RECV, has)

    def _operand(self, level: int, number: int, parts: int) -> Ref:
        """Return where this rank's operand on a level is; it may have none."""
        if level != self.first:
            return RECV if self.me < parts else NOWHERE
        if not number:
            return SEND
        own = self.nap.round(self.node, number).own
        return RECV if self.me == own else self._inbox() if self.me < parts else NOWHERE

    def _between(self, task: Task, number: int) -> Place | None:
        """Return the place for the messages of a round."""
        rank, me, here = self.builder.rank, self.me, self.nap.round(self.node, number)
        got = self.nap.receives(self.node, number)
        froms = [(part, peer) for part, (local, peer) in got.items() if local == me]
        to = [peer for local, peer in self.nap.sends(self.node, number) if local == me]
        ranks = (rank, *to, *(peer for _, peer in froms))
        if len(ranks) == 1:
            return None
        alone, source = len(self.ranks) == 1, self.here
        letters = Letters(
            tuple(range(1, len(to) + 1)),
            tuple(range(len(to) + 1, len(ranks))),
            alone,
            sum(part < here.own for part, _ in froms),
        )
        if alone:
            self.here = RECV
        result = RECV if alone else self._inbox() if froms else NOWHERE
        group = Group(self.outer, ranks, tuple(range(len(ranks))), 0, 0)
        return Place((task,), group, source, result, letters=letters)

    def _inbox(self) -> Ref:
        if self.inbox is None:
            self.inbox = self.builder.scratch(self.plan.signature.nbytes)
        return self.inbox


def _group(group: Group | None) -> Group | None:
    return None if group is None or group.size < 2 else group
