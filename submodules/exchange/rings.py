"""Patterns in which blocks go round all members, one member a stage.

Source: Jocksch et al., section 2.4 (cyclic copy-in reduction).
"""

from __future__ import annotations

from dataclasses import dataclass

from han.submodules.exchange.steps import OWN, Blocks, Fold, Shifted, Take
from han.submodules.parts.factors import Factors

ROOMS = 4  # at least 2, or each member would wait for the next one


@dataclass(frozen=True)
class CopyIn(Shifted):
    """Cyclic copy-in reduction: each member copies one block in, which goes round all members.

    In each stage, a member combines the block of the member before it with its own operand, which
    it reads from its send buffer. The gathering steps are those of the cyclic shift.

    Source: Jocksch et al., section 2.4.
    """

    size: int
    gather: Factors

    @property
    def stages(self) -> int:
        """How many combining stages there are."""
        return self.size - 1

    @property
    def rooms(self) -> int:
        """How many combining stages have memory of their own: a few, so that blocks are larger."""
        return min(self.stages, ROOMS)

    def held(self, member: int, stage: int) -> Blocks:
        """Return the block that the member holds after a stage; after the last one its own."""
        return ((member - 1 - stage) % self.size,)

    def shown(self, member: int) -> Blocks:
        """Return the block that begins its round at the member."""
        return self.held(member, 0)

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return one fold: the block of the member before, and the member's own operand."""
        before = ((member - 1) % self.size, stage - 1)
        return [(self.held(member, stage), (before, (member, OWN)))]

    def readers(self, member: int, stage: int) -> list[int]:
        """Return the next member."""
        return [(member + 1) % self.size]


@dataclass(frozen=True)
class Ring(CopyIn):
    """A ring: finished blocks go round too, so that a member only hears of the one before it.

    Member m has the blocks from m on after each gathering step, one more than before.
    """

    gather: Factors = ()

    @property
    def gathers(self) -> int:
        """How many gathering steps there are."""
        return self.size - 1

    def finished(self, member: int, step: int) -> Blocks:
        """Return the blocks from the member's own on."""
        return tuple((member + k) % self.size for k in range(step + 1))

    def takes(self, member: int, step: int) -> list[Take]:
        """Return the block that the next member has taken, or finished, last."""
        return [((member + 1) % self.size, ((member + step) % self.size,))]

    def takers(self, member: int, step: int) -> list[int]:
        """Return the member before."""
        return [(member - 1) % self.size]
