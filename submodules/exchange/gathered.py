"""The tree of an exchange inside a node: all members combine, and each partial result is whole.

A combining stage joins groups of members. Each member of the joined group combines its share of
the message, as in a recursive exchange, but writes it into the cells of the group's first member.
So the shares of a group lie one behind the other, and the result is one vector in the cells of
member 0. In gathering steps it is copied into the cells of the first members of ever smaller
groups, by all of their members at once; in the last step everybody copies it out.

Source: Jocksch et al., section 2.3 and figures 6 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from han.common.kept import kept
from han.submodules.exchange.steps import Blocks, Recursive, Take, spans
from han.submodules.parts.factors import Factors


class Copies(NamedTuple):
    """Who has a copy of a message after each gathering step, and which blocks each member copies.

    A step divides groups of members, as the factors `gather` say. A group has its copy in the cells
    of its first member, and that of the root in the root's.
    """

    size: int
    blocks: int
    gather: Factors

    def group(self, step: int) -> int:
        """Return how many members share a copy after a step."""
        return self.size // prod(self.gather[:step])

    def home(self, member: int, step: int, root: int = 0) -> int:
        """Return in whose cells a member's group has its copy after a step."""
        group = self.group(step)
        first = member // group * group
        return root if first <= root < first + group else first

    def share(self, member: int, step: int, root: int = 0) -> range:
        """Return the blocks that a member copies for its group in a step before the last."""
        if self.home(member, step, root) == self.home(member, step - 1, root):
            return range(0)
        group = self.group(step)
        first, stop = (-(-(member % group + k) * self.blocks // group) for k in (0, 1))
        return range(first, stop)

    def writer(self, member: int, step: int, block: int, root: int = 0) -> tuple[int, int]:
        """Return who has written a block of a group's copy, and in which step; 0: the root had it.

        The copy is that of a member's group after `step`.
        """
        home = self.home(member, step, root)
        if home == root:
            return root, 0
        since = next(k for k in range(1, step + 1) if self.home(home, k, root) == home)
        return home + block * self.group(since) // self.blocks, since


@dataclass(frozen=True)
class Gathered(Recursive):
    """A recursive exchange whose blocks are gathered at the first member of each group."""

    @kept
    def copies(self) -> Copies:
        """The copies of the result in the gathering steps."""
        return Copies(self.size, self.blocks, self.gather)

    def home(self, member: int, stage: int) -> int:
        """Return whose cells a member writes in a stage; gathering steps follow the last stage."""
        if stage > self.stages:
            return self.copies.home(member, stage - self.stages)
        group = prod(self.scatter[:stage])
        return member // group * group

    def shelf(self, member: int, _writer: int, step: int) -> int:
        """Return the first member of the group that shared the result before a gathering step."""
        return self.home(member, self.stages + step - 1)

    def laid(self, member: int, stage: int) -> Blocks:
        """Return all blocks, one behind the other."""
        return range(self.blocks)

    def finished(self, member: int, step: int) -> Blocks:
        """Return all blocks: a member may read them all once they are finished."""
        return range(self.blocks)

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what a member copies in a step: its share, or in the last step all it lacks."""
        if step < self.gathers:
            return self._by_writer(member, step, self.copies.share(member, step))
        has = set(self.held(member, self.stages))
        has.update(*(self.copies.share(member, k) for k in range(1, step)))
        return self._by_writer(member, step, [b for b in range(self.blocks) if b not in has])

    def everything(self, member: int) -> list[Take]:
        """Return all blocks of the copy that a member reads in the last step."""
        return self._by_writer(member, self.gathers, range(self.blocks))

    def _by_writer(self, member: int, step: int, wanted: Blocks) -> list[Take]:
        """Return blocks that a member reads in a step, by those who have written them."""
        found: dict[int, list[int]] = {}
        for block in wanted:
            writer, since = self.copies.writer(member, step - 1, block)
            found.setdefault(writer if since else self._owners[block], []).append(block)
        ordered = sorted(found, key=lambda writer: (writer - member) % self.size)
        return [(writer, part) for writer in ordered for part in spans([found[writer]])]

    def takers(self, member: int, step: int) -> list[int]:
        """Return the members that take in a gathering step what a member has written."""
        others = (other for other in range(self.size) if other != member)
        return [other for other in others if any(m == member for m, _ in self.takes(other, step))]

    @kept
    def _owners(self) -> dict[int, int]:
        """The members that combine the blocks in the last stage."""
        return {b: m for m in range(self.size) for b in self.held(m, self.stages)}
