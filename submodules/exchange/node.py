"""The exchanges inside a node: through the members' cells, with counters for barriers.

A member writes its own cells only and says with a counter how far it is; whoever needs what it
shows waits for that count and for nothing else. Every element of the result depends on what all
members made of what they read, so that who has the whole result of a piece knows that everything
before was read: two banks of cells need no further flags, and nothing is waited for at the end.
Only where whole parts are combined by several (``factors_middle``) are readers asked.

Source: Jocksch et al., sections 2.1.1 and 3.1 (barriers integrated as counters); members cannot
write each other's memory here, so allgather steps read instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from han.model.channel_layout import FLAG, LINE
from han.model.program import Ref
from han.submodules.exchange.factors import misfit
from han.submodules.exchange.layout import BANKS, LEAST_AREA, Layout, asked_factors, least
from han.submodules.exchange.steps import OWN, Blocks, Pattern, Source
from han.submodules.parts.cells import COMBINED, COPIED, tasks_at
from han.submodules.parts.pieces import Piece, cut
from han.tasks.context import Context
from han.tasks.contract import Question
from han.tasks.outline import Outline

BLOCK = 16 * 1024  # what is combined so far stays in the nearest cache


def unfit(question: Question) -> str | None:
    """Return the reason why an exchange inside a node cannot serve, or None."""
    topology, choice = question.topology, question.choice
    if not topology.shared[question.level]:
        return "members of a group do not share memory; halving and recursive_doubling need none"
    members, element = topology.widest(question.level), question.signature.element
    reason = misfit(choice.algorithm, members, *asked_factors(choice))
    if reason is not None:
        return reason
    taken = least(choice, members, element)
    if taken > LEAST_AREA:
        return (
            f"{choice.algorithm} among {members} members takes cells of {taken} bytes for an "
            f"element of {element}, more than the {LEAST_AREA} of a small ring"
        )
    return None


def footprint(plan: Outline, level: int) -> int:
    """Return how many bytes of each rank's ring of cells a run takes."""
    tasks = tasks_at(plan, level).get("allreduce")
    return 0 if tasks is None else Layout.of(plan, level, tasks).nbytes


class Run(NamedTuple):
    """Bytes of a piece that are in one go also wherever else they lie, at `offsets`."""

    start: int
    nbytes: int
    offsets: tuple[int, ...]


def runs(
    blocks: Blocks, bounds: Sequence[tuple[int, int]], places: Sequence[Mapping[int, int] | None]
) -> list[Run]:
    """Join blocks that follow each other in all places; None: where they are in the piece."""
    found: list[Run] = []
    for block in blocks:
        start, stop = bounds[block]
        offsets = tuple(start if place is None else place[block] for place in places)
        if start == stop:
            continue
        if found and _follows(found[-1], start, offsets):
            last = found.pop()
            start, offsets = last.start, last.offsets
        found.append(Run(start, stop - start, offsets))
    return found


def _follows(run: Run, start: int, offsets: tuple[int, ...]) -> bool:
    ends = (run.start, *run.offsets)
    return all(e + run.nbytes == s for e, s in zip(ends, (start, *offsets), strict=True))


class Script(NamedTuple):
    """What a member does with a piece of some size.

    `shows` goes into cells; each stage's folds have their operands' sources, offsets for those
    and for the target; each step's takes have the member, offsets there and in the own cells.
    """

    shows: list[Run]
    folds: list[list[tuple[tuple[Source, ...], list[Run]]]]
    takes: list[list[tuple[int, list[Run]]]]

    @classmethod
    def of(cls, layout: Layout, me: int, nbytes: int) -> Script:
        """Write it."""
        pattern, bounds = layout.pattern, layout.partition.bounds(nbytes)
        stages = range(1, pattern.stages + 1)
        steps = range(1, pattern.gathers + 1)
        return cls(
            runs(pattern.shown(me), bounds, [layout.offsets(me, 0, bounds)]),
            [list(_folds(layout, me, stage, bounds)) for stage in stages],
            [list(_takes(layout, me, step, bounds)) for step in steps],
        )


def _folds(
    layout: Layout, me: int, stage: int, bounds: Sequence[tuple[int, int]]
) -> Iterable[tuple[tuple[Source, ...], list[Run]]]:
    target = layout.offsets(me, stage, bounds)
    for sources, folds in groupby(layout.pattern.folds(me, stage), key=lambda fold: fold[1]):
        blocks = tuple(b for part, _ in folds for b in part)
        places = [None if s == OWN else layout.offsets(m, s, bounds) for m, s in sources]
        yield sources, runs(blocks, bounds, [*places, target])


def _takes(
    layout: Layout, me: int, step: int, bounds: Sequence[tuple[int, int]]
) -> Iterable[tuple[int, list[Run]]]:
    last, finished = step == layout.pattern.gathers, layout.pattern.stages
    mine = None if last else layout.offsets(me, finished, bounds)
    for member, blocks in layout.pattern.takes(me, step):
        yield member, runs(blocks, bounds, [layout.offsets(member, finished, bounds), mine])


def lower(context: Context) -> None:
    """Emit this rank's operations: the next piece is shown before one is combined."""
    stream, exchange = context.stream, _Exchange(context)
    pieces = cut(context.tasks, exchange.layout.chunk, context.element, stream.sequence)
    stream.sequence += len(pieces)
    for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
        if piece.first:
            stream.begin(piece.task)
        if piece is pieces[0]:
            exchange.show(piece)
        if following is not None:
            if following.task is not piece.task:
                stream.begin(following.task)
            exchange.show(following)
        exchange.combine_and_take(piece)
        if piece.last:
            stream.end(piece.task)


class _Exchange:
    """One member's part, piece by piece."""

    def __init__(self, context: Context) -> None:
        self.context, self.stream, self.group = context, context.stream, context.group
        self.builder = context.builder
        tasks = self.builder.tasks_of(context.stream)
        self.layout = Layout.of(self.builder.plan, context.group.level, tasks)
        self.pattern: Pattern = self.layout.pattern
        self.bank = self.layout.bank(self.layout.chunk)
        self.scripts: dict[int, Script] = {}
        self.awaited: set[Source] = set()
        self.unheard = () if self.layout.small else self.pattern.unheard(context.group.me)
        self.step = max(1, BLOCK // context.element) * context.element
        self.partial = self._room_for_partials()

    def _room_for_partials(self) -> Ref:
        """A block in which more than two operands are combined."""
        me, stages = self.group.me, range(1, self.pattern.stages + 1)
        folds = (fold for stage in stages for fold in self.pattern.folds(me, stage))
        several = any(len(sources) > 2 for _, sources in folds)
        return self.builder.scratch(self.step if several else 0)

    # ---- what to do -------------------------------------------------------------------------

    def show(self, piece: Piece) -> None:
        """Copy what others combine."""
        script = self._script(piece)
        if piece.index >= BANKS:
            self._await_readers(piece)
        for run in script.shows:
            cell = self._region(self.group.me, piece, 0) + run.offsets[0]
            self.stream.copy(cell, self._own(piece, run), run.nbytes)
        if script.shows or not piece.nbytes:
            self._post(piece, 0)

    def combine_and_take(self, piece: Piece) -> None:
        """Go through all stages and steps of a piece that has been shown."""
        self.awaited.clear()
        for stage in range(1, self.pattern.stages + 1):
            if piece.nbytes:
                self._combine(piece, stage)
            else:
                self._meet(piece, stage)
        for step in range(1, self.pattern.gathers + 1):
            if piece.nbytes:
                self._take(piece, step)

    def _meet(self, piece: Piece, stage: int) -> None:
        """Synchronise only: who has heard of all who have heard of all others is done."""
        for _, sources in self.pattern.folds(self.group.me, stage):
            for source in sources:
                self._await(piece, source)
        if stage < self.pattern.stages:
            self._post(piece, stage)

    def _combine(self, piece: Piece, stage: int) -> None:
        final = stage == self.pattern.stages
        worked = False
        for sources, parts in self._script(piece).folds[stage - 1]:
            for run in parts:
                worked = True
                cell = self._region(self.group.me, piece, stage) + run.offsets[-1]
                result = self.context.result + piece.start + run.start
                if not final:
                    self._fold(piece, sources, run, cell, None)
                else:
                    self._fold(piece, sources, run, result, cell if self.pattern.gathers else None)
        if (worked and (self.pattern.gathers or not final)) or (final and self.unheard):
            self._post(piece, stage)

    def _fold(
        self, piece: Piece, sources: tuple[Source, ...], run: Run, dst: Ref, also: Ref | None
    ) -> None:
        """Combine operands from left to right, block by block; the last one into `dst`."""
        operands = [
            self._own(piece, run) if stage == OWN else self._region(m, piece, stage) + offset
            for (m, stage), offset in zip(sources, run.offsets, strict=False)
        ]
        for at in range(0, run.nbytes, self.step):
            nbytes = min(self.step, run.nbytes - at)
            before = operands[0] + at
            self._await(piece, sources[0])
            for source, operand in zip(sources[1:-1], operands[1:-1], strict=True):
                self._await(piece, source)
                self.stream.reduce(self.partial, before, operand + at, nbytes)
                before = self.partial
            if len(operands) == 1:
                self.stream.copy(dst + at, before, nbytes)
                continue
            self._await(piece, sources[-1])
            copy = None if also is None else also + at
            self.stream.reduce(dst + at, before, operands[-1] + at, nbytes, also=copy)

    def _take(self, piece: Piece, step: int) -> None:
        """Copy finished blocks into the result, and into the cells while others want them."""
        finished = self.pattern.stages
        last = step == self.pattern.gathers
        for member, parts in self._script(piece).takes[step - 1]:
            for run in parts:
                self._await(piece, (member, finished + step - 1))
                result = self.context.result + piece.start + run.start
                cell = self._region(member, piece, finished) + run.offsets[0]
                self.stream.copy(result, cell, run.nbytes)
                if not last:
                    mine = self._region(self.group.me, piece, finished) + run.offsets[1]
                    self.stream.copy(mine, result, run.nbytes)
        if not last:
            self._post(piece, finished + step)

    def _await_readers(self, piece: Piece) -> None:
        """Wait until the bank is free of readers that this member does not hear of."""
        done = (piece.index - BANKS) * self.layout.values + self.pattern.stages
        for member in self.unheard:
            flag = self.builder.flag(self.group.level, self.group.slots[member], COMBINED)
            self.stream.wait(flag, done, self.group.ranks[member])

    # ---- flags and places -------------------------------------------------------------------

    def _script(self, piece: Piece) -> Script:
        found = self.scripts.get(piece.nbytes)
        if found is None:
            found = Script.of(self.layout, self.group.me, piece.nbytes)
            self.scripts[piece.nbytes] = found
        return found

    def _own(self, piece: Piece, run: Run) -> Ref:
        return self.context.source + piece.start + run.start

    def _region(self, member: int, piece: Piece, stage: int) -> Ref:
        """Where a member shows what it has after a stage; from the last stage on: finished."""
        level, slot = self.group.level, self.group.slots[member]
        at = self.layout.starts[stage]
        if self.layout.small:
            beside = FLAG if self.layout.inline(piece.nbytes) else LINE
            return self.builder.small(level, slot) + (beside + at)
        return self.builder.cells(level, slot) + (piece.index % BANKS * self.bank + at)

    def _counter(self, member: int, piece: Piece, stage: int) -> tuple[Ref, int]:
        """A member's flag and what it says once the stage's result is there."""
        level, slot = self.group.level, self.group.slots[member]
        if self.layout.small:
            return self.builder.small(level, slot), stage + 1
        if not stage:
            return self.builder.flag(level, slot, COPIED), piece.index + 1
        value = piece.index * self.layout.values + stage
        return self.builder.flag(level, slot, COMBINED), value

    def _post(self, piece: Piece, stage: int) -> None:
        self.stream.post(*self._counter(self.group.me, piece, stage))

    def _await(self, piece: Piece, source: Source) -> None:
        """Wait for a member's stage, once."""
        member, stage = source
        if stage == OWN or member == self.group.me or source in self.awaited:
            return
        self.awaited.add(source)
        flag, value = self._counter(member, piece, stage)
        self.stream.wait(flag, value, self.group.ranks[member])
