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

from han.common.kept import kept
from han.submodules.exchange.steps import Blocks, Recursive, Take, spans


@dataclass(frozen=True)
class Gathered(Recursive):
    """A recursive exchange whose blocks are gathered at the first member of each group."""

    def home(self, member: int, stage: int) -> int:
        """Return whose cells a member writes in a stage; gathering steps follow the last stage."""
        if not stage:
            return member
        if stage <= self.stages:
            return self._first(member, prod(self.scatter[:stage]))
        return self._first(member, self._group(stage - self.stages))

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
        wanted = self._wanted(member, step)
        if step == self.gathers:
            has = set(self.held(member, self.stages))
            for k in range(1, step):
                has.update(self._wanted(member, k))
            wanted = [block for block in wanted if block not in has]
        return self._by_writer(member, step, wanted)

    def everything(self, member: int) -> list[Take]:
        """Return all blocks of the copy that a member reads in the last step."""
        return self._by_writer(member, self.gathers, range(self.blocks))

    def _by_writer(self, member: int, step: int, wanted: Blocks) -> list[Take]:
        """Return blocks that a member reads in a step, by those who have written them."""
        found: dict[int, list[int]] = {}
        for block in wanted:
            found.setdefault(self._writer(member, step - 1, block), []).append(block)
        ordered = sorted(found, key=lambda writer: (writer - member) % self.size)
        return [(writer, part) for writer in ordered for part in spans([found[writer]])]

    def _wanted(self, member: int, step: int) -> Blocks:
        """Return the blocks that a member copies in a step, some of which it may have already."""
        if step == self.gathers:
            return range(self.blocks)
        if self.home(member, self.stages + step) == self.home(member, self.stages + step - 1):
            return ()
        return self._share(member, self._group(step))

    def takers(self, member: int, step: int) -> list[int]:
        """Return the members that take in a gathering step what a member has written."""
        others = (other for other in range(self.size) if other != member)
        return [other for other in others if any(m == member for m, _ in self.takes(other, step))]

    def _writer(self, member: int, step: int, block: int) -> int:
        """Return who wrote a block of the vector that a member reads after a gathering step."""
        home = self.home(member, self.stages + step)
        for before in range(1, step + 1):
            group, wider = self._group(before), self._group(before - 1)
            if home % wider and not home % group:  # its first copy is that of this step
                return home + block * group // self.blocks
        return self._owners[block]

    @kept
    def _owners(self) -> dict[int, int]:
        """The members that combine the blocks in the last stage."""
        return {b: m for m in range(self.size) for b in self.held(m, self.stages)}

    def _share(self, member: int, group: int) -> range:
        place = member % group
        first, stop = (-(-k * self.blocks // group) for k in (place, place + 1))
        return range(first, stop)

    def _group(self, step: int) -> int:
        """Return how many members share a copy of the result after a gathering step."""
        return self.size // prod(self.gather[:step])

    def _first(self, member: int, group: int) -> int:
        return member // group * group
