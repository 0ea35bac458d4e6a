"""Broadcast and reduce by the cyclic shift: a broadcast scatters first, a reduce gathers last.

Members are numbered from the root. A member receives the blocks of all members up to the next one
that its parent sends to, keeps its own and sends the others on. The gather is the same backwards.

Source: Jocksch et al., section 2.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import prod

from han.submodules.exchange.messages import Exchange
from han.submodules.exchange.patterns import asked_factors, asked_ports, cyclic
from han.submodules.exchange.steps import Take, arc
from han.submodules.parts.factors import Factors
from han.submodules.parts.mail import Transfer
from han.tasks.context import Context


@dataclass(frozen=True)
class Tree:
    """A tree over a circle of `size` members, whose steps have the factors of an allgather."""

    size: int
    root: int
    factors: Factors

    def blocks(self, member: int, step: int) -> list[range]:
        """Return the blocks that a member passes to, or gets from, its parent in a step."""
        place = self._place(member)
        return arc(member, min(self._width(step), self.size - place), self.size)

    def parent(self, member: int, step: int) -> int | None:
        """Return the parent of a member that passes its blocks to it in a step, or None."""
        place, width, wide = self._place(member), self._width(step), self._width(step + 1)
        if place % width or not place % wide:
            return None
        return (self.root + place - place % wide) % self.size

    def children(self, member: int, step: int) -> list[int]:
        """Return the members whose parent in a step is this one."""
        place, width, wide = self._place(member), self._width(step), self._width(step + 1)
        if place % wide:
            return []
        places = range(place + width, min(place + wide, self.size), width)
        return [(self.root + p) % self.size for p in places]

    def scattered(self, member: int) -> int:
        """Return how many blocks, from its own on, a member has after the scatter."""
        backwards = range(len(self.factors), 0, -1)
        step = next((k for k in backwards if self.parent(member, k) is not None), None)
        if step is None:
            return self.size
        return min(self._width(step), self.size - self._place(member))

    def _place(self, member: int) -> int:
        return (member - self.root) % self.size

    def _width(self, step: int) -> int:
        """Return how many blocks a member has before a step of the gather; the first is 1."""
        return prod(self.factors[: step - 1])


class Rooted(Exchange):
    """One member's part in a broadcast or a reduce."""

    def __init__(self, context: Context, broadcasts: bool) -> None:
        kept = broadcasts or context.group.leads
        work = context.result if kept else context.builder.accumulator()
        super().__init__(context, work, combines=not broadcasts)
        group = context.group
        pattern = cyclic(group.size, asked_factors(context.choice), asked_ports(context.choice))
        self.down = Tree(group.size, group.root, pattern.scatter)
        self.up = Tree(group.size, group.root, pattern.gather)

    def scatter(self) -> None:
        """Receive this member's blocks and those behind it, and send the latter on."""
        sends: list[Transfer] = []
        for step in range(len(self.down.factors), 0, -1):
            parent = self.down.parent(self.me, step)
            if parent is not None:
                self.mail.complete_all(self._receive(self.down.blocks(self.me, step), parent))
            for child in self.down.children(self.me, step):
                sends += self._send(self.down.blocks(child, step), child)
        self.mail.complete_all(sends)

    def collect(self) -> None:
        """Receive the finished blocks of the members behind, and send them all to the parent."""
        for step in range(1, len(self.up.factors) + 1):
            children = self.up.children(self.me, step)
            received = [self._receive(self.up.blocks(child, step), child) for child in children]
            self.mail.complete_all(chain.from_iterable(received))
            parent = self.up.parent(self.me, step)
            if parent is not None:
                self.mail.complete_all(self._send(self.up.blocks(self.me, step), parent))

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what a member takes in a gathering step: what the scatter did not bring."""
        size, has = self.steps.size, self.down.scattered(member)
        found: list[Take] = []
        for peer, blocks in self.steps.takes(member, step):
            distance = (blocks[0] - member) % size
            new = max(0, min(len(blocks), distance + len(blocks) - has))
            found.append((peer, blocks[len(blocks) - new :]))
        return found

    def _receive(self, blocks: list[range], member: int) -> list[Transfer]:
        return [self.receive(self.work, run, member) for run in self.runs(blocks)]

    def _send(self, blocks: list[range], member: int) -> list[Transfer]:
        return [self.send(self.work, run, member) for run in self.runs(blocks)]


def lower(context: Context) -> None:
    """Emit this rank's part of the broadcast or reduce of each task."""
    broadcasts = context.tasks[0].kind == "bcast"
    exchange = Rooted(context, broadcasts)
    for task in context.tasks:
        context.stream.begin(task)
        exchange.begin(task)
        if broadcasts:
            exchange.scatter()
            exchange.gather()
        elif exchange.empty:
            exchange.collect()
        else:
            exchange.combine()
            exchange.collect()
        context.stream.end(task)
