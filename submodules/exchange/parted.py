"""Patterns of an exchange's halves, where each member ends up with the shares of its lanes.

A half is the reduce-scatter or the allgather of a pattern. A member's block there is cut into
`each` blocks, one for each of its shares: members of a small node have several. In a broadcast the
root deals the shares out, and in a reduce it collects them, each in one step, as all members read
its cells and it reads theirs.

Source: Jocksch et al., sections 2.1.1 (parts of any size) and 2.5 (halves as collectives).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from han.submodules.exchange.steps import Blocks, Fold, OwnCells, Pattern, Take


@dataclass(frozen=True)
class _Half(OwnCells):
    """What both halves of a pattern have in common: no member reads results of all others."""

    size: int
    each: int
    releases = 0
    stages = 0
    gathers = 0

    @property
    def blocks(self) -> int:
        """How many blocks a message is cut into."""
        return self.size * self.each

    @property
    def rooms(self) -> int:
        """How many combining stages have memory of their own: all."""
        return self.stages

    def own(self, member: int) -> Blocks:
        """Return the blocks of a member's shares."""
        return self.finer((member,))

    def finer(self, blocks: Iterable[int]) -> Blocks:
        """Return blocks of the pattern, each cut into those of the shares."""
        return tuple(b * self.each + k for b in blocks for k in range(self.each))

    def held(self, member: int, stage: int) -> Blocks:
        """Return the blocks for which a member has room after a combining stage."""
        return range(self.blocks) if not stage else self.own(member)

    def shown(self, member: int) -> Blocks:
        """Return no block."""
        return ()

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return no fold."""
        return []

    def readers(self, member: int, stage: int) -> list[int]:
        """Return no reader."""
        return []

    def unheard(self, member: int) -> tuple[int, ...]:
        """Return no member: a member asks all readers whether they have finished."""
        return ()

    def finished(self, member: int, step: int) -> Blocks:
        """Return the member's own blocks."""
        return self.own(member)

    def takes(self, member: int, step: int) -> list[Take]:
        """Return nothing."""
        return []

    def takers(self, member: int, step: int) -> list[int]:
        """Return no taker."""
        return []


@dataclass(frozen=True)
class Scattering(_Half):
    """The reduce-scatter of a pattern."""

    whole: Pattern

    @property
    def stages(self) -> int:  # type: ignore[override]
        """How many combining stages there are."""
        return self.whole.stages

    def own(self, member: int) -> Blocks:
        """Return the blocks with which a member ends."""
        return self.finer(self.whole.held(member, self.whole.stages))

    def held(self, member: int, stage: int) -> Blocks:
        """Return the blocks that the pattern holds."""
        return self.finer(self.whole.held(member, stage))

    def shown(self, member: int) -> Blocks:
        """Return the blocks of a member's operand that its peers read."""
        return self.finer(self.whole.shown(member))

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return what the pattern combines."""
        return [(self.finer(b), sources) for b, sources in self.whole.folds(member, stage)]

    def readers(self, member: int, stage: int) -> list[int]:
        """Return the pattern's readers."""
        return self.whole.readers(member, stage)


@dataclass(frozen=True)
class Gathering(_Half):
    """The allgather of a pattern."""

    whole: Pattern

    @property
    def gathers(self) -> int:  # type: ignore[override]
        """How many gathering steps there are."""
        return self.whole.gathers

    def own(self, member: int) -> Blocks:
        """Return the blocks with which a member begins."""
        return self.finer(self.whole.finished(member, 0))

    def shown(self, member: int) -> Blocks:
        """Return the member's own blocks."""
        return self.own(member)

    def finished(self, member: int, step: int) -> Blocks:
        """Return the blocks that the pattern has gathered."""
        return self.finer(self.whole.finished(member, step))

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what the pattern takes."""
        return [(m, self.finer(blocks)) for m, blocks in self.whole.takes(member, step)]

    def takers(self, member: int, step: int) -> list[int]:
        """Return the pattern's takers."""
        return self.whole.takers(member, step)


@dataclass(frozen=True)
class Dealing(_Half):
    """A scatter: all other members copy their shares out of the root's cells."""

    root: int
    stages = 1

    def shown(self, member: int) -> Blocks:
        """Return at the root the shares of all others."""
        if member != self.root:
            return ()
        return self.finer(m for m in range(self.size) if m != member)

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return one operand: the root's."""
        return [] if member == self.root else [(self.own(member), ((self.root, 0),))]

    def readers(self, member: int, stage: int) -> list[int]:
        """Return all others at the root."""
        return [m for m in range(self.size) if m != member] if member == self.root else []


@dataclass(frozen=True)
class Collecting(_Half):
    """A gather: the root copies the shares of all other members out of their cells."""

    root: int
    gathers = 1

    def shown(self, member: int) -> Blocks:
        """Return the shares of a member other than the root."""
        return () if member == self.root else self.own(member)

    def takes(self, member: int, step: int) -> list[Take]:
        """Return at the root the shares of all others, the next first."""
        if member != self.root:
            return []
        others = ((member + k) % self.size for k in range(1, self.size))
        return [(m, self.own(m)) for m in others]

    def takers(self, member: int, step: int) -> list[int]:
        """Return the root, for all others."""
        return [] if member == self.root else [self.root]
