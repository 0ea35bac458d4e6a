"""Ranks of a ring whose programs are alike: to their nodes come pieces of the same sizes.

Nodes pass pieces on to the next one, and all do the same, a block later. A node's program follows
from the sizes of the pieces in the order in which they come to it, from which parts of tasks inside
the node they are in, and from the places of its ranks inside it, as in a tree. Its ranks name each
other and, the leader, the leaders of the nodes before and behind it. Offsets in buffers differ.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain

from han.tasks.equal_lanes import groups_inside, place_of
from han.tasks.equal_messages import Kind
from han.tasks.graph import Task
from han.tasks.plan import Plan
from han.tasks.ring import SEGMENT, block_at, blocks_of, in_order, parts_of

KINDS = ("reduce", "bcast")


class RingRoles:
    """The roles of ranks in an allreduce by a ring of nodes."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.whole = plan, plan.largest or plan  # the plan that is lowered
        self._nodes: dict[int, Hashable] = {}

    @classmethod
    def of(cls, plan: Plan) -> RingRoles | None:
        """Return the roles of a plan, or None if each rank is to be lowered.

        In a shorter message of a class, the sizes of pieces are not those of the longest one.
        """
        apart = plan.lockstep or plan.repeats or plan.signature.canonical or plan.shortened
        return None if apart or plan.signature.collective != "allreduce" else cls(plan)

    def kind(self, rank: int) -> Kind:
        """Return what tells the role of a rank from others, and the ranks that it may name."""
        view, root = self.whole.topology, self.whole.signature.root
        top = view.active[-1]
        leader = view.leader(top - 1, rank, root)
        ring = view.group(top, leader, root)
        assert ring is not None, "a leader has a group on the next level"
        inside = groups_inside(view, rank, root)
        ranks = list(chain.from_iterable(group.ranks for group in inside))
        if rank == leader:
            ranks += [ring.ranks[(ring.me + step) % ring.size] for step in (-1, 1)]
        places = tuple([place_of(group, view.sockets) for group in inside])
        return (rank == leader, places, self._node(ring.me, ring.size)), ranks

    def _node(self, node: int, nodes: int) -> Hashable:
        """Return the pieces of a node in their order, of a task of each size."""
        if node not in self._nodes:
            tasks = {task.nbytes: task for some in self.whole.streams.values() for task in some}
            self._nodes[node] = tuple([self._pieces(node, nodes, tasks[n]) for n in sorted(tasks)])
        return self._nodes[node]

    def _pieces(self, node: int, nodes: int, task: Task) -> Hashable:
        """Return the sizes of pieces of a task hop by hop, and the parts of it that have them."""
        plan, signature = self.whole, self.whole.signature
        view, choice = plan.topology, plan.choice
        parts = parts_of(view, signature, choice, task)
        most = choice.levels[view.active[-1]].get("segment", SEGMENT)
        blocks = blocks_of(task, signature.grain, nodes, most)
        orders = [in_order(parts, kind, node) for kind in KINDS]
        sizes = tuple([tuple([stop - start for start, stop in order]) for order in orders])
        numbers = [{part: k for k, part in enumerate(order)} for order in orders]
        hops = []
        for block in [block_at(node, nodes, hop) for hop in range(nodes)]:
            group = parts.groups[block // parts.joined] if blocks[block] else ()
            found = tuple([number[part] for number in numbers for part in group])
            hops.append((tuple([stop - start for start, stop in blocks[block]]), found))
        return sizes, tuple(hops)
