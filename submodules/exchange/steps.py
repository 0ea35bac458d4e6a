"""Who combines and who takes what in an exchange among members: blocks, no bytes.

A message is cut into blocks. In combining stages each member is left with ever fewer of them,
which cover ever more members; in gathering steps members take each other's finished blocks.
Stage 0 is what members hold when they begin. A pattern is the same seen from every member.

Source: Jocksch et al., section 2.1 (recursive exchange), 2.2 (cyclic shift), 2.4 (cyclic
copy-in reduction); 2.1.2 for steps that combine whole parts between the two phases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Protocol

from han.submodules.exchange.factors import Factors

OWN = -1  # the stage of an operand that is a member's own and in no cell
Blocks = tuple[int, ...]
Source = tuple[int, int]  # a member, and the stage after which it showed the operand
Fold = tuple[Blocks, tuple[Source, ...]]  # blocks, and their operands from left to right
Take = tuple[int, Blocks]  # a member and finished blocks that it shows


class Pattern(Protocol):
    """An exchange among `size` members of a message of `blocks` blocks."""

    @property
    def size(self) -> int:
        """How many members there are."""

    @property
    def blocks(self) -> int:
        """How many blocks a message is cut into."""

    @property
    def stages(self) -> int:
        """How many combining stages there are."""

    @property
    def gathers(self) -> int:
        """How many gathering steps there are."""

    def held(self, member: int, stage: int) -> Blocks:
        """Return the blocks that a member has room for in its cells after a combining stage."""

    def shown(self, member: int) -> Blocks:
        """Return those of its own data that others read."""

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return what a member combines in a stage, 1 the first."""

    def unheard(self, member: int) -> tuple[int, ...]:
        """Return who reads the member's cells while nothing made of that need come back to it."""

    def finished(self, member: int, step: int) -> Blocks:
        """Return the finished blocks that a member has after a gathering step, 0: its own."""

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what a member takes in a gathering step, 1 the first."""


@dataclass(frozen=True)
class Recursive:
    """Recursive exchange: groups of consecutive members, then groups of groups.

    `scatter` and `gather` have the same product, which is the number of blocks; in the steps of
    `whole` between them, members with equal blocks combine without splitting. Operands stay in
    the order of members: a stage's group covers consecutive ones.
    """

    scatter: Factors
    whole: Factors
    gather: Factors

    @cached_property
    def size(self) -> int:
        """How many members there are."""
        return self.blocks * prod(self.whole)

    @cached_property
    def blocks(self) -> int:
        """How many blocks a message is cut into."""
        return prod(self.scatter)

    @property
    def stages(self) -> int:
        """How many combining stages there are."""
        return len(self.scatter) + len(self.whole)

    @property
    def gathers(self) -> int:
        """How many gathering steps there are."""
        return len(self.gather)

    def held(self, member: int, stage: int) -> Blocks:
        """Return a contiguous range, narrowed by a digit of the member's number a stage."""
        start, width = 0, self.blocks
        for factor in self.scatter[:stage]:
            width //= factor
            start += member % factor * width
            member //= factor
        return tuple(range(start, start + width))

    def shown(self, member: int) -> Blocks:
        """Return all blocks but those that the member itself goes on with."""
        kept = self.held(member, 1) if self.scatter else ()
        return tuple(b for b in range(self.blocks) if b not in kept)

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return one fold: the same range of everyone in the stage's group."""
        factors = self.scatter + self.whole
        group = _spaced(member, prod(factors[: stage - 1]), factors[stage - 1])
        sources = tuple((m, OWN if m == member and stage == 1 else stage - 1) for m in group)
        return [(self.held(member, stage), sources)]

    def unheard(self, member: int) -> tuple[int, ...]:
        """Return the groups of the stages that split nothing: each has its result by itself."""
        found: set[int] = set()
        stride = self.blocks
        for factor in self.whole:
            found.update(_spaced(member, stride, factor))
            stride *= factor
        return tuple(sorted(found - {member}))

    def finished(self, member: int, step: int) -> Blocks:
        """Return the own block, then those taken, in the order in which they come."""
        found = self.held(member, len(self.scatter))
        for k in range(1, step + 1):
            found += tuple(b for _, blocks in self.takes(member, k) for b in blocks)
        return found

    def takes(self, member: int, step: int) -> list[Take]:
        """Return all that the others of the step's group have so far, the next one's first."""
        stride = self.blocks // prod(self.gather[:step])
        group = _spaced(member, stride, self.gather[step - 1])
        me = group.index(member)
        return [(m, self.finished(m, step - 1)) for m in group[me + 1 :] + group[:me]]


def _spaced(member: int, stride: int, factor: int) -> list[int]:
    """The `factor` members, `stride` apart, of which `member` is one."""
    first = member - member // stride % factor * stride
    return [first + k * stride for k in range(factor)]


@dataclass(frozen=True)
class Cyclic:
    """Cyclic shift: member m ends with block m; partners are at distances, around the circle.

    Both sets of factors are in the order of an allgather, the smallest distance first; the
    reduce-scatter goes through `scatter` backwards. Neither needs to divide anything.
    """

    size: int
    scatter: Factors
    gather: Factors

    @property
    def blocks(self) -> int:
        """How many blocks a message is cut into."""
        return self.size

    @property
    def stages(self) -> int:
        """How many combining stages there are."""
        return len(self.scatter)

    @property
    def gathers(self) -> int:
        """How many gathering steps there are."""
        return len(self.gather)

    def held(self, member: int, stage: int) -> Blocks:
        """Return the blocks from the member's own on; all, in their order, at the beginning."""
        if not stage:
            return tuple(range(self.size))
        return self._from(member, self._width(self.scatter, self.stages - stage))

    def shown(self, member: int) -> Blocks:
        """Return all blocks but those that the member itself goes on with."""
        kept = self.held(member, 1)
        return tuple(b for b in range(self.size) if b not in kept)

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return folds of what members behind hold of the blocks that this one keeps."""
        left = self.stages - stage
        width, wide = (self._width(self.scatter, k) for k in (left, left + 1))
        own = (member, OWN if stage == 1 else stage - 1)
        found: list[Fold] = []
        for k, block in enumerate(self._from(member, width)):
            distances = range(width, wide - k, width)
            others = tuple(((member - d) % self.size, stage - 1) for d in distances)
            found.append(((block,), (own, *others)))
        return found

    def unheard(self, member: int) -> tuple[int, ...]:
        """Return nobody."""
        return ()

    def finished(self, member: int, step: int) -> Blocks:
        """Return the blocks from the member's own on."""
        return self._from(member, self._width(self.gather, step))

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what members ahead have, as far as it is new."""
        return _ahead(self, member, step)

    def _from(self, member: int, width: int) -> Blocks:
        return tuple((member + k) % self.size for k in range(width))

    def _width(self, factors: Factors, steps: int) -> int:
        return min(self.size, prod(factors[:steps]))


def _ahead(pattern: Cyclic | CopyIn, member: int, step: int) -> list[Take]:
    width, wide = (len(pattern.finished(member, k)) for k in (step - 1, step))
    found = []
    for distance in range(width, wide, width):
        peer = (member + distance) % pattern.size
        found.append((peer, pattern.finished(peer, step - 1)[: wide - distance]))
    return found


@dataclass(frozen=True)
class CopyIn:
    """Cyclic copy-in reduction: only a block is copied in; then it goes round the members.

    In every stage a member combines the block that comes from the one before it with its own
    operand, which it reads where it is. The gathering steps are those of the cyclic shift.
    """

    size: int
    gather: Factors

    @property
    def blocks(self) -> int:
        """How many blocks a message is cut into."""
        return self.size

    @property
    def stages(self) -> int:
        """How many combining stages there are."""
        return self.size - 1

    @property
    def gathers(self) -> int:
        """How many gathering steps there are."""
        return len(self.gather)

    def held(self, member: int, stage: int) -> Blocks:
        """Return the block that is with the member: its own after the last stage."""
        return ((member - 1 - stage) % self.size,)

    def shown(self, member: int) -> Blocks:
        """Return the block that begins its round here."""
        return self.held(member, 0)

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return one fold: what has come round, and the member's own."""
        before = ((member - 1) % self.size, stage - 1)
        return [(self.held(member, stage), (before, (member, OWN)))]

    def unheard(self, member: int) -> tuple[int, ...]:
        """Return nobody."""
        return ()

    def finished(self, member: int, step: int) -> Blocks:
        """Return the blocks from the member's own on."""
        width = min(self.size, prod(self.gather[:step]))
        return tuple((member + k) % self.size for k in range(width))

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what members ahead have, as far as it is new."""
        return _ahead(self, member, step)
