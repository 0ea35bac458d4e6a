"""The places of a rank in lanes: shares inside its node, and its lanes between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from han.model.program import Ref
from han.model.topology import Group
from han.tasks.graph import Task
from han.tasks.lanes import Lanes, Path, outer_levels
from han.tasks.outline import Outline
from han.tasks.place import RECV, SEND, Place
from han.tasks.shares import share
from han.tasks.stream import Builder


def _lanes(plan: Outline) -> Lanes:
    """Return the lanes of a plan, the same for all ranks."""
    found: Lanes | None = plan.layouts.get(Lanes)
    if found is None:
        found = plan.layouts[Lanes] = Lanes(plan.topology, plan.choice)
    return found


class LanePlaces:
    """On each level inside nodes a rank's share is cut again; its lanes combine what is left."""

    alone = False

    def __init__(self, plan: Outline, builder: Builder) -> None:
        self.signature, self.builder = plan.signature, builder
        self.view, self.rank, self.root = plan.topology, builder.rank, plan.signature.root
        self.lanes = _lanes(plan)
        self.paths = self.lanes.carried(builder.rank)
        self.inside = {k: self._inside(n) for n, k in enumerate(self.lanes.inner)}
        self.between: dict[tuple[int, Path], Group | None] = {
            (level, path): self.lanes.between(level, builder.rank, self.root, path)
            for level in outer_levels(plan.topology)
            for path in self.paths
        }
        reduces = plan.signature.reduces
        self.work = builder.accumulator() if reduces else RECV  # where shares are
        self.where = self._operands(SEND if reduces else RECV)

    def _inside(self, number: int) -> Group | None:
        """Return the group on an inner level, whose root has the unit of the call's root."""
        group, level = self.lanes.inside(self.rank, number), self.lanes.inner[number]
        if group is None or group.size < 2:
            return None
        ours = self.with_root(level)
        return replace(group, root=self.lanes.unit(self.root, number)) if ours else group

    def with_root(self, level: int) -> bool:
        """Return whether a rank's domain on a level has the root of the call."""
        return self.view.domains[level][self.root] == self.view.domains[level][self.rank]

    def _operands(self, here: Ref) -> dict[int, Ref]:
        """Return where this rank's operand on each level is, before it is combined there."""
        found = {}
        for level in self.lanes.inner:
            found[level] = here
            here = here if self.inside[level] is None else self.work
        for level in outer_levels(self.view):
            found[level] = here
            group = self.between[level, self.paths[0]] if self.paths else None
            here = self.work if group is not None and group.leads else here
        return found

    def at(self, tasks: Sequence[Task]) -> list[Place]:
        """Return the places for a batch of tasks; none if this rank has no part in them.

        A rank with several lanes carries out a segment in one lane after the other.
        """
        kind, level = tasks[0].stream
        if level in self.inside:
            return self._shares(tasks)
        source = self.work if kind == "bcast" else self.where[level]
        groups = [(path, group) for path in self.paths if (group := self.between[level, path])]
        if len(groups) == 1:
            ((path, group),) = groups
            return [Place(self.parts(tasks, path), group, source, self.work)]
        return [
            Place(self.parts((task,), path), group, source, self.work)
            for task in tasks
            for path, group in groups
        ]

    def _shares(self, tasks: Sequence[Task]) -> list[Place]:
        """Return the place in the group of an inner level."""
        kind, level = tasks[0].stream
        group, number = self.inside[level], self.lanes.inner.index(level)
        rooted = kind in ("scatter", "gather") and not self.with_root(level)
        if group is None or rooted:
            return []
        first = kind in ("reduce_scatter", "scatter")
        prefix = self.lanes.prefix(self.rank, number) or ()
        source = self.where[level] if first else self.work
        owners = self.lanes.owners(level, self.view.domains[level][self.rank])
        return [Place(self.parts(tasks, prefix), group, source, self.work, owners=owners)]

    def parts(self, tasks: Sequence[Task], path: Path) -> tuple[Task, ...]:
        """Return the parts of tasks that a path leads to."""
        return tuple(self._part(task, path) for task in tasks) if path else tuple(tasks)

    def _part(self, task: Task, path: Path) -> Task:
        start, stop = task.start, task.stop
        for number, lanes in zip(path, self.lanes.counts, strict=False):
            first, last = share(stop - start, self.signature.grain, number, lanes)
            start, stop = start + first, start + last
        return self.builder.part(task, start, stop)
