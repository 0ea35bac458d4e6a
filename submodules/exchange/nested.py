"""Cyclic shifts inside each of several groups of members, and between these groups.

Members first reduce-scatter within their group, a socket for instance. Then those in the same place
of all groups reduce-scatter what they have. They allgather in the reverse order. So only what is
combined of a whole group moves between groups.

Source: Jocksch et al., section 2.2.1 (recursive application on multi-socket nodes).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from han.submodules.exchange.steps import OWN, Blocks, Circular, Cyclic, Fold, Take


@dataclass(frozen=True)
class Nested(Circular):
    """The cyclic shift `inner` of consecutive members, within the steps of `outer` between groups.

    Each block of `inner` is cut into the blocks of `outer`.
    """

    inner: Cyclic
    outer: Cyclic

    @property
    def size(self) -> int:
        """How many members there are."""
        return self.inner.size * self.outer.size

    @property
    def stages(self) -> int:
        """How many combining stages there are."""
        return self.inner.stages + self.outer.stages

    @property
    def gathers(self) -> int:
        """How many gathering steps there are."""
        return self.outer.gathers + self.inner.gathers

    def held(self, member: int, stage: int) -> Blocks:
        """Return what the inner exchange holds, then what the outer one does of that."""
        group, place = divmod(member, self.inner.size)
        if stage <= self.inner.stages:
            return self._whole(self.inner.held(place, stage))
        return self._within(place, self.outer.held(group, stage - self.inner.stages))

    def shown(self, member: int) -> Blocks:
        """Return the blocks of a member's operand that the others of its group read."""
        return self._whole(self.inner.shown(member % self.inner.size))

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return what the inner exchange combines, then what the outer one does."""
        group, place = divmod(member, self.inner.size)
        before = self.inner.stages
        if stage <= before:
            return [
                (self._whole(blocks), tuple((self._in(group, m), s) for m, s in sources))
                for blocks, sources in self.inner.folds(place, stage)
            ]
        return [
            (
                self._within(place, blocks),
                tuple((self._in(g, place), before + (0 if s == OWN else s)) for g, s in sources),
            )
            for blocks, sources in self.outer.folds(group, stage - before)
        ]

    def readers(self, member: int, stage: int) -> list[int]:
        """Return readers in the group, then in the same place of other groups."""
        group, place = divmod(member, self.inner.size)
        if stage <= self.inner.stages:
            return [self._in(group, m) for m in self.inner.readers(place, stage)]
        return [self._in(g, place) for g in self.outer.readers(group, stage - self.inner.stages)]

    def finished(self, member: int, step: int) -> Blocks:
        """Return what the outer exchange has gathered, then what the inner one has."""
        group, place = divmod(member, self.inner.size)
        if step <= self.outer.gathers:
            return self._within(place, self.outer.finished(group, step))
        return self._whole(self.inner.finished(place, step - self.outer.gathers))

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what is taken from other groups, then within the group."""
        group, place = divmod(member, self.inner.size)
        if step <= self.outer.gathers:
            return [
                (self._in(g, place), self._within(place, blocks))
                for g, blocks in self.outer.takes(group, step)
            ]
        return [
            (self._in(group, m), self._whole(blocks))
            for m, blocks in self.inner.takes(place, step - self.outer.gathers)
        ]

    def takers(self, member: int, step: int) -> list[int]:
        """Return takers in other groups, then within the group."""
        group, place = divmod(member, self.inner.size)
        if step <= self.outer.gathers:
            return [self._in(g, place) for g in self.outer.takers(group, step)]
        inside = self.inner.takers(place, step - self.outer.gathers)
        return [self._in(group, m) for m in inside]

    def _in(self, group: int, place: int) -> int:
        """Return the member in a place of a group."""
        return group * self.inner.size + place

    def _whole(self, blocks: Blocks) -> Blocks:
        """Return blocks of the inner exchange, each cut into those of the outer one."""
        return tuple(b for block in blocks for b in self._within(block, range(self.outer.size)))

    def _within(self, block: int, parts: Iterable[int]) -> Blocks:
        """Return parts of a block of the inner exchange."""
        return tuple(block * self.outer.size + part for part in parts)
