"""Places: in which group a rank carries out tasks, and where its operand and its result are.

There is a class for each composition, which its row names. `at` is called for batches of tasks in
the order in which they are lowered. A rank may have several places in a batch, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from han.model.program import Base, Ref
from han.model.topology import Group
from han.tasks.block_memory import STAGED
from han.tasks.block_steps import BlockSteps
from han.tasks.bundles import Moves, Shelf, block_of
from han.tasks.context import Letters
from han.tasks.graph import Task
from han.tasks.lanes import Lanes, Path, inner_levels, outer_levels
from han.tasks.nap import nap_of
from han.tasks.outline import Outline
from han.tasks.ring import in_order, parts_of
from han.tasks.shares import share
from han.tasks.stream import NOWHERE, Builder

SEND, RECV = Ref(Base.SEND), Ref(Base.RECV)


class Place(NamedTuple):
    """The group of a batch of tasks and the addresses of its data: the last fields of a Context."""

    tasks: tuple[Task, ...]
    group: Group
    source: Ref
    result: Ref
    contributes: tuple[bool, ...] = ()
    owners: tuple[int, ...] = ()
    letters: Letters | None = None
    moves: Moves | None = None


# ---- tree, flat ----------------------------------------------------------------------------------


class TreePlaces:
    """Leaders on each level; all tasks of a stream have the same place."""

    def __init__(self, plan: Outline, builder: Builder) -> None:
        self.builder = builder
        self.groups = _tree_groups(plan, builder.rank)
        self.where = _tree_operands(plan, builder, self.groups)

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


def _tree_groups(plan: Outline, rank: int) -> dict[int, Group | None]:
    topology, signature = plan.topology, plan.signature
    return {k: topology.group(k, rank, signature.root) for k in range(topology.depth)}


def _tree_operands(
    plan: Outline, builder: Builder, groups: Mapping[int, Group | None]
) -> dict[int, Ref]:
    """Return where this rank's operand on each level is: its send buffer, or its partial result.

    A leader reduces into its receive buffer where it has one (Jain, section III-E), so that no
    level needs a copy of its own.
    """
    if plan.signature.collective == "bcast":
        return dict.fromkeys(groups, RECV)
    where, here = {}, SEND
    for level, group in groups.items():
        where[level] = here
        if group is None or not group.leads:
            break
        if group.size > 1 and here.base == Base.SEND:
            here = builder.accumulator()
    builder.acc = here
    return where


# ---- ring ----------------------------------------------------------------------------------------


class RingPlaces(TreePlaces):
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
        plan = self.plan
        parts = parts_of(plan.topology, plan.signature, plan.choice, task)
        ordered = in_order(parts, task.kind, self.node)
        return [self.builder.part(task, start, stop) for start, stop in ordered]


# ---- nap -----------------------------------------------------------------------------------------


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
        self.groups = {k: _of_several(view.group(k, rank, 0)) for k in inner_levels(view)}
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


def _of_several(group: Group | None) -> Group | None:
    return None if group is None or group.size < 2 else group


# ---- lanes ---------------------------------------------------------------------------------------


class LanePlaces:
    """On each level inside nodes a rank's share is cut again; its lanes combine what is left."""

    alone = False

    def __init__(self, plan: Outline, builder: Builder) -> None:
        self.signature, self.builder = plan.signature, builder
        self.view, self.rank, self.root = plan.topology, builder.rank, plan.signature.root
        self.lanes = plan.layout(Lanes, lambda: Lanes(plan.topology, plan.choice))
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


# ---- blocks --------------------------------------------------------------------------------------


class BlockPlaces:
    """A block for each rank: on one level of all ranks, or in steps over nodes."""

    def __init__(self, plan: Outline, builder: Builder) -> None:
        self.plan, self.builder, self.rank = plan, builder, builder.rank
        self.alone = not plan.levels
        self.scratch: dict[int, Ref] = {}

    def at(self, tasks: Sequence[Task]) -> list[Place]:
        """Return the places for a batch of tasks; none if this rank has no part in them."""
        steps, level = self.plan.block_steps, tasks[0].level
        if steps is None:
            return [self._together(tuple(tasks))]
        if level == self.plan.levels[-1] and len(steps.bundles.nodes) > 1:
            return self._between(steps, tuple(tasks))
        return self._inside(steps, tuple(tasks))

    def _together(self, tasks: tuple[Task, ...]) -> Place:
        """Return the place on the level that holds all ranks."""
        ranks = tuple(range(self.plan.topology.size))
        group = Group(tasks[0].level, ranks, ranks, self.plan.signature.root, self.rank)
        return Place(tasks, group, SEND, RECV)

    def _inside(self, steps: BlockSteps, tasks: tuple[Task, ...]) -> list[Place]:
        """Return the place inside the rank's node."""
        (kind, level), (node, me) = tasks[0].stream, steps.bundles.place(self.rank)
        moves = self.plan.layout((kind, node), lambda: steps.inside(kind, node))
        ranks = steps.bundles.nodes[node]
        group = Group(level, ranks, self.plan.topology.slots(level, ranks), 0, me)
        return [] if moves is None else [self._place(tasks, group, moves)]

    def _between(self, steps: BlockSteps, tasks: tuple[Task, ...]) -> list[Place]:
        """Return the place among the ranks of a lane, or in a flat call of all."""
        lane = steps.bundles.place(self.rank)[1]
        if steps.flat:
            ranks, lane = steps.bundles.all_ranks, 0
        elif lane >= steps.bundles.lanes:
            return []
        else:
            ranks = tuple(ranks[lane] for ranks in steps.bundles.nodes)
        moves = self.plan.layout(("between", lane), lambda: steps.between(lane))
        group = Group(tasks[0].level, ranks, tuple(range(len(ranks))), 0, ranks.index(self.rank))
        return [self._place(tasks, group, moves)]

    def _place(self, tasks: tuple[Task, ...], group: Group, moves: Moves) -> Place:
        source, result = moves.source(group.me), moves.result(group.me)
        if source.number == STAGED and STAGED not in self.scratch:
            self._stage(tasks, source)
        return Place(tasks, group, self._memory(source), self._memory(result), moves=moves)

    def _stage(self, tasks: tuple[Task, ...], shelf: Shelf) -> None:
        """Copy the blocks of a call in place away from where others will be received."""
        stream, signature = self.builder.stream(*tasks[0].stream), self.plan.signature
        memory, nbytes = self._memory(shelf), signature.nbytes
        stream.label(tasks[0])
        for k in range(len(shelf.blocks)) if signature.uneven else ():
            own = signature.length(k) if signature.counts else nbytes
            stream.copy(memory + k * nbytes, block_of(SEND, k, signature), own, block=k, count=1)
        if not signature.uneven:
            count = len(shelf.blocks)
            stream.copy(memory, SEND, count * nbytes, count=count)
        self.builder.staged = stream, len(stream)
        for task in tasks:
            stream.end_blocks(task, shelf.blocks, task.stop)

    def _memory(self, shelf: Shelf) -> Ref:
        """Return where the blocks of a shelf are in this rank's memory."""
        if shelf.base != Base.SCRATCH:
            return Ref(shelf.base)
        found = self.scratch.get(shelf.number)
        if found is None:
            found = self.builder.scratch(len(shelf.blocks) * self.plan.signature.nbytes)
            self.scratch[shelf.number] = found
        return found


Places = TreePlaces | NapPlaces | LanePlaces | BlockPlaces
