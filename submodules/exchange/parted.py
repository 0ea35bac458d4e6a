"""What a member does with the shares of lanes, by a pattern with a block for each member.

A block stands for the shares that its member owns: none, one, or several where nodes are small. In
the tasks that make shares, the member of a block ends with it; in those that gather them, it begins
with it. In a broadcast the root deals the shares out, and in a reduce it collects them, each in one
step, as all members read its cells and it reads theirs.

Source: Jocksch et al., sections 2.1.1 (parts of any size) and 2.5 (halves as collectives).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from han.submodules.exchange.steps import OWN, Blocks, Circular, Fold, Pattern, Take

Numbers = tuple[int, ...]  # of lanes, of members or of cells
RESULT = -1  # in place of the number of a cell


@dataclass(frozen=True)
class Rooted(Circular):
    """A pattern in which the root has, or gets, the blocks of all `size` members at once."""

    size: int
    root: int
    stages = gathers = 0

    def held(self, member: int, stage: int) -> Blocks:
        """Return the member's own block, at first all."""
        return (member,) if stage else range(self.size)

    def finished(self, member: int, step: int) -> Blocks:
        """Return the member's own block."""
        return (member,)

    def others(self, member: int) -> list[int]:
        """Return the members other than the root if the member is the root, the next first."""
        others = ((member + k) % self.size for k in range(1, self.size))
        return list(others) if member == self.root else []


@dataclass(frozen=True)
class Dealing(Rooted):
    """A scatter: all other members copy their shares out of the root's cells."""

    stages = 1

    def shown(self, member: int) -> Blocks:
        """Return at the root the blocks of all others."""
        return sorted(self.others(member))

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return one operand: the root's."""
        return [] if member == self.root else [((member,), ((self.root, 0),))]

    def readers(self, member: int, stage: int) -> list[int]:
        """Return all others at the root."""
        return self.others(member)


@dataclass(frozen=True)
class Collecting(Rooted):
    """A gather: the root copies the shares of all other members out of their cells."""

    gathers = 1

    def takes(self, member: int, step: int) -> list[Take]:
        """Return at the root the blocks of all others."""
        return [(m, (m,)) for m in self.others(member)]

    def takers(self, member: int, step: int) -> list[int]:
        """Return the root, for all others."""
        return [] if member == self.root else [self.root]


class ShareFold(NamedTuple):
    """The share of a lane, which a member combines in a stage.

    `members` have the operands, in the cells `there`; number `own` of them is this member's own
    operand, in its buffer. `into`: this member's cell, or RESULT.
    """

    lane: int
    members: Numbers
    own: int
    there: Numbers
    into: int


class Taking(NamedTuple):
    """The shares of `lanes` that a member takes in a step: from the cells `there` of `members`.

    Before the last step it shows them again in its own cells `into`.
    """

    lanes: Numbers = ()
    members: Numbers = ()
    there: Numbers = ()
    into: Numbers = ()


class Moves(NamedTuple):
    """What a member does with the shares of a slice, in each stage or step.

    It shows the shares of the lanes `shown` before it combines, and those of `own` before it takes,
    these in its cells `into`. In a stage it needs what `sources` have shown, the next one first.
    `readers` and `takers` are the others that read its cells, by the stage or step after which they
    have finished.
    """

    shown: Numbers
    sources: tuple[Numbers, ...]
    folds: tuple[tuple[ShareFold, ...], ...]
    readers: dict[int, Numbers]
    own: Numbers
    into: Numbers
    takes: tuple[Taking, ...]
    takers: dict[int, Numbers]


def cells_of(pattern: Pattern, lanes: int) -> tuple[int, int]:
    """Return how many cells a slice takes while its shares are made, and when they are finished."""
    each = -(-lanes // pattern.size)
    partial = sum(len(pattern.held(0, stage)) for stage in range(1, pattern.stages))
    finished = len(pattern.finished(0, pattern.gathers - 1)) if pattern.gathers else 0
    return lanes + each * partial, each * finished


@lru_cache(maxsize=1 << 10)
def moves(pattern: Pattern, owners: Numbers, me: int, has_all: int) -> Moves:
    """Return the moves of member `me`; `owners` has the member that owns each lane's share.

    Member `has_all` takes nothing: it only passes shares on.
    """
    return _Mover(pattern, owners, me, has_all).moves()


class _Mover:
    """Translates the blocks of a pattern into the lanes and cells of one member."""

    def __init__(self, pattern: Pattern, owners: Numbers, me: int, has_all: int) -> None:
        self.pattern, self.me, self.has_all = pattern, me, has_all
        self.each = -(-len(owners) // pattern.size)
        self.owned: dict[int, list[int]] = {}  # lanes, by member
        for lane, owner in enumerate(owners):
            self.owned.setdefault(owner, []).append(lane)
        self.of_block = {
            pattern.finished(member, 0)[0]: lanes for member, lanes in self.owned.items()
        }
        stages = range(1, pattern.stages)
        sizes = [len(owners), *(len(pattern.held(0, s)) * self.each for s in stages)]
        self.regions = [sum(sizes[:stage]) for stage in range(len(sizes))]

    def moves(self) -> Moves:
        """Return all moves of the member."""
        stages, steps = range(1, self.pattern.stages + 1), range(1, self.pattern.gathers + 1)
        takers = {step: self._takers(step) for step in steps}
        folds = tuple([tuple(self._folds(stage)) for stage in stages])
        own = self._lanes(self.pattern.finished(self.me, 0)) if any(takers.values()) else ()
        return Moves(
            self._lanes(self.pattern.shown(self.me)),
            tuple([self._sources(one) for one in folds]),
            folds,
            _last({stage: self._readers(stage) for stage in stages}),
            own,
            tuple([self._finished(self.me)[lane] for lane in own]),
            tuple([self._taking(step) for step in steps]),
            _last(takers),
        )

    def _lanes(self, blocks: Blocks) -> Numbers:
        """Return the lanes whose shares blocks stand for."""
        return tuple([lane for b in blocks for lane in self.of_block.get(b, ())])

    def _cells(self, blocks: Blocks, first: int) -> dict[int, int]:
        """Return the cell of each lane's share where blocks lie in cells from `first` on."""
        return {
            lane: first + k * self.each + turn
            for k, b in enumerate(blocks)
            for turn, lane in enumerate(self.of_block.get(b, ()))
        }

    def _partials(self, member: int, stage: int) -> dict[int, int]:
        """Return the cells in which a member has lanes' shares after a stage; 0: its operands."""
        if not stage:
            return {lane: lane for lanes in self.of_block.values() for lane in lanes}
        return self._cells(self.pattern.held(member, stage), self.regions[stage])

    def _readers(self, stage: int) -> Iterable[int]:
        """Return who reads what the member has before a stage; in the last one, owners only.

        A member without a share takes no part in the last stage and posts no flag there, so nobody
        waits for it: `_takers` keeps to the same rule.
        """
        last = stage == self.pattern.stages
        return (m for m in self.pattern.readers(self.me, stage) if m in self.owned or not last)

    def _folds(self, stage: int) -> Iterable[ShareFold]:
        """Yield what the member combines in a stage, lane by lane, and in which cells it is."""
        last = stage == self.pattern.stages
        into = {} if last else self._partials(self.me, stage)
        for blocks, sources in self.pattern.folds(self.me, stage):
            members = tuple([m for m, _ in sources])
            own = sources.index((self.me, OWN)) if (self.me, OWN) in sources else len(sources)
            there = [None if s == OWN else self._partials(m, s) for m, s in sources]
            for lane in self._lanes(blocks):
                cells = tuple([0 if found is None else found[lane] for found in there])
                yield ShareFold(lane, members, own, cells, into.get(lane, RESULT))

    def _sources(self, folds: Iterable[ShareFold]) -> Numbers:
        """Return the members whose operands are combined, the next ones of the circle first."""
        others = {m for fold in folds for m in fold.members} - {self.me}
        return tuple(sorted(others, key=lambda m: (m - self.me) % self.pattern.size))

    def _takers(self, step: int) -> list[int]:
        """Return who takes finished shares of the member in a gathering step.

        In the last step they are those that take any: others post no flag to be waited for.
        """
        last = step == self.pattern.gathers
        found = [m for m in self.pattern.takers(self.me, step) if m != self.has_all or not last]
        if not last or len(self.owned) == self.pattern.size:
            return found
        return [m for m in found if self._takes(m, step)]

    def _takes(self, member: int, step: int) -> bool:
        """Return whether a member takes any share in a step."""
        return any(self._lanes(blocks) for _, blocks in self.pattern.takes(member, step))

    def _taking(self, step: int) -> Taking:
        """Return which finished shares the member takes in a gathering step, and from where."""
        last = step == self.pattern.gathers
        into = {} if last else self._finished(self.me)
        found = [
            (lane, member, cells[lane], into.get(lane, RESULT))
            for member, blocks in self.pattern.takes(self.me, step)
            for cells in (self._finished(member),)
            for lane in self._lanes(blocks)
        ]
        return Taking(*zip(*found, strict=True)) if found else Taking()

    def _finished(self, member: int) -> dict[int, int]:
        """Return the cells in which a member shows finished shares."""
        return self._cells(self.pattern.finished(member, self.pattern.gathers - 1), 0)


def _last(by_turn: Mapping[int, Iterable[int]]) -> dict[int, Numbers]:
    """Return members by the last turn in which they are named."""
    last = {member: turn for turn, members in by_turn.items() for member in members}
    return {turn: tuple(m for m in last if last[m] == turn) for turn in by_turn}
