"""The places of a rank in a ring: those of a tree, with tasks in the pieces that go round."""

from __future__ import annotations

from collections.abc import Sequence

from han.tasks.graph import Task
from han.tasks.outline import Outline
from han.tasks.place import Place
from han.tasks.ring import in_order, parts_of
from han.tasks.stream import Builder
from han.tasks.tree_places import Tree


class RingPlaces(Tree):
    """A node's task has a part for one or several pieces of the ring, in the ring's order."""

    def __init__(self, plan: Outline, builder: Builder) -> None:
        super().__init__(plan, builder)
        self.plan, view, root = plan, plan.topology, plan.signature.root
        self.top = view.active[-1]
        leader = view.leader(self.top - 1, builder.rank, root) if self.top else builder.rank
        group = view.group(self.top, leader, root)
        assert group is not None, "a leader has a group on the next level"
        self.node = group.me

    def at(self, tasks: Sequence[Task]) -> list[Place]:
        """Return the place for a batch of tasks; none if this rank has no part in them."""
        kind, level = tasks[0].stream
        if kind == "allreduce" and level == self.top:  # it takes pieces from several tasks
            return super().at(tasks)
        parts = tuple(part for task in tasks for part in self._parts(task))
        return [place._replace(tasks=parts) for place in super().at(tasks)]

    def _parts(self, task: Task) -> list[Task]:
        plan, signature = self.plan, self.plan.signature
        parts = parts_of(plan.topology, plan.choice, signature.grain, signature.collective, task)
        ordered = in_order(parts, task.kind, self.node)
        return [self.builder.part(task, start, stop) for start, stop in ordered]
