"""The exchanges between nodes: the patterns of those inside a node, in messages.

In each stage, a member receives all its operands and sends all that its readers need at the same
time: a factor f uses f - 1 ports. It combines an operand when it has arrived, and waits for its
sends at the end of the stage. Operands are received into scratch memory, and partial results are
where the result will be.

Source: Jocksch et al., section 2.1.2: the steps of figure 3 are receives, sends, a wait for all of
them, and reductions. Partial results are not rearranged, so the blocks for a member may be two
messages where they wrap around the end of the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from han.common.grouped import grouped
from han.model.channel_layout import lines
from han.model.program import Ref
from han.submodules.exchange.layout import partition_of
from han.submodules.exchange.patterns import (
    PRESETS,
    asked_factors,
    message_steps,
    misfit_of,
    own_factors,
)
from han.submodules.exchange.steps import OWN, Blocks, Fold, Steps, Take, spans
from han.submodules.measured import SEGMENT
from han.submodules.parts.fold import fold
from han.submodules.parts.mail import MOST, Mail, Transfer, misfit
from han.submodules.parts.pieces import in_strides
from han.tasks.canonical import linear, rooms
from han.tasks.context import Context
from han.tasks.contract import Question
from han.tasks.graph import Task

Run = tuple[int, int]  # where bytes of a task start and stop
Mailed = tuple[int, int, int]  # a member, and the run that it sends or receives
Arrival = tuple[int, int, int, int]  # the same, and where in the scratch memory it comes
Gathering = tuple[tuple[Mailed, ...], tuple[Mailed, ...]]  # what arrives in a step, and leaves
T = TypeVar("T")


class MessageFold(NamedTuple):
    """A run that this member combines, and the members whose operands it combines, in their order.

    This member is number `own` of them; `whole`: its operand is that of the call. `linear`: they
    are combined from left to right.
    """

    run: Run
    members: list[int]
    own: int
    whole: bool
    linear: bool


class Stage(NamedTuple):
    """What a member does in a combining stage of a task of some size.

    `arrivals` are members, runs, and where in the scratch memory they come; `departures` are sent.
    """

    arrivals: tuple[Arrival, ...]
    departures: list[Mailed]
    folds: list[MessageFold]


Arriving = dict[int, list[Transfer]]  # by member


def unfit(question: Question) -> str | None:
    """Return the reason why an exchange in messages cannot serve the call, or None."""
    choice, large = question.choice, misfit(question.signature.element)
    if large is not None:
        return large
    if asked_factors(choice) is not None and choice.algorithm in PRESETS:
        return own_factors(choice.algorithm)
    return misfit_of(choice, question.topology.widest(question.level))


def lower(context: Context) -> None:
    """Emit this rank's part of the exchange of each task."""
    exchange = Exchange(context, context.result)
    for task in in_strides(context):
        exchange.begin(task)
        exchange.combine()
        exchange.gather()


class Exchange:
    """One member's part in an exchange by messages, task by task.

    `mine` is where this member's data is: its operand, and once it has combined some, `work`.
    """

    def __init__(self, context: Context, work: Ref, combines: bool = True) -> None:
        builder = context.builder
        self.context, self.work, self.mine = context, work, context.source
        self.me, self.mail = context.group.me, Mail(context)
        self.steps: Steps = message_steps(
            context.choice, context.group.size, builder.signature.nbytes
        )
        # Bytes of a message: one that carries all data is whole by default.
        self.most = context.choice.get("segment", MOST if self.steps.blocks == 1 else SEGMENT)
        self.step = max(1, self.most // context.grain) * context.grain  # combined at a time
        self.partition = partition_of(context.choice, self.steps, context.grain)
        self.start = self.nbytes = 0
        self._known: dict[tuple[str, int, int], Any] = {}  # by the size of a task
        self._folded: dict[int, list[Fold]] = {}  # by stage
        self.room = context.stream.room(self._room(context.tasks) if combines else 0)

    def begin(self, task: Task) -> None:
        """Turn to a task."""
        self.start, self.mine = task.start, self.context.source
        self.nbytes = task.nbytes
        self.mail.start_over()

    def combine(self) -> None:
        """Carry out all combining stages."""
        for stage in range(1, self.steps.stages + 1):
            self._combine(stage)

    def gather(self) -> None:
        """Carry out the gathering steps; without data those that release members."""
        sends: list[Transfer] = []
        for arriving, leaving in self._once("gather", self._first, self._gathered):
            received = [self.receive(self.work, (a, b), member) for member, a, b in arriving]
            sends += [self.send(self.work, (a, b), member) for member, a, b in leaving]
            self.mail.complete_all(received)
        self.mail.complete_all(sends)

    @property
    def _first(self) -> int:
        """How many gathering steps a task without data leaves out: they release nobody."""
        return self.steps.gathers - self.steps.releases if self.empty else 0

    def _gathered(self, first: int) -> tuple[Gathering, ...]:
        """Return what each gathering step after `first` brings this member, and what it sends."""
        return tuple([self._gathers(step) for step in range(first + 1, self.steps.gathers + 1)])

    def _gathers(self, step: int) -> Gathering:
        takes = grouped(self.takes(self.me, step)).items()
        arriving = [(member, *run) for member, blocks in takes for run in self.runs(blocks)]
        takers = self.steps.takers(self.me, step)
        given = [(m, [part for one, part in self.takes(m, step) if one == self.me]) for m in takers]
        leaving = [(member, *run) for member, blocks in given for run in self.runs(blocks)]
        return tuple(arriving), tuple(leaving)

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what a member takes in a gathering step."""
        return self.steps.takes(member, step)

    # ---- runs and messages --------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether the task has no data; its messages only synchronise."""
        return self.nbytes == 0

    def runs(self, parts: Iterable[Blocks]) -> list[Run]:
        """Return where consecutive blocks start and stop; a task without data is one empty run."""
        if self.empty:
            return [(0, 0)]
        found = [self.partition.span(self.nbytes, r.start, r.stop) for r in spans(parts)]
        return [(a, b) for a, b in found if a < b]

    def _once(self, name: str, step: int, make: Callable[[int], T]) -> T:
        """Return what `make` finds for a step: the same in all tasks of the size of this one."""
        key = name, step, self.nbytes
        if key not in self._known:
            self._known[key] = make(step)
        found: T = self._known[key]
        return found

    def receive(self, place: Ref, run: Run, member: int) -> Transfer:
        """Start receiving a run of the task from a member."""
        start, stop = run
        return self.mail.receive(place, self.start + start, self.start + stop, member, self.most)

    def send(self, place: Ref, run: Run, member: int) -> Transfer:
        """Start sending a run of the task to a member."""
        start, stop = run
        return self.mail.send(place, self.start + start, self.start + stop, member, self.most)

    def _own(self, stage: int) -> list[Fold]:
        """Return what this member combines in a stage, in numbers of blocks."""
        if stage not in self._folded:
            self._folded[stage] = self.steps.folds(self.me, stage)
        return self._folded[stage]

    def _arrivals(self, stage: int) -> tuple[Arrival, ...]:
        """Return the runs that arrive in a stage: member, run, and where in the scratch memory."""
        found, used = list[Arrival](), 0
        for member, blocks in _operands(self._own(stage), self.me).items():
            for start, stop in self.runs(blocks):
                found.append((member, start, stop, used))
                used += lines(stop - start)
        return tuple(found)

    def _room(self, tasks: Sequence[Task]) -> int:
        """Return the bytes of scratch memory for the operands of any stage of any task."""
        most = 0
        for nbytes in {task.nbytes for task in tasks}:
            self.nbytes = nbytes
            for stage in range(1, self.steps.stages + 1):
                arrivals = self._once("arrivals", stage, self._arrivals)
                ends = [used + stop - start for _, start, stop, used in arrivals]
                most = max(most, *ends, 0)
        return most

    # ---- stages -------------------------------------------------------------------------------

    def _combine(self, stage: int) -> None:
        """Receive and send the operands of a stage, combine them, and wait for the sends."""
        arrivals, departures, folds = self._once("stage", stage, self._stage)
        arriving: Arriving = {}
        for member, first, last, used in arrivals:
            place = (self.room + used).holding(self.start + first)
            transfer = self.receive(place, (first, last), member)
            arriving.setdefault(member, []).append(transfer)
        sends = [self.send(self.mine, (first, last), m) for m, first, last in departures]
        for fold_ in folds:
            self._fold(fold_, arriving, sends)
        self.mail.complete_all(sends)
        if folds:
            self.mine = self.work

    def _stage(self, stage: int) -> Stage:
        arrivals = self._once("arrivals", stage, self._arrivals)
        return Stage(arrivals, self._departures(stage), self._folds(stage))

    def _departures(self, stage: int) -> list[Mailed]:
        """Return the runs that this member sends in a stage, and to whom."""
        found = list[Mailed]()
        for reader in self.steps.readers(self.me, stage):
            folds = self.steps.folds(reader, stage)
            sent = [part for part, sources in folds for one, _ in sources if one == self.me]
            found += [(reader, *run) for run in self.runs(sent)]
        return found

    def _folds(self, stage: int) -> list[MessageFold]:
        """Return the runs that this member combines in a stage."""
        found = list[MessageFold]()
        groups = groupby(self._own(stage), key=lambda fold: fold[1])
        for sources, group in groups:
            members = [member for member, _ in sources]
            own = members.index(self.me)
            linear_ = self.context.order_of(members) == linear(len(members))
            whole = sources[own][1] == OWN
            runs = self.runs(blocks for blocks, _ in group)
            found += [MessageFold(run, members, own, whole, linear_) for run in runs]
        return found

    def _fold(self, one: MessageFold, arriving: Arriving, sends: Sequence[Transfer]) -> None:
        """Combine the operands of a run in their order, as they arrive."""
        combine = self._combine_in_turn if one.linear else self._combine_in_order
        operand = self.context.source if one.whole else self.work
        start, stop = self.start + one.run[0], self.start + one.run[1]
        sends = [transfer for transfer in sends if transfer.overlaps(start, stop)]
        for at in range(start, stop, self.step) or [start]:
            combine(one, operand, at, min(at + self.step, stop), arriving, sends)

    def _combine_in_turn(
        self, one: MessageFold, own: Ref, at: int, end: int,
        arriving: Arriving, sends: Sequence[Transfer],
    ) -> None:  # fmt: skip
        """Combine the operands of [at, end) from left to right.

        Those before this rank's own are combined where the first of them has arrived.
        """
        stream, total, result = self.context.stream, own.to(at), self.work.to(at)
        left: Ref | None = None
        for member in one.members[: one.own]:
            operand = self._arrived(member, at, end, arriving)
            if left is None:
                left = operand
            else:
                stream.reduce(left, left, operand, end - at)
        self._end_sends(sends, at, end)
        if left is not None:
            stream.reduce(result, left, total, end - at)
            total = result
        for member in one.members[one.own + 1 :]:
            stream.reduce(result, total, self._arrived(member, at, end, arriving), end - at)
            total = result
        stream.copy(result, total, end - at)

    def _combine_in_order(
        self, one: MessageFold, own: Ref, at: int, end: int,
        arriving: Arriving, sends: Sequence[Transfer],
    ) -> None:  # fmt: skip
        """Combine the operands of [at, end) in the canonical order."""
        order, stream = self.context.order_of(one.members), self.context.stream
        partials = [stream.room(self.step, k).holding(at) for k in range(rooms(order))]
        operands = self._awaited(one.members, own, at, end, arriving, sends)
        fold(stream, order, operands, end - at, self.work.to(at), partials)

    def _holding(self, member: int, start: int, stop: int, arriving: Arriving) -> Transfer:
        """Return the transfer that brings bytes [start, stop) of a member's operand."""
        transfers = arriving[member]
        if len(transfers) == 1:
            return transfers[0]
        return next(t for t in transfers if t.start <= start and stop <= t.stop)

    def _end_sends(self, sends: Sequence[Transfer], at: int, end: int) -> None:
        """Wait for sends of [at, end), which the result may overwrite."""
        for transfer in sends:
            if transfer.overlaps(at, end):
                self.mail.complete(transfer, end)

    def _awaited(
        self, members: list[int], operand: Ref, at: int, end: int,
        arriving: Arriving, sends: Sequence[Transfer],
    ) -> Iterator[Ref]:  # fmt: skip
        """Yield each operand of [at, end) when it is there; before the last, end sends of them."""
        for k, member in enumerate(members):
            if k == len(members) - 1:
                self._end_sends(sends, at, end)
            here = member == self.me
            yield operand.to(at) if here else self._arrived(member, at, end, arriving)

    def _arrived(self, member: int, at: int, end: int, arriving: Arriving) -> Ref:
        """Wait for bytes [at, end) of a member's operand; return where they are."""
        transfer = self._holding(member, at, end, arriving)
        self.mail.complete(transfer, max(end, at + 1))
        return transfer.place.to(at)


def _operands(folds: Iterable[Fold], member: int) -> dict[int, list[Blocks]]:
    """Return the blocks that a member with these folds receives, by the member that sends them."""
    return grouped(
        (source, blocks) for blocks, sources in folds for source, _ in sources if source != member
    )
