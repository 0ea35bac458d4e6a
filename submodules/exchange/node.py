"""The exchanges inside a node: through cells, with flags that count in place of barriers.

A member writes its own cells, in a tree those of the first member of its group, and counts the
stages that it has finished in a flag. A reader waits until that flag has reached the stage whose
data it needs.

A member reuses a bank of cells two pieces later, and readers post no flags for that:

- The member has the whole result of the earlier piece then. That result is made from what the
  readers of its operand and of its partial results have combined, so they have read these.
- Where stages of one piece share memory, it waits for the readers of the earlier stage.
- It overwrites its finished blocks when all members have shown the later piece. They do so after
  they have taken all blocks of the earlier one.

Steps that combine without splitting are an exception. Several members combine the same blocks
there, and a member reads the result of one of them only. So it waits for the others before it
reuses a bank. A member does not wait for readers at the end of a run.

In gathering steps members read the cells of others, and copy each byte once. With `writes`, each
member writes the finished blocks that it has into the cells of the others instead, one small part
after the other to all of them, so that it reads the part from its cache. A member copies what
others have written into its result. It does so before it shows the next piece but one. Finished
blocks of a later piece are made from what all members have shown of it, so whoever writes them
needs no flag to know that the cells are free.

Source: Jocksch et al., sections 2.1.1 (members write in the allgather) and 3.1 (barriers integrated
as counters).
"""

from __future__ import annotations

from collections.abc import Iterator

from han.model.channel_layout import FLAG, LINE
from han.model.program import Ref
from han.submodules.exchange.layout import BANKS, Layout, Run, least, no_room
from han.submodules.exchange.patterns import PRESETS, misfit_of
from han.submodules.exchange.script import Script
from han.submodules.exchange.steps import OWN, Pattern, Source
from han.submodules.parts.cells import COMBINED, COPIED, tasks_at
from han.submodules.parts.fold import fold, step_of
from han.submodules.parts.pieces import Piece, numbered, show_ahead
from han.tasks.canonical import rooms
from han.tasks.context import Context
from han.tasks.contract import Question
from han.tasks.outline import Outline
from han.tasks.places import RECV, SEND


def unfit(question: Question) -> str | None:
    """Return the reason why an exchange inside a node cannot serve the call, or None."""
    topology, choice = question.topology, question.choice
    members, element = topology.widest(question.level), question.signature.element
    reason = misfit_of(choice, members)
    if reason is not None:
        return reason
    what = f"{choice.algorithm} among {members} members"
    return no_room(what, least(choice, members, element), element, 1, "the smallest ring has")


def footprint(plan: Outline, level: int) -> int:
    """Return how many bytes of each rank's ring of cells a run takes."""
    in_messages = plan.choice.levels[level].algorithm in (*PRESETS, "scatter")
    tasks = None if in_messages else tasks_at(plan, level).get("allreduce")
    members = plan.topology.widest(level)
    return 0 if tasks is None else Layout.of(plan, level, tasks, members).nbytes


def lower(context: Context) -> None:
    """Emit this rank's operations for an allreduce."""
    exchange_pieces(context, Exchange(context, laid_out(context)))


def laid_out(context: Context) -> Layout:
    """Return the layout of the cells of a context's group."""
    builder, group = context.builder, context.group
    return Layout.of(builder.plan, group.level, builder.tasks_of(context.stream), group.size)


def exchange_pieces(context: Context, exchange: Exchange) -> None:
    """Emit the operations of an exchange: each piece is shown before the previous one combined."""
    pieces = numbered(context, exchange.layout.chunk)
    for piece in show_ahead(context, pieces, 1, exchange.show):
        exchange.combine_and_take(piece)
        if piece is pieces[-1]:
            exchange.leave(piece)


class Exchange:
    """One member's part in an exchange through cells, piece by piece."""

    def __init__(self, context: Context, layout: Layout) -> None:
        self.context, self.stream, self.group = context, context.stream, context.group
        self.builder, self.layout = context.builder, layout
        self.pattern: Pattern = layout.pattern
        self.steps = range(1, self.pattern.gathers + 1)  # the gathering steps
        self.bank, self.banks = self.layout.bank(self.layout.chunk), BANKS
        self.values = self.layout.values  # by how much a flag grows for one piece
        self.scripts: dict[int, Script] = {}
        self.beside = FLAG if self.layout.inline(self.layout.chunk) else LINE  # of a small slot
        self.awaited: set[Source] = set()
        self.unheard = () if self.layout.small else self.pattern.unheard(context.group.me)
        self.step = step_of(context.grain)
        self.partials = self._rooms_for_partials()
        if self.layout.arrays:
            self.builder.show(self.group.level)

    def _rooms_for_partials(self) -> list[Ref]:
        """Reserve memory for partial results, if the member combines more than two operands."""
        me, stages = self.group.me, range(1, self.pattern.stages + 1)
        folds = {sources for stage in stages for _, sources in self.pattern.folds(me, stage)}
        orders = (self.context.order_of([m for m, _ in sources]) for sources in folds)
        return [self.stream.room(self.step, k) for k in range(max(map(rooms, orders), default=0))]

    # ---- stages and steps -------------------------------------------------------------------

    def show(self, piece: Piece) -> None:
        """Copy the blocks of the operand that peers combine into the cells."""
        script = self.script(piece)
        if piece.index >= BANKS:
            self.await_readers(piece)
        for run in script.shows:
            cell = self.cell(self.group.me, piece, 0, run, 0)
            self.stream.copy(cell, self._own(piece, run), run.stop - run.start)
        if script.shows or not piece.nbytes or self.layout.arrays:
            self.post(piece, 0)

    def combine_and_take(self, piece: Piece) -> None:
        """Carry out all combining stages and gathering steps of a piece that has been shown."""
        self.combine(piece)
        gather = self._give if self.layout.writes else self._take
        for step in self.steps:
            if piece.nbytes:
                gather(piece, step)

    def combine(self, piece: Piece) -> None:
        """Carry out all combining stages of a piece."""
        self.awaited.clear()
        for stage in range(1, self.pattern.stages + 1):
            if piece.nbytes:
                self._combine(piece, stage)
            else:
                self._meet(piece, stage)

    def _meet(self, piece: Piece, stage: int) -> None:
        """Carry out a stage of an empty piece: wait for the sources, then post the stage.

        After the last stage, the member has heard of every other one, directly or through others.
        """
        for _, sources in self.pattern.folds(self.group.me, stage):
            for source in sources:
                self.wait_for(piece, source)
        if stage < self.pattern.stages:
            self.post(piece, stage)

    def _combine(self, piece: Piece, stage: int) -> None:
        """Combine the operands of a stage."""
        final = stage == self.pattern.stages
        worked = False
        if not final:
            self._await_room(piece, stage)
        for sources, parts in self.script(piece).folds[stage - 1]:
            for run in parts:
                worked = True
                home = self.pattern.home(self.group.me, stage)
                cell = self.cell(home, piece, stage, run, -1)
                dst, also = self.targets(cell) if final else (cell, None)
                self._fold(piece, sources, run, dst, also)
        if self.layout.arrays or self.tells(worked, final):
            self.post(piece, stage)

    def targets(self, cell: Ref) -> tuple[Ref, Ref | None]:
        """Return where the last stage combines, and where it writes the same at the same time."""
        read = self.pattern.gathers and not (self.layout.writes or self.layout.in_results)
        return self.context.result, cell if read else None

    def tells(self, worked: bool, final: bool) -> bool:
        """Return whether others wait for a stage of this member, in which it may have worked."""
        if not final:
            return worked
        read = self.pattern.gathers and not self.layout.writes
        return bool((worked and read) or self.unheard)

    def _await_room(self, piece: Piece, stage: int) -> None:
        """Wait until readers have finished with the region that a stage reuses."""
        before, script = stage - self.pattern.rooms, self.script(piece)
        if before < 0:
            return
        if any(runs for _, runs in script.folds[before - 1]) if before else script.shows:
            for member in self.pattern.readers(self.group.me, before + 1):
                self.wait_for(piece, (member, before + 1))

    def _fold(
        self, piece: Piece, sources: tuple[Source, ...], run: Run, dst: Ref, also: Ref | None
    ) -> None:
        """Combine operands in their order, block by block; write `dst` and `also` last."""
        operands = [self._operand(piece, run, k, source) for k, source in enumerate(sources)]
        stop = piece.start + run.stop
        order = self.context.order_of([member for member, _ in sources])
        for at in range(piece.start + run.start, stop, self.step):
            awaited = self._awaited(piece, sources, [operand.to(at) for operand in operands])
            copy = None if also is None else also.to(at)
            partials = [place.holding(at) for place in self.partials]
            nbytes = min(self.step, stop - at)
            fold(self.stream, order, awaited, nbytes, dst.to(at), partials, also=copy)

    def _operand(self, piece: Piece, run: Run, place: int, source: Source) -> Ref:
        """Return where a run of an operand is: in a send buffer, or in cells."""
        member, stage = source
        if stage == OWN:
            return self._own(piece, run)
        if not stage and self.layout.arrays:
            return self.context.mapped(SEND, member).to(piece.start + run.start)
        return self.cell(self.pattern.home(member, stage), piece, stage, run, place)

    def _awaited(
        self, piece: Piece, sources: tuple[Source, ...], operands: list[Ref]
    ) -> Iterator[Ref]:
        """Yield each operand after a wait for its source."""
        for source, operand in zip(sources, operands, strict=True):
            self.wait_for(piece, source)
            yield operand

    def _take(self, piece: Piece, step: int) -> None:
        """Copy finished blocks of peers into the result, and before the last step into cells."""
        finished, me = self.pattern.stages, self.group.me
        last = step == self.pattern.gathers
        for member, parts in self.script(piece).takes[step - 1]:
            for run in parts:
                self.wait_for(piece, (member, finished + step - 1))
                result = self.context.result.to(piece.start + run.start)
                nbytes = run.stop - run.start
                if self.layout.in_results:
                    there = self.context.mapped(RECV, member).to(piece.start + run.start)
                    self.stream.copy(result, there, nbytes)
                    continue
                shelf = self.pattern.shelf(me, member, step)
                self.stream.copy(result, self.cell(shelf, piece, finished, run, 0), nbytes)
                if not last:
                    home = self.pattern.home(me, finished + step)
                    self.stream.copy(self.cell(home, piece, finished, run, 1), result, nbytes)
        if not last or self.layout.in_results:
            self.post(piece, finished + step)

    def leave(self, piece: Piece) -> None:
        """Wait until other members have read this one's arrays, of which `piece` is the last one.

        Its result is made from what they have read in its operand.
        """
        for step in self.steps if self.layout.in_results and piece.nbytes else ():
            for member in self.pattern.takers(self.group.me, step):
                self.wait_for(piece, (member, self.pattern.stages + step))

    def _give(self, piece: Piece, step: int) -> None:
        """Write finished blocks into the cells of others; copy what others write to the result."""
        finished, me, script = self.pattern.stages, self.group.me, self.script(piece)
        parts = [
            (at, min(self.step, run.stop - at), self.cell(member, piece, finished, run, 0))
            for member, given in script.writes[step - 1]
            for run in given
            for at in range(run.start, run.stop, self.step)
        ]
        for at, nbytes, cell in sorted(parts, key=lambda part: part[0]):
            start = piece.start + at
            self.stream.copy(cell.to(start), self.context.result.to(start), nbytes)
        self.post(piece, finished + step)
        for member, parts_of in script.takes[step - 1]:
            for run in parts_of:
                self.wait_for(piece, (member, finished + step))
                result = self.context.result.to(piece.start + run.start)
                written = self.cell(me, piece, finished, run, 0)
                self.stream.copy(result, written, run.stop - run.start)

    def await_readers(self, piece: Piece) -> None:
        """Wait for readers of the bank whose results this member does not read."""
        done = (piece.index - BANKS) * self.values + self.pattern.stages
        for member in self.unheard:
            self.wait_until(member, COMBINED, done)

    def wait_until(self, member: int, kind: int, value: int) -> None:
        """Wait until a member's flag of a kind has reached a value."""
        flag = self.context.flag(member, kind)
        self.stream.wait(flag, value, self.group.ranks[member])

    # ---- addresses and flags ----------------------------------------------------------------

    def script(self, piece: Piece) -> Script:
        """Return what this member does with a piece."""
        found = self.scripts.get(piece.nbytes)
        if found is None:
            bounds = self.layout.partition.bounds(piece.nbytes)
            found = Script.of(self.layout, self.group.me, bounds, self.steps)
            self.scripts[piece.nbytes] = found
        return found

    def _own(self, piece: Piece, run: Run) -> Ref:
        return self.context.source.to(piece.start + run.start)

    def cell(self, member: int, piece: Piece, stage: int, run: Run, place: int) -> Ref:
        """Return where a member's region of a stage holds a run, in one of the run's places."""
        spot = run.places[place]
        held = (self._region(member, piece, stage) + spot.offset).holding(piece.start + spot.origin)
        return held.to(piece.start + run.start)

    def _region(self, member: int, piece: Piece, stage: int) -> Ref:
        """Return where a member shows its data after a stage; the last region: finished blocks."""
        at = self.layout.region(stage)
        if self.layout.small:
            return self.context.small(member) + (self.beside + at)
        return self.context.cells(member) + (piece.index % self.banks * self.bank + at)

    def counter(self, member: int, piece: Piece, stage: int) -> tuple[Ref, int]:
        """Return a member's flag, and its value once the data of a stage is there."""
        if self.layout.small:
            return self.context.small(member), stage + 1
        if not stage:
            return self.context.flag(member, COPIED), piece.index + 1
        value = piece.index * self.values + stage
        return self.context.flag(member, COMBINED), value

    def post(self, piece: Piece, stage: int) -> None:
        """Tell that this member's data of a stage is there."""
        self.stream.post(*self.counter(self.group.me, piece, stage))

    def wait_for(self, piece: Piece, source: Source) -> None:
        """Wait for a stage of a member, once for each piece."""
        member, stage = source
        if stage == OWN or member == self.group.me or source in self.awaited:
            return
        self.awaited.add(source)
        flag, value = self.counter(member, piece, stage)
        self.stream.wait(flag, value, self.group.ranks[member])
