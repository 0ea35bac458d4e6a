"""The proof: deadlock, order of accesses, contents and results of collectives run back to back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from han.geometry import FLAGS, LINE, SMALL
from han.program import Area, Base, Code, Coll, Program
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.spec import SPECS, Spec
from han.tasks.verify.events import BEGIN, END, SHIFT, Events, Row
from han.tasks.verify.memory import Access, Expressions, Memory, Span, combine, merged
from han.tasks.verify.order import Walk
from han.tasks.verify.story import Refuted

CHECKED = (
    "flags have one writer and only rise",
    "all ranks take the same part of their rings",
    "sends and receives pair up, with equal sizes and in one order a tag",
    "collectives of MPI pair up",
    "requests are completed before they are used again and before the end",
    "no deadlock, also where sends wait for receives: the graph of events has no cycle",
    "accesses lie inside their memory, beside the flags, and as the kernels allow",
    "every read is ordered after its write, every write after the reads before it",
    "nothing is read that was never written or is in flight",
    "send buffers are only read",
    "the result is as specified, operands in order where the operation does not commute",
    "all ranks combine in the same order",
    "who synchronises leaves after all have entered",
)


@dataclass(frozen=True)
class Report:
    """What was proved, of what."""

    runs: tuple[str, ...]
    ranks: int
    events: int
    checked: tuple[str, ...] = CHECKED

    def __str__(self) -> str:
        lines = [f"proved for {self.ranks} ranks and all interleavings ({self.events} events):"]
        lines += [f"  run {k}: {text}" for k, text in enumerate(self.runs)]
        return "\n".join([*lines, *(f"  - {text}" for text in self.checked)])


def verify(
    plans: Sequence[Plan],
    *,
    in_place: bool = False,
    programs: Sequence[Sequence[Program]] | None = None,
) -> Report:
    """Prove that `plans`, run back to back on one communicator, do what they are specified to.

    `in_place` lets reductions take their operand from the receive buffer (for a reduce, at the
    root). `programs` are examined instead of what the plans lower to, if given: a list of all
    ranks' for each plan. Raises Refuted with the first property that does not hold.
    """
    size = plans[0].topology.size
    made = programs or [[lower(plan, r) for r in range(size)] for plan in plans]
    try:
        verifier = _Verifier(plans, made, in_place)
        verifier.run()
    except (LookupError, ValueError) as error:  # a program that nothing has lowered
        raise Refuted(
            "programs are well formed", "", repr(error), "numbers that mean something"
        ) from error
    texts = tuple(plan.signature.describe() for plan in plans)
    return Report(texts, size, len(verifier.events.where))


@dataclass
class _Sent:
    """What a message or collective takes from a rank."""

    spans: list[Span]
    start: int = 0
    stop: int = 0
    memory: Memory | None = field(default=None)  # lent


class _Verifier:
    def __init__(
        self, plans: Sequence[Plan], programs: Sequence[Sequence[Program]], in_place: bool
    ) -> None:
        self.plans, self.programs, self.in_place = plans, programs, in_place
        self.events = Events(plans, programs)
        self.size = plans[0].topology.size
        self.expressions = Expressions(self.size)
        self.specs = [self._spec(plan) for plan in plans]
        self.memories: dict[object, Memory] = {}
        self.sent: dict[int, _Sent] = {}
        self.results: dict[int, list[Span]] = {}  # of the first rank that was done
        self.walk = Walk(self.events)
        self.posted: dict[object, tuple[int, int, int]] = {}  # a flag's value, chain and position
        self.flags: dict[object, list[int]] = defaultdict(list)
        for memory, offset in self.events.posts:
            self.flags[memory].append(offset)
        for offsets in self.flags.values():
            offsets.sort()

    @staticmethod
    def _spec(plan: Plan) -> Spec:
        s = plan.signature
        return SPECS[s.collective](plan.topology.size, s.nbytes, s.root)

    def run(self) -> None:
        """Examine all events."""
        self._check_footprints()
        for access in self.walk:
            self._visit(access)

    def _check_footprints(self) -> None:
        for run, plan in enumerate(self.plans):
            wanted = plan.footprint()
            for rank, program in enumerate(self.programs[run]):
                if program.footprint != wanted:
                    raise Refuted(
                        "all ranks take the same part of their rings", f"run {run}, rank {rank}",
                        f"a footprint of {program.footprint}", str(wanted),
                    )  # fmt: skip

    def _check_synchronised(self, event: int, run: int, rank: int) -> None:
        wanted = (1 << self.size) - 1 if self.specs[run].synchronises else 0
        if self.programs[run][rank].sync:  # what native/executor.c concludes from it
            for level in self.events.channels:
                for r in self.events.topology.home(level, rank):
                    wanted |= 1 << r
        missing = [r for r in range(self.size) if wanted & ~self.walk.entered[event] & 1 << r]
        if missing:
            raise Refuted(
                "who synchronises leaves after all have entered", str(self.events.story(event)),
                f"rank(s) {missing} need not have entered", "all of them",
            )  # fmt: skip

    # ---- what events do ---------------------------------------------------------------------

    def _visit(self, access: Access) -> None:
        event = access.event
        run, rank, index = self.events.where[event]
        if index == BEGIN:
            self._enter(run, rank)
        elif index == END:
            self._check_synchronised(event, run, rank)
            self._leave(run, rank, access)
        elif event in self.events.started:
            request = self.events.started[event]
            self._complete(event, request.event, request.row, access)
        else:
            self._execute(run, rank, self.events.rows[run][rank][index], access)

    def _enter(self, run: int, rank: int) -> None:
        spec = self.specs[run]
        base = Base.RECV if self._one_buffer(run, rank) else Base.SEND
        memory = self.memories[base.name, rank, run] = Memory()
        for piece in spec.before[rank]:
            memory.fill(piece.start, piece.stop, (rank, piece.offset - piece.start))
        if base == Base.SEND:
            self.memories["RECV", rank, run] = Memory()
        self.memories["SCRATCH", rank, run] = Memory()

    def _one_buffer(self, run: int, rank: int) -> bool:
        """Whether send and receive buffer are the same."""
        signature = self.plans[run].signature
        rooted = signature.collective == "reduce" and signature.root != rank
        return self.specs[run].shared or (self.in_place and signature.reduces and not rooted)

    def _leave(self, run: int, rank: int, access: Access) -> None:
        spec, commutative = self.specs[run], self.plans[run].signature.commutative
        memory = self.memories["RECV", rank, run]
        for piece in spec.after[rank]:
            for start, stop, (number, delta) in memory.read(piece.start, piece.stop, access):
                ranks = self.expressions.ranks(number)
                if commutative:
                    ranks = tuple(sorted(ranks))
                if ranks != piece.ranks or delta != piece.offset:
                    raise Refuted(
                        "the result is as specified", f"run {run}, rank {rank}",
                        f"bytes {piece.start + start} to {piece.start + stop} are bytes from "
                        f"{start + delta} of the contributions of ranks {_short(ranks)}",
                        f"bytes from {start + piece.offset} of ranks {_short(piece.ranks)}",
                    )  # fmt: skip
            self._compare(run, rank, merged(memory.read(piece.start, piece.stop, access)))
        for base in ("SEND", "RECV", "SCRATCH"):
            self.memories.pop((base, rank, run), None)

    def _compare(self, run: int, rank: int, spans: list[Span]) -> None:
        """All ranks that get the same contributions must have combined them in one order."""
        if self.specs[run].collective != "allreduce":
            return
        if self.results.setdefault(run, spans) != spans:
            raise Refuted(
                "all ranks combine in the same order", f"run {run}, rank {rank}",
                "another order than on a rank that was done earlier", "bitwise equal results",
            )  # fmt: skip

    def _place(
        self, access: Access, base: int, offset: int, nbytes: int, write: bool = False
    ) -> tuple[Memory, int]:
        """Resolve an address of `nbytes`, which must lie inside of its memory."""
        run, rank, _ = self.events.where[access.event]
        if not Base.NONE < base < Base.CHANNEL + len(Area) * len(self.events.channels):
            raise access.problem(f"an address relative to base {base}", -1, "one that exists")
        if base in (Base.SEND, Base.RECV):
            if offset + nbytes > self.plans[run].signature.nbytes:
                raise access.problem(f"byte {offset + nbytes} of a buffer", -1, "its end before")
            if self._one_buffer(run, rank):
                base = Base.RECV
            elif base == Base.SEND and write:
                raise access.problem("a write into the send buffer", -1, "only reads")
        elif base == Base.SCRATCH:
            if offset + nbytes > self.programs[run][rank].scratch:
                raise access.problem("an access beyond the scratch", -1, "memory that is there")
        else:
            self._check_channel(access, run, rank, base, offset, nbytes)
        name, at = self.events.address(run, rank, base, offset)
        if name not in self.memories:
            self.memories[name] = Memory(tuple(self.flags.get(name, ())))
        return self.memories[name], at

    def _check_channel(
        self, access: Access, run: int, rank: int, base: int, offset: int, nbytes: int
    ) -> None:
        channel, area = divmod(base - Base.CHANNEL, len(Area))
        level = self.events.channels[channel]
        geometry = self.plans[run].geometries[level]
        assert geometry is not None
        ranks = len(self.events.topology.home(level, rank))
        if area == Area.SMALL:
            inside = offset // SMALL == (offset + nbytes - 1) // SMALL < ranks
        else:
            slot, at = divmod(offset, geometry.ring)
            inside = slot < ranks and at + nbytes <= self.programs[run][rank].footprint[channel]
        if not inside:
            raise access.problem("an access beyond this run's part", -1, "cells that it has taken")

    def _execute(self, run: int, rank: int, row: Row, access: Access) -> None:
        code, n = row.code, row.n
        element = self.plans[run].signature.element
        refs = list(zip(row.base, row.off, strict=True))
        if code == Code.COPY and n:
            source, at = self._place(access, *refs[1], n)
            target, to = self._place(access, *refs[0], n, write=True)
            self._apart(access, (target, to), (source, at), n)
            target.write(to, source.read(at, at + n, access), access)
        elif code in (Code.REDUCE, Code.REDUCE2) and n:
            self._reduce(access, refs, n * element, twice=code == Code.REDUCE2)
        elif code == Code.ISEND:
            memory, at = self._place(access, *refs[1], n)
            spans = memory.lend(at, at + n, access) if n else []
            self.sent[access.event] = _Sent(spans, at, at + n, memory)
        elif code == Code.IRECV and n:
            memory, at = self._place(access, *refs[0], n, write=True)
            memory.await_(at, at + n, access)
        elif code == Code.COLL:
            self._begin_collective(access, row, refs)
        elif code in (Code.POST, Code.WAIT):
            self._flag(run, rank, row, access)

    def _flag(self, run: int, rank: int, row: Row, access: Access) -> None:
        """Check that a flag is one, and that it only rises: a wait pairs with its first post."""
        base, offset = row.base[0], row.off[0]
        channel, area = divmod(base - Base.CHANNEL, len(Area))
        if channel not in range(len(self.events.channels)) or area == Area.CELLS:
            raise access.problem(f"a flag relative to base {base}", -1, "one in a channel")
        ranks = len(self.events.topology.home(self.events.channels[channel], rank))
        room = ranks * (SMALL if area == Area.SMALL else FLAGS * LINE)
        if offset % LINE or offset >= room or row.n >> SHIFT:
            raise access.problem(f"a flag at {offset} for {row.n}", -1, "a line among the flags")
        if row.code == Code.WAIT:
            return
        flag, value = self.events.address(run, rank, base, offset), (run << SHIFT) + row.n
        before, chain, position = self.posted.get(flag, (-1, access.chain, 0))
        if value <= before or not access.after(chain, position):
            raise access.problem("a flag that need not rise", -1, "posts in the order of values")
        self.posted[flag] = value, access.chain, access.position

    def _reduce(
        self, access: Access, refs: list[tuple[int, int]], nbytes: int, twice: bool
    ) -> None:
        operands = [self._place(access, *ref, nbytes) for ref in refs[1:3]]
        targets = [
            self._place(access, *ref, nbytes, write=True) for ref in refs[: 4 if twice else 1 : 3]
        ]
        for operand in operands:
            self._apart(access, targets[0], operand, nbytes)
            if twice:
                self._apart(access, targets[1], operand, nbytes, same=False)
        if twice:
            self._apart(access, targets[1], targets[0], nbytes, same=False)
        a, b = (memory.read(at, at + nbytes, access) for memory, at in operands)
        result = combine(a, b, self.expressions, access)
        for memory, at in targets:
            memory.write(at, result, access)

    @staticmethod
    def _apart(
        access: Access, x: tuple[Memory, int], y: tuple[Memory, int], n: int, same: bool = True
    ) -> None:
        """Refuse operands that the kernels refuse (native/kernels.h): overlaps, unless equal."""
        if x[0] is y[0] and abs(x[1] - y[1]) < n and not (same and x[1] == y[1]):
            raise access.problem("operands that overlap", -1, "what the kernels allow")

    # ---- messages and collectives of MPI ------------------------------------------------------

    def _complete(self, event: int, start: int, row: Row, access: Access) -> None:
        if row.code == Code.COLL:
            self._end_collective(event, start, row, access)
            return
        if row.code == Code.ISEND:
            self._give_back(start, access)
            return
        nbytes = row.n
        if nbytes:
            memory, at = self._place(access, row.base[0], row.off[0], nbytes, write=True)
            memory.arrive(at, self.sent[self.events.matched[start]].spans, access)

    def _give_back(self, start: int, access: Access) -> None:
        sent = self.sent[start]
        if sent.memory is not None and sent.stop > sent.start:
            sent.memory.give_back(sent.start, sent.stop, start, access)

    def _kind(self, event: int, row: Row) -> tuple[int, int, bool, bool]:
        """Return a collective's kind and bytes, and whether this rank gives and gets data."""
        run, rank, _ = self.events.where[event]
        kind = row.off[2] % Coll.BLOCKING
        element = 1 if kind == Coll.BCAST else self.plans[run].signature.element
        members = self.programs[run][rank].comms[row.off[3]][1]
        leads = members[row.peer] == rank
        if kind == Coll.BCAST:
            return kind, row.n, leads, not leads
        moves = kind != Coll.BARRIER
        return kind, row.n * element, moves, moves and (kind == Coll.ALLREDUCE or leads)

    def _begin_collective(self, access: Access, row: Row, refs: list[tuple[int, int]]) -> None:
        _kind, nbytes, gives, gets = self._kind(access.event, row)
        sent = self.sent[access.event] = _Sent([])
        if not nbytes:
            return
        to = self._place(access, *refs[0], nbytes, write=gets) if refs[0][0] else None
        source = self._place(access, *refs[1], nbytes) if refs[1][0] else to
        if gives and source is not None:
            memory, at = source
            if gets and source == to:  # MPI.IN_PLACE
                sent.spans = memory.read(at, at + nbytes, access)
            else:
                sent.spans = memory.lend(at, at + nbytes, access)
                sent.start, sent.stop, sent.memory = at, at + nbytes, memory
        if gets and to is not None:
            to[0].await_(to[1], to[1] + nbytes, access)

    def _end_collective(self, event: int, start: int, row: Row, access: Access) -> None:
        kind, nbytes, _, gets = self._kind(start, row)
        self._give_back(start, access)
        if not gets or not nbytes:
            return
        members = self.events.members[event]
        if kind == Coll.BCAST:
            spans = self.sent[members[row.peer]].spans
        else:
            spans = self.sent[members[0]].spans
            for m in members[1:]:
                spans = combine(spans, self.sent[m].spans, self.expressions, access)
        memory, at = self._place(access, row.base[0], row.off[0], nbytes, write=True)
        memory.arrive(at, spans, access)


def _short(ranks: tuple[int, ...]) -> str:
    text = ", ".join(map(str, ranks[:12]))
    return text if len(ranks) <= 12 else f"{text}, ... ({len(ranks)} in all)"
