"""Scans over nodes: the steps of a tree of two levels, and the places of a rank in them.

1. The ranks of a node scan. The last one leads the node: it gets the node's total, which it
   combines from its result and its operand if the scan is exclusive.
2. The leaders scan the totals exclusively. Each gets the prefix of its node.
3. They broadcast it inside their nodes.
4. Every rank combines it with its own result.

A leader combines a total, and a rank its result, in its own memory: tasks of kind ``reduce`` that
no submodule carries out. The ranks of the first node have no prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from han.model.program import Ref
from han.model.topology import Group
from han.tasks.graph import Task
from han.tasks.outline import Outline
from han.tasks.places import RECV, SEND, Place
from han.tasks.steps import Steps
from han.tasks.stream import Builder, Stream


def of_scan(collective: str, node: int, outer: int) -> Steps:
    """Return the steps of a scan inside nodes and between them."""
    total = [("reduce", node)] if collective == "exscan" else []
    steps = [(collective, node), *total, ("exscan", outer), ("bcast", node)]
    return [*steps, ("reduce", outer)]  # sp, ixp, sb, ir


class ScanPlaces:
    """The places of a rank: in its node, and among the leaders if it is one of them."""

    alone = False

    def __init__(self, plan: Outline, builder: Builder) -> None:
        self.builder, self.collective = builder, plan.signature.collective
        self.node, self.outer = plan.levels
        view, rank = plan.topology, builder.rank
        ranks = view.domain(self.node, rank)
        leaders = tuple(ranks[-1] for ranks in view.node_ranks)
        slots, last = view.slots(self.node, ranks), len(ranks) - 1
        self.inside = Group(self.node, ranks, slots, last, ranks.index(rank))
        numbers = tuple(range(len(leaders)))
        self.between = Group(self.outer, leaders, numbers, 0, leaders.index(ranks[-1]))
        self.own = self._own()
        self.total = self._total()
        self.prefix = self._prefix()

    def _room(self) -> Ref:
        return self.builder.scratch(self.builder.signature.nbytes)

    def _own(self) -> Ref | None:
        """Return where the result of the scan inside the node is; None: there is none.

        An exclusive scan needs the leader's operand later, so its result must not replace it.
        """
        inside, inclusive = self.inside, self.collective == "scan"
        if not inside.me and not inclusive:
            return None
        if inside.size == 1:
            return SEND
        return RECV if inclusive or not inside.leads else self._room()

    def _total(self) -> Ref:
        """Return where the leader has the node's total."""
        if self.own is None:
            return SEND
        return self.own if self.collective == "scan" or not self.inside.leads else self._room()

    def _prefix(self) -> Ref | None:
        """Return where the prefix of the node comes to; None: it has none."""
        if not self.between.me:
            return None
        return RECV if self.own is None else self._room()

    def at(self, tasks: Sequence[Task]) -> list[Place]:
        """Return the place for a batch of tasks; none if no submodule has a part in them."""
        kind, level = tasks[0].stream
        if kind == "reduce":
            (self._add_up if level == self.node else self._combine)(tasks)
            return []
        if level == self.outer:
            place = Place(tuple(tasks), self.between, self.total, self.prefix or RECV)
            return [place] if self.inside.leads else []
        if self.inside.size == 1:
            return []
        if kind != "bcast":
            return [Place(tuple(tasks), self.inside, SEND, self.own or RECV)]
        if self.prefix is None:
            return []
        return [Place(tuple(tasks), self.inside, self.prefix, self.prefix)]

    def _add_up(self, tasks: Sequence[Task]) -> None:
        """Combine the node's total from the leader's result and its operand."""
        if self.inside.leads and self.own is not None:
            stream = self.builder.stream(*tasks[0].stream)
            _each(stream, tasks, self.total, self.own, SEND)

    def _combine(self, tasks: Sequence[Task]) -> None:
        """Combine the node's prefix with this rank's result inside the node."""
        if self.own is None or (self.prefix is None and self.own == RECV):
            return
        stream = self.builder.stream(*tasks[0].stream)
        _each(stream, tasks, RECV, self.prefix, self.own)


def _each(stream: Stream, tasks: Sequence[Task], result: Ref, before: Ref | None, own: Ref) -> None:
    """Combine an operand with the one before it, or copy it if there is none before it."""
    for task in tasks:
        stream.begin(task)
        here, mine = result.to(task.start), own.to(task.start)
        if before is None:
            stream.copy(here, mine, task.nbytes)
        else:
            stream.reduce(here, before.to(task.start), mine, task.nbytes)
        stream.end(task)
