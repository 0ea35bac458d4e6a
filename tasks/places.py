"""Places: in which group a rank carries out tasks, and where its operand and its result are.

There is a class for each composition. `at` is called for batches of tasks in the order in which
they are lowered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from han.model.program import Base, Ref
from han.model.topology import Group
from han.tasks.compositions import lanes_of, nap_of, nodes_of
from han.tasks.context import Letters
from han.tasks.graph import Task
from han.tasks.outline import Outline
from han.tasks.shares import share
from han.tasks.stream import NOWHERE, Builder

SEND, RECV = Ref(Base.SEND), Ref(Base.RECV)


class Place(NamedTuple):
    """The group of a batch of tasks and the addresses of its data: fields of a Context."""

    tasks: tuple[Task, ...]
    group: Group
    source: Ref
    result: Ref
    contributes: tuple[bool, ...] = ()
    lanes: int = 0
    letters: Letters | None = None


class Tree:
    """Leaders on each level; all tasks of a stream have the same place."""

    def __init__(self, plan: Outline, builder: Builder) -> None:
        self.builder = builder
        self.groups = _groups(plan, builder.rank)
        self.where = _operands(plan, builder, self.groups)

    def at(self, tasks: Sequence[Task]) -> Place | None:
        """Return the place for a batch of tasks; None: this rank has no part in them."""
        kind, level = tasks[0].stream
        group = self.groups[level]
        if group is None or group.size < 2:
            return None
        source = RECV if kind == "bcast" else self.where[level]
        return Place(tuple(tasks), group, source, self.builder.acc if kind == "reduce" else RECV)

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


class _Nodes:
    """Two levels: nodes, in which all ranks form a group, and what is between nodes."""

    alone = False

    def __init__(self, plan: Outline, builder: Builder) -> None:
        self.plan, self.builder, self.view = plan, builder, plan.topology
        self.inner, self.outer = plan.topology.active
        group = plan.topology.group(self.inner, builder.rank, plan.signature.root)
        assert group is not None, "no rank leads another one below a node"
        self.group = group
        self.nodes = nodes_of(plan.topology)
        self.node = self.nodes.index(group.ranks)
        self.here = SEND  # where the operand or the partial result is


class NapPlaces(_Nodes):
    """The tasks of nap take turns inside nodes and between them; one segment has them all."""

    def __init__(self, plan: Outline, builder: Builder) -> None:
        super().__init__(plan, builder)
        self.nap = nap_of(plan.topology, plan.choice)
        self.inbox: Ref | None = None

    def at(self, tasks: Sequence[Task]) -> Place | None:
        """Return the place for one task; None: this rank has no part in it."""
        (task,) = tasks
        number = (task.step + 1) // 2
        return self._between(task, number) if task.step % 2 else self._inside(task, number)

    def _inside(self, task: Task, number: int) -> Place | None:
        """Return the place for the allreduce inside the node that follows a round."""
        group = self.group
        if group.size == 1:
            return None
        if not number:
            self.here = RECV
            return Place((task,), group, SEND, RECV)
        here = self.nap.round(self.node, number)
        if here.parts == 1:
            return None
        has = tuple(m < here.parts for m in range(group.size))
        source = RECV if group.me == here.own else self._inbox() if has[group.me] else NOWHERE
        return Place((task,), group, source, RECV, has)

    def _between(self, task: Task, number: int) -> Place | None:
        """Return the place for the messages of a round."""
        rank, me, here = self.builder.rank, self.group.me, self.nap.round(self.node, number)
        got = self.nap.receives(self.node, number)
        froms = [(part, peer) for part, (local, peer) in got.items() if local == me]
        to = [peer for local, peer in self.nap.sends(self.node, number) if local == me]
        ranks = (rank, *to, *(peer for _, peer in froms))
        if len(ranks) == 1:
            return None
        alone, source = self.group.size == 1, self.here
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


class LanePlaces(_Nodes):
    """Local rank i of every node is in lane i, which has share i of each segment."""

    def __init__(self, plan: Outline, builder: Builder) -> None:
        super().__init__(plan, builder)
        self.lanes = lanes_of(plan.topology, plan.choice)
        self.signature = plan.signature
        root = plan.signature.root
        self.root = next(k for k, ranks in enumerate(self.nodes) if root in ranks)
        reduces = plan.signature.reduces
        self.work = builder.accumulator() if reduces else RECV  # where shares are
        self.first = SEND if reduces else RECV

    def at(self, tasks: Sequence[Task]) -> Place | None:
        """Return the place for a batch of tasks; None: this rank has no part in them."""
        kind, level = tasks[0].stream
        if level == self.outer:
            return self._lane(tasks)
        rooted = kind in ("scatter", "gather") and self.node != self.root
        if self.group.size == 1 or rooted:
            return None
        first = kind in ("reduce_scatter", "scatter")
        source, result = (self.first, self.work) if first else (self.work, RECV)
        return Place(tuple(tasks), self.group, source, result, lanes=self.lanes)

    def _lane(self, tasks: Sequence[Task]) -> Place | None:
        """Return the place for this rank's lane, with its share of each segment."""
        me, kind = self.group.me, tasks[0].kind
        if me >= self.lanes:
            return None
        ranks = tuple(node[me] for node in self.nodes)
        home = {rank: k for k, rank in enumerate(self.view.home(self.outer, self.builder.rank))}
        slots = tuple(home[r] for r in ranks)
        group = Group(self.outer, ranks, slots, self.root, self.node)
        own = self.first if self.group.size == 1 and kind != "bcast" else self.work
        return Place(tuple(map(self._share, tasks)), group, own, self.work)

    def _share(self, task: Task) -> Task:
        start, stop = share(task.nbytes, self.signature.grain, self.group.me, self.lanes)
        return self.builder.part(task, task.start + start, task.start + stop)


Places = Tree | NapPlaces | LanePlaces
PLACES: Mapping[str, type[Places]] = {"nap": NapPlaces, "lanes": LanePlaces}


def places(plan: Outline, builder: Builder) -> Places:
    """Return this rank's places in a plan."""
    return PLACES.get(plan.choice.composition, Tree)(plan, builder)
