"""The cells of repeated steps (nap): one layout for each number of operands.

After a round between nodes, only some members of a group have an operand. These exchange among
themselves, in the pattern of so many members. So nodes of different sizes combine in the same
order, and all ranks get the same bits. Each other member copies the result in place of one of
them, in the last step (:class:`Joined`).

The tasks of a call go through the same cells. So all patterns have the same pieces and banks, and a
flag grows for each piece by the most that any of them needs. If the ring has room, each piece has a
bank of its own, and no bank is used twice.

Source: Bienz et al., sections III and III-A; Jocksch et al., section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from han.model.channel_layout import PAGE, lines
from han.model.topology import Topology
from han.submodules.exchange.layout import (
    BANKS,
    Layout,
    Partition,
    in_cells,
    kinds_at,
    no_room,
    partition_of,
)
from han.submodules.exchange.patterns import misfit_of, misfit_of_any, pattern_of
from han.submodules.exchange.steps import Blocks, Fold, Pattern, Recursive, Take
from han.submodules.measured import EXCHANGE_CHUNK, HALF_CHUNK
from han.submodules.parts.cells import COUNTS
from han.submodules.parts.pieces import number
from han.tasks.choice import LevelChoice
from han.tasks.contract import Question
from han.tasks.lanes import inner_levels
from han.tasks.outline import Outline

ALONE = Recursive((1,), (), (1,))  # the pattern of the only member that has an operand


@dataclass(frozen=True)
class Joined(Pattern):
    """The pattern `whole` of the first members, whose results all `size` members get.

    A further member copies in the last gathering step all that one of the first ones has then.
    No member is unheard, as all count the pieces that they have finished.
    """

    whole: Pattern
    size: int

    @property
    def blocks(self) -> int:
        """How many blocks a message is cut into."""
        return self.whole.blocks

    @property
    def stages(self) -> int:
        """How many combining stages there are."""
        return self.whole.stages

    @property
    def rooms(self) -> int:
        """How many combining stages have memory of their own."""
        return self.whole.rooms

    @property
    def gathers(self) -> int:
        """How many gathering steps there are; in the last one further members take all."""
        return max(1, self.whole.gathers)

    def held(self, member: int, stage: int) -> Blocks:
        """Return the blocks for which a first member has room after a combining stage."""
        return self.whole.held(member, stage) if self._first(member) else ()

    def shown(self, member: int) -> Blocks:
        """Return the blocks of a first member's operand that its peers read."""
        return self.whole.shown(member) if self._first(member) else ()

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return what a first member combines."""
        return self.whole.folds(member, stage) if self._first(member) else []

    def readers(self, member: int, stage: int) -> list[int]:
        """Return the first members that combine data of a member."""
        return self.whole.readers(member, stage) if self._first(member) else []

    def finished(self, member: int, step: int) -> Blocks:
        """Return the finished blocks that a first member has after a gathering step."""
        return self.whole.finished(member, step) if self._first(member) else ()

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what a member takes: a further one in the last step everything."""
        if self._first(member):
            return self.whole.takes(member, step) if step <= self.whole.gathers else []
        return self.whole.everything(self.twin(member)) if step == self.gathers else []

    def takers(self, member: int, step: int) -> list[int]:
        """Return the members that take blocks of a first member."""
        if not self._first(member):
            return []
        found = self.whole.takers(member, step) if step <= self.whole.gathers else []
        further = range(self.whole.size, self.size) if step == self.gathers else ()
        return [*found, *(m for m in further if member in dict(self.takes(m, step)))]

    def everything(self, member: int) -> list[Take]:
        """Return what a further member would copy in place of a first one."""
        return self.whole.everything(member)

    def twin(self, member: int) -> int:
        """Return the first member in whose place a further one copies the result."""
        return member % self.whole.size

    def laid(self, member: int, stage: int) -> Blocks:
        """Return the blocks that lie in the cells that a first member writes in a stage."""
        return self.whole.laid(member, stage) if self._first(member) else ()

    def home(self, member: int, stage: int) -> int:
        """Return whose cells a member writes in a stage."""
        return self.whole.home(member, stage) if self._first(member) else member

    def shelf(self, member: int, writer: int, step: int) -> int:
        """Return in whose cells a member finds what another one wrote."""
        return self.whole.shelf(self.twin(member), writer, step)

    def _first(self, member: int) -> bool:
        return member < self.whole.size


@dataclass(frozen=True)
class Rounds:
    """What the tasks of one kind on a level have in common, whichever members have operands.

    Pieces have up to `chunk` bytes and there are at most `pieces` of them; `banks` of `bank` bytes
    are used in turn, and a flag grows by `values` for a piece.
    """

    choice: LevelChoice
    kind: str
    grain: int
    whole: bool  # the message is not split
    chunk: int
    pieces: int
    bank: int
    banks: int
    values: int

    @classmethod
    def of(cls, plan: Outline, level: int, kind: str) -> Rounds:
        """Lay out the tasks of a kind on a level."""
        key = "exchanged rounds", level, kind
        return plan.layout(key, lambda: cls._fit(plan, level, kind))

    @classmethod
    def _fit(cls, plan: Outline, level: int, kind: str) -> Rounds:
        geometry, choice = plan.geometry(level), plan.choice.levels[level].of(kind)
        tasks, grain = plan.worked[kind, level], plan.signature.grain
        largest = max(task.nbytes for task in tasks)
        whole = _is_whole(choice, kind, largest)
        several = [
            replace(_largest(choice, n, grain, whole), chunk=grain)
            for n in _operands(plan.topology, level)
        ]
        values = 1 + max(one.values for one in several)
        area = geometry.area // kinds_at(plan, level)
        chunk = min(
            choice.get("chunk", EXCHANGE_CHUNK if kind == "allreduce" else HALF_CHUNK), largest
        )
        chunk = max(lines(chunk), sum(task.nbytes for task in tasks) * values >> COUNTS)
        chunk = min(one.fitting(chunk, area) for one in several)
        bank = max(one.bank(chunk) for one in several)
        pieces = number(tasks, chunk, grain)
        banks = max(BANKS, min(pieces, area // max(1, bank))) if kind == "allreduce" else BANKS
        return cls(choice, kind, grain, whole, chunk, pieces, bank, banks, values)

    def layout(self, members: int, operands: int) -> Layout:
        """Return the layout of a group of so many members, the first of which have operands."""
        pattern, partition = _pattern(self.choice, operands, self.grain, self.whole)
        if operands < members and self.kind == "allreduce":
            pattern = Joined(pattern, members)
        writes = bool(self.choice.get("writes", 0)) and pattern.gathers > 0
        return Layout(pattern, partition, self.chunk, self.pieces, False, writes)

    @property
    def recycled(self) -> bool:
        """Whether a bank is used more than once."""
        return self.pieces > self.banks

    @property
    def nbytes(self) -> int:
        """Bytes of all banks in a rank's ring."""
        return min(self.banks, self.pieces) * self.bank


def unfit(question: Question) -> str | None:
    """Return the reason why members cannot exchange in the repeated steps of a call, or None."""
    topology, level, choice = question.topology, question.level, question.choice
    element = question.signature.element
    reason = misfit_of_any(choice, topology.group_sizes[level])
    if reason is not None:
        return reason
    several = [_largest(choice, n, element, False) for n in _operands(topology, level)]
    taken = BANKS * max(one.bank(element) for one in several)
    kinds = 1 if level == inner_levels(topology)[-1] else 2  # below the node level: reduce, bcast
    taken += BANKS * lines(element) * (kinds - 1)
    reason = no_room(choice.algorithm, taken, element, kinds, "a kind of tasks has")
    return None if reason is None else f"{reason} in the smallest ring"


def _operands(topology: Topology, level: int) -> set[int]:
    """Return how many operands there may be in groups of a level: one a node, or all members'."""
    sizes = topology.group_sizes[level]
    return {*range(1, 1 + min(len(topology.node_ranks), sizes[-1])), *sizes}


def _is_whole(choice: LevelChoice, kind: str, nbytes: int) -> bool:
    """Return whether a message is not split: as in `Layout.of`."""
    if choice.algorithm == "tree":
        return kind == "reduce" and 0 < nbytes <= choice.get("whole", 0)
    return choice.algorithm == "recursive" and nbytes <= choice.get("whole", PAGE)


def _largest(choice: LevelChoice, operands: int, grain: int, whole: bool) -> Layout:
    """Return a layout that takes at least as much as those of any group with so many operands."""
    pattern, partition = _pattern(choice, operands, grain, whole)
    writes = bool(choice.get("writes", 0))
    return Layout(Joined(pattern, operands + 1), partition, grain, 1, False, writes)


@lru_cache(maxsize=1 << 10)
def _pattern(
    choice: LevelChoice, operands: int, grain: int, whole: bool
) -> tuple[Pattern, Partition]:
    """Return the pattern of so many members; factors of a rule hold where they fit.

    Two operands are combined in the order of members, as a rank does that is alone on its node.
    """
    if operands == 1:
        return ALONE, Partition("recursive", 1, grain)
    if operands == 2:
        choice = replace(choice, algorithm="tree" if choice.algorithm == "tree" else "recursive")
    if operands == 2 or misfit_of(choice, operands) is not None:
        others = tuple(p for p in choice.parameters if p[0] not in ("factors", "inner"))
        choice = replace(choice, parameters=others)
    if not whole:
        return in_cells(choice, operands, grain)
    pattern = pattern_of(choice, operands, whole=choice.algorithm == "recursive")
    return pattern, partition_of(choice, pattern, grain)
