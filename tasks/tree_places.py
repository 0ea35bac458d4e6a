"""The places of a rank in a tree: among the leaders on each level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from han.model.program import Base, Ref
from han.model.topology import Group
from han.tasks.graph import Task
from han.tasks.outline import Outline
from han.tasks.place import RECV, SEND, Place
from han.tasks.stream import Builder


class Tree:
    """Leaders on each level; all tasks of a stream have the same place."""

    def __init__(self, plan: Outline, builder: Builder) -> None:
        self.builder = builder
        self.groups = _groups(plan, builder.rank)
        self.where = _operands(plan, builder, self.groups)

    def at(self, tasks: Sequence[Task]) -> list[Place]:
        """Return the places for a batch of tasks; none if this rank has no part in them."""
        kind, level = tasks[0].stream
        group = self.groups[level]
        if group is None or group.size < 2:
            return []
        source = RECV if kind == "bcast" else self.where[level]
        return [Place(tuple(tasks), group, source, self.builder.acc if kind == "reduce" else RECV)]

    @property
    def alone(self) -> bool:
        """Whether this rank communicates on no level."""
        return all(group is None or group.size < 2 for group in self.groups.values())


def _groups(plan: Outline, rank: int) -> dict[int, Group | None]:
    topology, signature = plan.topology, plan.signature
    if signature.by_blocks:
        return {k: topology.everyone(k, rank, signature.root) for k in plan.levels}
    return {k: topology.group(k, rank, signature.root) for k in range(topology.depth)}


def _operands(
    plan: Outline, builder: Builder, groups: Mapping[int, Group | None]
) -> dict[int, Ref]:
    """Return where this rank's operand on each level is: its send buffer, or its partial result.

    A leader reduces into its receive buffer where it has one (Jain, section III-E), so that no
    level needs a copy of its own.
    """
    if plan.signature.collective == "bcast":
        return dict.fromkeys(groups, RECV)
    if plan.signature.by_blocks:
        return dict.fromkeys(groups, SEND)
    where, here = {}, SEND
    for level, group in groups.items():
        where[level] = here
        if group is None or not group.leads:
            break
        if group.size > 1 and here.base == Base.SEND:
            here = builder.accumulator()
    builder.acc = here
    return where
