"""Patterns of an exchange: which blocks each member combines and takes in each step.

A message is cut into blocks. After each combining stage, a member holds fewer blocks, which combine
the operands of more members. In gathering steps, members take each other's finished blocks. Stage 0
is the operand of each member. A pattern describes all members, in numbers of blocks and not bytes.
Exchanges through cells and in messages have the same patterns. More of them are in
:mod:`han.submodules.exchange.rings` and :mod:`han.submodules.exchange.paired`.

Source: Jocksch et al., sections 2.1 (recursive exchange), 2.2 (cyclic shift), and 2.1.2 (steps
between the two phases that combine without splitting).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import floordiv, mul
from typing import TYPE_CHECKING

from han.common.kept import kept
from han.submodules.parts.factors import Factors
from han.tasks.choice import LevelChoice

OWN = -1  # the stage of a member's own operand that is in its send buffer, not in a cell
Blocks = Sequence[int]
Source = tuple[int, int]  # a member, and the stage after which it shows the operand
Fold = tuple[Blocks, tuple[Source, ...]]  # blocks, and the sources of operands, left to right
Take = tuple[int, Blocks]  # a member, and the finished blocks to take from it


def arc(first: int, number: int, size: int) -> list[range]:
    """Return `number` blocks of a circle of `size` from `first` on; two ranges past its end."""
    first %= size
    stop = first + number
    if stop <= size:
        return [range(first, stop)] if number else []
    return [range(first, size), range(stop - size)]


def spans(parts: Iterable[Blocks]) -> list[range]:
    """Join blocks into ranges of consecutive ones, in ascending order."""
    given = list(parts)
    if len(given) == 1 and isinstance(given[0], range):
        return [given[0]]
    found: list[range] = []
    for part in sorted((r for blocks in given for r in _ranges(blocks)), key=lambda r: r.start):
        if found and found[-1].stop == part.start:
            found[-1] = range(found[-1].start, part.stop)
        else:
            found.append(part)
    return found


def _ranges(blocks: Blocks) -> list[range]:
    return [blocks] if isinstance(blocks, range) else [range(b, b + 1) for b in blocks]


class Steps:
    """An exchange among `size` members of a message of `blocks` blocks: who sends what to whom."""

    releases = 0  # of the last gathering steps a barrier needs so many: others do not hear before

    if TYPE_CHECKING:  # subclasses have them as fields, or compute them

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

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return what a member combines in a stage; the first is 1."""
        return []

    def readers(self, member: int, stage: int) -> list[int]:
        """Return the other members that combine data of a member in a stage."""
        return []

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what a member takes in a gathering step; the first is 1."""
        return []

    def takers(self, member: int, step: int) -> list[int]:
        """Return the members that take blocks of a member in a gathering step."""
        return []


class Pattern(Steps, ABC):
    """Steps, which blocks members have after each of them, and in which cells others read these.

    By default members write their own cells only, and stages have memory of their own.
    """

    @abstractmethod
    def held(self, member: int, stage: int) -> Blocks:
        """Return the blocks for which a member has room in its cells after a combining stage."""

    @abstractmethod
    def finished(self, member: int, step: int) -> Blocks:
        """Return the finished blocks that a member has after a gathering step; 0: its own."""

    def shown(self, member: int) -> Blocks:
        """Return the blocks of a member's operand that its peers read."""
        return ()

    def unheard(self, member: int) -> tuple[int, ...]:
        """Return the readers of a member's cells whose results that member may never read."""
        return ()

    @property
    def rooms(self) -> int:
        """How many combining stages have memory of their own; later ones reuse it in turn."""
        return self.stages

    def laid(self, member: int, stage: int) -> Blocks:
        """Return the blocks that lie in the cells that a member writes in a stage, in order.

        They are those that it holds after the stage, or has finished after the last one.
        """
        if stage < self.stages:
            return self.held(member, stage)
        return self.finished(member, max(0, self.gathers - 1))

    def everything(self, member: int) -> list[Take]:
        """Return what another one would copy in the last gathering step in place of a member.

        That is what the member has before the last step, and what it takes then.
        """
        if not self.gathers:
            return [(member, self.finished(member, 0))]
        before = self.finished(member, self.gathers - 1)
        return [(member, before), *self.takes(member, self.gathers)]

    def home(self, member: int, _stage: int) -> int:
        """Return whose cells a member writes in a stage; gathering steps follow the last one."""
        return member

    def shelf(self, _member: int, writer: int, _step: int) -> int:
        """Return in whose cells a member finds in a gathering step what another one wrote."""
        return writer


@dataclass(frozen=True)
class Recursive(Pattern):
    """Recursive exchange: within groups of consecutive members, then between such groups.

    The products of `scatter` and of `gather` are the number of blocks. In the steps of `whole`
    between them, members that hold the same blocks combine these without splitting. Operands keep
    the order of members, because the group of a stage covers consecutive members.

    Source: Jocksch et al., section 2.1.
    """

    scatter: Factors
    whole: Factors
    gather: Factors

    @kept
    def size(self) -> int:
        """How many members there are."""
        return self.blocks * prod(self.whole)

    @kept
    def blocks(self) -> int:
        """How many blocks a message is cut into."""
        return prod(self.scatter)

    @kept
    def stages(self) -> int:
        """How many combining stages there are."""
        return len(self.scatter) + len(self.whole)

    @property
    def gathers(self) -> int:
        """How many gathering steps there are."""
        return len(self.gather)

    def held(self, member: int, stage: int) -> Blocks:
        """Return a range of blocks, which a digit of the member's number narrows in each stage."""
        start, width = 0, self.blocks
        for factor in self.scatter[:stage]:
            width //= factor
            member, digit = divmod(member, factor)
            start += digit * width
        return range(start, start + width)

    def shown(self, member: int) -> Blocks:
        """Return all blocks except those that the member itself keeps."""
        kept = self.held(member, 1) if self.scatter else ()
        return tuple(b for b in range(self.blocks) if b not in kept)

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return one fold: the same blocks of all members of the stage's group."""
        group = self._combining(member, stage)
        sources = tuple([(m, OWN if m == member and stage == 1 else stage - 1) for m in group])
        return [(self.held(member, stage), sources)]

    def readers(self, member: int, stage: int) -> list[int]:
        """Return the other members of the stage's group, the next first."""
        return _others(member, self._combining(member, stage))

    def _combining(self, member: int, stage: int) -> list[int]:
        return _spaced(member, self._strides[stage - 1], self._factors[stage - 1])

    @kept
    def _factors(self) -> Factors:
        return self.scatter + self.whole

    @kept
    def _strides(self) -> list[int]:
        """How far apart the members of the group of each stage are."""
        return list(accumulate(self._factors, mul, initial=1))

    def unheard(self, member: int) -> tuple[int, ...]:
        """Return the other members of its groups in `whole`, which compute the same result."""
        found: set[int] = set()
        stride = self.blocks
        for factor in self.whole:
            found.update(_spaced(member, stride, factor))
            stride *= factor
        return tuple(sorted(found - {member}))

    def finished(self, member: int, step: int) -> Blocks:
        """Return the member's own block, then those that it has taken, in order."""
        found = list(self.held(member, len(self.scatter)))
        for k in range(1, step + 1):
            found += [b for _, blocks in self.takes(member, k) for b in blocks]
        return found

    def takes(self, member: int, step: int) -> list[Take]:
        """Return all finished blocks of the other members of the step's group, the next first."""
        return [(m, self._gathered(m, step - 1)) for m in self.takers(member, step)]

    def _gathered(self, member: int, step: int) -> Blocks:
        """Return the blocks of `finished` in any order."""
        if self._mirrored:
            return self.held(member, len(self.scatter) - step)
        return self.finished(member, step)

    def takers(self, member: int, step: int) -> list[int]:
        """Return the other members of the step's group, the next first."""
        return _others(member, _spaced(member, self._distances[step], self.gather[step - 1]))

    @kept
    def _mirrored(self) -> bool:
        return self.gather == self.scatter[::-1]

    @kept
    def _distances(self) -> list[int]:
        """How far apart the members of the group of each gathering step are."""
        return list(accumulate(self.gather, floordiv, initial=self.blocks))


def at_once(_choice: LevelChoice, members: int) -> Recursive:
    """Return the pattern with one stage and one step, each with all members."""
    return Recursive((members,), (), (members,))


def _spaced(member: int, stride: int, factor: int) -> list[int]:
    """Return the group of `factor` members, `stride` apart, that `member` is in."""
    first = member - member // stride % factor * stride
    return list(range(first, first + factor * stride, stride))


def _others(member: int, group: list[int]) -> list[int]:
    """Return the others of a group, the next first: all start with a different one."""
    me = group.index(member)
    return group[me + 1 :] + group[:me]


class Circular(Pattern):
    """A pattern with a block for each member, whose readers' results all come back to it."""

    @property
    def blocks(self) -> int:
        """How many blocks a message is cut into."""
        return self.size


class Shifted(Circular):
    """A pattern whose finished blocks are gathered by a cyclic shift.

    The factors `gather` are in the order of the steps, the smallest distance first.
    """

    if TYPE_CHECKING:

        @property
        def gather(self) -> Factors:
            """The factors of the gathering steps."""

    @property
    def gathers(self) -> int:
        """How many gathering steps there are."""
        return len(self.gather)

    def finished(self, member: int, step: int) -> Blocks:
        """Return the blocks from the member's own on."""
        return self._from(member, self._width(self.gather, step))

    def takes(self, member: int, step: int) -> list[Take]:
        """Return the finished blocks of members ahead that this member does not have yet."""
        width, wide = (self._width(self.gather, k) for k in (step - 1, step))
        found: list[Take] = []
        for distance in range(width, wide, width):
            blocks = arc(member + distance, min(width, wide - distance), self.size)
            found += [((member + distance) % self.size, part) for part in blocks]
        return found

    def takers(self, member: int, step: int) -> list[int]:
        """Return the members behind, at the distances of the step."""
        width, wide = (self._width(self.gather, k) for k in (step - 1, step))
        return [(member - distance) % self.size for distance in range(width, wide, width)]

    def _from(self, member: int, width: int) -> Blocks:
        return tuple(b for part in arc(member, width, self.size) for b in part)

    def _width(self, factors: Factors, steps: int) -> int:
        return min(self.size, prod(factors[:steps]))


@dataclass(frozen=True)
class Cyclic(Shifted):
    """Cyclic shift: partners are at fixed distances around a circle; member m ends with block m.

    Both `scatter` and `gather` are in the order of an allgather, the smallest distance first; the
    reduce-scatter uses `scatter` backwards. Factors need not divide the number of members.

    Source: Jocksch et al., section 2.2.
    """

    size: int
    scatter: Factors
    gather: Factors

    @property
    def stages(self) -> int:
        """How many combining stages there are."""
        return len(self.scatter)

    def held(self, member: int, stage: int) -> Blocks:
        """Return the blocks from the member's own on; in stage 0 all blocks from 0 on."""
        if not stage:
            return range(self.size)
        return self._from(member, self._width(self.scatter, self.stages - stage))

    def shown(self, member: int) -> Blocks:
        """Return all blocks except those that the member itself keeps."""
        kept = set(self.held(member, 1))
        return tuple(b for b in range(self.size) if b not in kept)

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return folds of the blocks that the member keeps: its own, then of members behind."""
        left = self.stages - stage
        width, wide = (self._width(self.scatter, k) for k in (left, left + 1))
        own = (member, OWN if stage == 1 else stage - 1)
        distances = range(width, wide, width)
        most = min(width, wide - len(distances) * width)  # blocks that all members behind combine
        found: list[Fold] = []
        for first, stop, number in ((0, most, len(distances)), (most, width, len(distances) - 1)):
            others = tuple(
                ((member - d) % self.size, stage - 1) for d in distances[: max(0, number)]
            )
            blocks = arc(member + first, stop - first, self.size)
            found += [(part, (own, *others)) for part in blocks]
        return found

    def readers(self, member: int, stage: int) -> list[int]:
        """Return the members ahead, at the distances of the stage."""
        left = self.stages - stage
        width, wide = (self._width(self.scatter, k) for k in (left, left + 1))
        return [(member + distance) % self.size for distance in range(width, wide, width)]
