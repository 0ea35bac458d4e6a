"""The proof: no deadlock, ordered accesses and right results of collectives run back to back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from han.common.collector import collector_off
from han.model.opcodes import COMBINATIONS, DATA, MESSAGES
from han.model.program import Base, Code, Coll, Program
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.spec import SPECS, UNEVEN, Spec, of_neighbours
from han.tasks.verify import bounds
from han.tasks.verify.address_spaces import AddressSpaces, Numbers
from han.tasks.verify.aliases import Apart, Operand, View
from han.tasks.verify.contents import Plain, Span, combine, joined, plain
from han.tasks.verify.events import FINISH, Events, Programs
from han.tasks.verify.expressions import Expressions
from han.tasks.verify.memory import Memory
from han.tasks.verify.order import Action, Row, Strand, Walk
from han.tasks.verify.pairs import Pairs
from han.tasks.verify.report import Report
from han.tasks.verify.story import BEGIN, END, Refuted

NOTHING, GOT, GIVEN, COLLECTED = range(FINISH + 1, FINISH + 5)  # codes of TEST by what it ends
READS = FINISH + 5  # the code of a reduction with operands in memory of peers
Progress = Callable[[str, int, int], None]  # the activity, its steps so far, all steps


def verify(
    plans: Sequence[Plan], *, in_place: bool = False, programs: Programs | None = None,
    progress: Progress | None = None,
) -> Report:  # fmt: skip
    """Prove that `plans`, run back to back on one communicator, meet their specifications.

    `in_place` lets reductions of whole messages take their operand from the receive buffer (for a
    reduce, at the root); signatures of calls by blocks have their own `in_place`. `programs` holds
    the programs of all ranks for each plan; without it, the plans are lowered. `progress` is called
    at intervals. Raises Refuted with the first property that does not hold, and ValueError if the
    plans belong to different communicators.
    """
    _check_together(plans)
    with collector_off():
        made = programs or lower_all(plans, progress)
    try:
        with collector_off():
            verifier = _Verifier(plans, made, in_place)
            verifier.run(progress)
    except (LookupError, ValueError) as error:  # a program with numbers that lowering does not emit
        raise Refuted(
            "programs are well formed", "", repr(error), "numbers of things that exist"
        ) from error
    texts = tuple(plan.signature.describe() for plan in plans)
    return Report(texts, plans[0].topology.size, verifier.events.operations, verifier.apart.holds)


def _check_together(plans: Sequence[Plan]) -> None:
    """Raise ValueError unless plans can belong to one communicator, whose channels they share."""
    channels = {(p.topology.homes, p.topology.memory, p.geometries) for p in plans}
    if len(channels) != 1:
        raise ValueError(
            f"{len(plans)} plans for {len(channels)} different communicators: plans that run back "
            "to back have the same ranks, levels and bytes of shared memory"
        )


def lower_all(plans: Sequence[Plan], progress: Progress | None = None) -> Programs:
    """Lower plans for all ranks; a plan that repeats is lowered once."""
    different = {id(plan): plan for plan in plans}
    size = plans[0].topology.size
    made: dict[int, list[Program]] = {}
    for turn, (key, plan) in enumerate(different.items()):
        made[key] = []
        for rank in range(size):
            made[key].append(lower(plan, rank))
            if progress is not None:
                progress("lowering", turn * size + rank + 1, len(different) * size)
    return [made[id(plan)] for plan in plans]


@dataclass
class _Sent:
    """The data that a message or collective takes from a rank; its memory is lent until a TEST."""

    spans: list[Span]
    memory: Memory | None = None
    start: int = 0
    stop: int = 0


def spec_of(signature: Signature, size: int) -> Spec:
    """Return what a call of `size` ranks has to do."""
    if signature.counts:
        lengths = [signature.length(k) for k in range(len(signature.counts))]
        if signature.neighbours is not None and signature.neighbours.same:
            return of_neighbours(lengths)
        return UNEVEN[signature.collective](lengths)
    return SPECS[signature.collective](size, signature.nbytes, signature.root)


class _Verifier:
    """Carries out events: one action for each code, on :class:`Memory`."""

    def __init__(self, plans: Sequence[Plan], programs: Programs, in_place: bool) -> None:
        self.plans, self.programs = plans, programs
        self.size = plans[0].topology.size
        self._check_footprints()
        found = (spec_of(plan.signature, self.size) for plan in plans)
        self.specs = [spec.in_place() if in_place else spec for spec in found]
        self.places = AddressSpaces(plans, self.specs, in_place)
        self.events = Events(plans, programs, self.places)
        bounds.check(self.events)
        self.pairs = Pairs(self.events)
        self.expressions = Expressions(self.size)
        self.memories: defaultdict[int, Memory] = defaultdict(Memory)  # by number
        self.apart = Apart()
        self.sent: dict[int, _Sent] = {}
        self.combined: dict[int, list[Span]] = {}  # of an MPI collective, by its first member
        self.results: dict[int, list[Span]] = {}  # by run: of the first rank that left

    def _check_footprints(self) -> None:
        for run, plan in enumerate(self.plans):
            wanted = plan.footprint()
            for rank, program in enumerate(self.programs[run]):
                if program.footprint != wanted:
                    raise Refuted(
                        "all ranks take the same part of their rings", f"run {run}, rank {rank}",
                        f"a footprint of {program.footprint}", str(wanted),
                    )  # fmt: skip

    def run(self, progress: Progress | None) -> None:
        """Carry out all events; raises Refuted."""
        total = self.events.number
        tell = None if progress is None else lambda done: progress("proving", done, total)
        Walk(self.events, self.pairs, self._rows()).run(self._actions(), tell)

    def _actions(self) -> dict[int, Action]:
        """Return what events do, by code; codes that only wait are missing."""
        return {
            int(Code.COPY): self._copy,
            int(Code.PULL): self._pull,
            int(Code.PUSH): self._pull,
            int(Code.PACK): self._copy,
            int(Code.UNPACK): self._copy,
            READS: self._reduce_peers,
            int(Code.REDUCE): self._reduce,
            int(Code.REDUCE2): self._reduce,
            int(Code.ACCUMULATE): self._accumulate,
            int(Code.POST): self._post,
            int(Code.ISEND): self._send,
            int(Code.IRECV): self._receive,
            int(Code.COLL): self._call,
            GOT: self._get,
            GIVEN: self._give_back,
            COLLECTED: self._collect,
            BEGIN: self._enter,
            END: self._leave,
        }

    def _rows(self) -> Numbers:
        """Return a Row for each event; a TEST has the references of what it completes."""
        events, start = self.events, self.pairs.start
        code, which = events.code.copy(), np.arange(len(start))
        for began, ends in ((Code.ISEND, GIVEN), (Code.IRECV, GOT), (Code.COLL, COLLECTED)):
            code[(start >= 0) & (events.code[start] == began)] = ends
        which[start >= 0] = start[start >= 0]
        posts = events.code == Code.POST
        posts[list(self.pairs.rises)] = False
        code[posts] = NOTHING
        moves = np.isin(events.code[which], (*DATA, *MESSAGES))
        code[moves & (events.nbytes[which] == 0)] = NOTHING
        foreign = (events.holder != events.rank[:, None]).any(axis=1) & (code != NOTHING)
        code[foreign & (code == Code.COPY)] = Code.PULL
        code[foreign & np.isin(code, COMBINATIONS)] = READS
        rows: Numbers = np.empty((len(code), 11), np.int64)  # filled in place, as it is large
        rows[:, 0], rows[:, 1:9:2], rows[:, 2:9:2] = code, events.memory, events.at
        if self.places.replaced.any():
            rows[:, 1:9:2] -= self.places.operands(events.run, events.holder, events.base)
        rows[:, 9], rows[:, 10] = events.nbytes, which
        tests = np.flatnonzero(start >= 0)
        rows[tests, 1:10] = rows[start[tests], 1:10]
        return rows

    # ---- entering and leaving -----------------------------------------------------------------

    def _enter(self, strand: Strand, row: Row) -> None:
        run, rank = strand.run, strand.rank
        strand.entered = 1 << rank
        base = Base.RECV if self.places.one_buffer[run, rank] else Base.SEND
        number = self.places.own(run, rank, base)
        if self.places.replaced[run, rank]:
            self.memories[number] = result = View(self.apart)
            self.memories[self.places.operand(run, rank)] = Operand(result)
        memory = self.memories[number]
        for piece in self.specs[run].before[rank]:
            memory.fill(piece.start, piece.stop, (rank, piece.offset - piece.start))

    def _leave(self, strand: Strand, row: Row) -> None:
        run, rank = strand.run, strand.rank
        self._check_synchronised(strand)
        memory = self.memories[self.places.own(run, rank, Base.RECV)]
        for number, piece in enumerate(self.specs[run].after[rank]):
            spans = joined(memory.read(piece.start, piece.stop, strand))
            if self.results.get(run) != spans:  # else they are as those of an earlier rank
                for span in plain(spans):
                    self._check_result(run, rank, number, span)
            self._compare(run, rank, spans)
        mine = (self.places.own(run, rank, b) for b in (Base.SEND, Base.RECV, Base.SCRATCH))
        for number in (self.places.operand(run, rank), *mine):
            left = self.memories.pop(number, None)
            if left is not None:
                left.abandon(strand)

    def _check_synchronised(self, strand: Strand) -> None:
        run, rank = strand.run, strand.rank
        wanted = (1 << self.size) - 1 if self.specs[run].synchronises else 0
        if self.programs[run][rank].sync:  # a rank that finishes knows that its peers entered
            for level in self.places.channels:
                for r in self.events.topology.home(level, rank):
                    wanted |= 1 << r
        missing = wanted & ~strand.entered
        if missing:
            ranks = [r for r in range(self.size) if missing & 1 << r]
            raise Refuted(
                "ranks that synchronise leave after all have entered",
                self.events.story(strand.event),
                f"rank(s) {ranks} need not have entered", "all ranks",
            )  # fmt: skip

    def _check_result(self, run: int, rank: int, number: int, span: Plain) -> None:
        start, stop, (expression, delta) = span
        piece = self.specs[run].after[rank][number]
        signature = self.plans[run].signature
        ordered = signature.canonical or not signature.commutative
        if signature.canonical:
            self._check_order(run, rank, expression, piece.ranks)
        if delta != piece.offset or not self.expressions.combines(expression, piece.ranks, ordered):
            ranks = self.expressions.ranks(expression, ordered)
            raise Refuted(
                "the result is as specified", f"run {run}, rank {rank}",
                f"bytes {piece.start + start} to {piece.start + stop} are bytes from "
                f"{start + delta} of the contributions of ranks {_short(ranks)}",
                f"bytes from {start + piece.offset} of ranks {_short(piece.ranks)}",
            )  # fmt: skip

    def _check_order(self, run: int, rank: int, expression: int, ranks: tuple[int, ...]) -> None:
        """Check that a reproducible result is the canonical expression, whatever the plan."""
        wanted = self.expressions.canonical(ranks)
        if expression == wanted:
            return
        raise Refuted(
            "reproducible results are combined in the canonical order", f"run {run}, rank {rank}",
            self.expressions.spelled(expression), self.expressions.spelled(wanted),
        )  # fmt: skip

    def _compare(self, run: int, rank: int, spans: list[Span]) -> None:
        """Check that all ranks of an allreduce combine contributions in the same order."""
        if self.specs[run].collective != "allreduce":
            return
        if self.results.setdefault(run, spans) != spans:
            raise Refuted(
                "all ranks of an allreduce combine in the same order", f"run {run}, rank {rank}",
                "another order than on the first rank that left", "bitwise equal results",
            )  # fmt: skip

    # ---- operations ---------------------------------------------------------------------------

    def _copy(self, strand: Strand, row: Row) -> None:
        code, target, to, source, at, _, _, _, _, nbytes, _ = row
        if code == Code.PACK:  # a slot may have bytes behind its block
            self.memories[source].fill_unused(at, at + nbytes)
        spans = self.memories[source].read(at, at + nbytes, strand)
        self.memories[target].write(to, spans, strand)

    def _check_shown(self, strand: Strand) -> None:
        """Check that the peers whose memory is accessed have entered the run."""
        for peer in self.events.holder[strand.event].tolist():
            if not strand.entered & 1 << peer:
                raise strand.problem(
                    f"rank {peer} need not have entered, so its addresses need not be known", -1,
                    "a wait for it",
                )  # fmt: skip

    def _pull(self, strand: Strand, row: Row) -> None:
        self._check_shown(strand)
        self._copy(strand, row)

    def _reduce_peers(self, strand: Strand, row: Row) -> None:
        self._check_shown(strand)
        self._reduce(strand, row)

    def _reduce(self, strand: Strand, row: Row) -> None:
        _, target, to, x, at_x, y, at_y, also, to_also, nbytes, _ = row
        a = self.memories[x].read(at_x, at_x + nbytes, strand)
        b = self.memories[y].read(at_y, at_y + nbytes, strand)
        self._check_elements(strand, a)
        result = combine(a, b, self.expressions, strand)
        self.memories[target].write(to, result, strand)
        if also >= 0:
            self.memories[also].write(to_also, result, strand)

    def _accumulate(self, strand: Strand, row: Row) -> None:
        _, target, to, _, _, y, at, _, _, nbytes, _ = row
        signature = self.plans[strand.run].signature
        if signature.canonical or not signature.commutative:
            raise strand.problem("operands that do not commute in any order", -1, "REDUCE")
        operand = self.memories[y].read(at, at + nbytes, strand)
        self._check_elements(strand, operand)
        self.memories[target].accumulate(to, operand, self.expressions, strand)

    def _check_elements(self, strand: Strand, spans: list[Span]) -> None:
        element = self.plans[strand.run].signature.element
        for _, _, (_, delta) in spans:
            if delta % element:
                raise strand.problem(
                    f"operands that start at byte {delta} of the message, elements of {element} B",
                    -1, "whole elements",
                )  # fmt: skip

    def _post(self, strand: Strand, row: Row) -> None:
        first = self.pairs.rises[strand.event]
        _, rank, _ = self.events.where(first)
        if not strand.after(strand.domain.chain(rank, int(self.events.stream[first])), first):
            raise strand.problem("a flag whose value may fall", first, "posts in order")

    def _send(self, strand: Strand, row: Row) -> None:
        memory, at, nbytes = self.memories[row[3]], row[4], row[9]
        spans = memory.lend(at, at + nbytes, strand)
        self.sent[strand.event] = _Sent(spans, memory, at, at + nbytes)

    def _receive(self, strand: Strand, row: Row) -> None:
        self.memories[row[1]].await_(row[2], row[2] + row[9], strand)

    def _get(self, strand: Strand, row: Row) -> None:
        send = int(self.pairs.sent[row[10]])
        self.memories[row[1]].arrive(row[2], self.sent[send].spans, strand)

    def _give_back(self, strand: Strand, row: Row) -> None:
        sent = self.sent[row[10]]
        if sent.memory is not None:
            sent.memory.give_back(sent.start, sent.stop, row[10], strand)

    # ---- MPI collectives ----------------------------------------------------------------------

    def _call(self, strand: Strand, row: Row) -> None:
        _, to, at_to, source, at, _, _, _, _, nbytes, start = row
        sent = self.sent[start] = _Sent([])
        _, gives, gets = bounds.call_of(self.events, start)
        if not nbytes:
            return
        if source < 0:
            source, at = to, at_to
        if gives and gets and at == at_to and self._are_one(source, to):  # MPI.IN_PLACE
            sent.spans = self.memories[source].read(at, at + nbytes, strand)
            self._check_elements(strand, sent.spans)
        elif gives and source >= 0:
            memory = self.memories[source]
            spans = memory.lend(at, at + nbytes, strand)
            if gets:
                self._check_elements(strand, spans)
            self.sent[start] = _Sent(spans, memory, at, at + nbytes)
        if gets and to >= 0:
            self.memories[to].await_(at_to, at_to + nbytes, strand)

    def _are_one(self, one: int, other: int) -> bool:
        """Whether two memories are the same bytes, maybe seen as send and as receive buffer."""
        if min(one, other) < 0:
            return False
        return self.memories[one].segments is self.memories[other].segments

    def _collect(self, strand: Strand, row: Row) -> None:
        to, at, nbytes, start = row[1], row[2], row[9], row[10]
        self._give_back(strand, row)
        kind, _, gets = bounds.call_of(self.events, start)
        if gets and nbytes:
            members, _ = self.pairs.calls[start]
            self.memories[to].arrive(at, self._result(kind, members, start, strand), strand)

    def _result(self, kind: int, members: list[int], start: int, strand: Strand) -> list[Span]:
        """Return what a collective computes from the data of its members, in their order."""
        if members[0] not in self.combined:
            spans = [self.sent[m].spans for m in members if m in self.sent]
            if kind == Coll.BCAST:
                root = int(self.events.rows["peer"][start])
                spans = [self.sent[members[root]].spans]
            result = spans[0]
            for other in spans[1:]:
                result = combine(result, other, self.expressions, strand)
            self.combined[members[0]] = result
        return self.combined[members[0]]


def _short(ranks: tuple[int, ...]) -> str:
    text = ", ".join(map(str, ranks[:12]))
    return text if len(ranks) <= 12 else f"{text}, ... ({len(ranks)} in all)"
