"""A walk over the graph of events, in an order that it allows, with a vector clock for each strand.

A strand runs until it has to wait, as in the executor. Its vector clock says which events have
happened for certain, and changes only where the strand waits for another one. Events share clocks:
a clock is replaced, and never modified.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from han.tasks.verify.events import Events
from han.tasks.verify.pairs import Pairs
from han.tasks.verify.story import JOINT, Refuted

Clock = npt.NDArray[np.int32]
Row = list[int]  # code, memory and offset of each reference, bytes, event
NOW_AND_THEN = 5000  # events between two reports of progress
Known = tuple["Strand", "Clock | dict[Domain, Clock]", int]  # strand, its clock, its `entered`
Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Domain:
    """Ranks that share memory; each has one chain per stream, and one of beginnings and ends."""

    places: Mapping[int, int]
    streams: int

    def chain(self, rank: int, stream: int) -> int:
        """Return the number of the chain of a rank's stream (-1: of its beginnings and ends)."""
        return self.places[rank] * (self.streams + 1) + stream + 1

    def nothing(self) -> Clock:
        """Return the clock by which no event has happened."""
        return np.full(len(self.places) * (self.streams + 1), -1, np.int32)


def domains_of(events: Events) -> list[Domain]:
    """Return, for every rank, the domain of the ranks that it shares memory with."""
    streams = max(len(p.streams) for ps in events.programs for p in ps)
    found: dict[tuple[int, ...], Domain] = {}
    domains = []
    for rank in range(events.size):
        homes = [events.topology.home(level, rank) for level in events.places.channels]
        ranks = max([(rank,), *homes], key=len)
        if ranks not in found:
            found[ranks] = Domain({r: k for k, r in enumerate(ranks)}, streams)
        domains.append(found[ranks])
    return domains


class Strand:
    """The events of a strand during the walk; `event` is the next one, or the one that runs.

    `clock` holds the last event of each chain of the domain that has happened for certain.
    `entered` holds the ranks that have begun this run for certain, as bits.
    """

    __slots__ = (
        "chain", "clock", "domain", "entered", "event", "events", "rank", "rows", "run", "start",
        "stop",
    )  # fmt: skip

    def __init__(
        self, events: Events, run: int, rank: int, stream: int, bounds: tuple[int, int],
        domain: Domain, clock: Clock,
    ) -> None:  # fmt: skip
        self.events, self.run, self.rank, self.domain = events, run, rank, domain
        self.chain = domain.chain(rank, stream)
        self.start, self.stop = bounds
        self.event = self.start
        self.clock, self.entered = clock, 0
        self.rows: list[Row] = []

    def after(self, chain: int, event: int) -> bool:
        """Return whether `event` of `chain` precedes the one that runs in every interleaving."""
        return chain == self.chain or self.clock.item(chain) >= event

    def learn(self, event: int, known: Known) -> None:
        """Add what was known at `event`, which precedes the one that runs."""
        teacher, clock, entered = known
        if teacher.run == self.run and entered != self.entered:
            self.entered |= entered
        if isinstance(clock, dict):
            if self.domain in clock:
                self.clock = np.maximum(self.clock, clock[self.domain])
        elif teacher.domain is self.domain and self.clock.item(teacher.chain) < event:
            self.clock = np.maximum(self.clock, clock)
            self.clock[teacher.chain] = event

    def known(self) -> Known:
        """Return what events after the one that runs learn from it."""
        return self, self.clock, self.entered

    def problem(self, found: str, other: int, wanted: str) -> Refuted:
        """Return the error of the event that runs; `other` is the conflicting event, or -1."""
        by = f" ({self.events.story(other)})" if other >= 0 else ""
        return Refuted("memory", self.events.story(self.event), found + by, wanted)


class Joint(Strand):
    """An event that comes after those of many ranks, with a clock for each of their domains."""

    __slots__ = ("clocks",)

    def __init__(self, *what: object) -> None:
        super().__init__(*what)  # type: ignore[arg-type]
        self.clocks: dict[Domain, Clock] = {}

    def learn(self, event: int, known: Known) -> None:
        """Add what was known at `event`, which precedes the one that runs."""
        teacher, clock, entered = known
        if teacher.run == self.run:
            self.entered |= entered
        assert not isinstance(clock, dict)
        mine = self.clocks.setdefault(teacher.domain, clock.copy())
        np.maximum(mine, clock, out=mine)
        mine[teacher.chain] = max(mine[teacher.chain], event)

    def known(self) -> Known:
        """Return what events after this one learn from it."""
        return self, self.clocks, self.entered


AFTER, USED = 1, 2  # an event comes after events of other strands; others come after it
Action = Callable[[Strand, Row], None]


class Walk:
    """Carries out every event once, after all events that precede it.

    If all accesses are ordered, what holds in this order holds in every order.
    """

    def __init__(self, events: Events, pairs: Pairs, rows: npt.NDArray[np.int64]) -> None:
        self.events, self.rows = events, rows
        self.before, self.strict = dict(pairs.before), dict(pairs.strict)
        for event in self.strict:
            self.before.setdefault(event, [])
        edges = chain.from_iterable([*self.before.values(), *self.strict.values()])
        self._uses = dict(Counter(edges))
        self._marks = bytearray(events.number)  # bits of each event
        for bit, some in ((AFTER, self.before), (USED, self._uses)):
            for event in some:
                self._marks[event] |= bit
        self._known: dict[int, Known] = {}  # by event, for those that others still learn from
        self._waiting: dict[int, list[Strand]] = defaultdict(list)
        self.domains = domains_of(events)
        self.strands = self._strands()

    def _strands(self) -> list[Strand]:
        events, found = self.events, []
        nothing = {domain: domain.nothing() for domain in set(self.domains)}

        def add(
            kind: type[Strand], run: int, rank: int, stream: int, start: int, stop: int
        ) -> None:
            domain = self.domains[rank]
            bounds = start, stop
            found.append(kind(events, run, rank, stream, bounds, domain, nothing[domain]))

        for strand in events.strands:
            add(Strand, *strand)
        for event in range(len(events.rows), events.operations):
            run, rank, row = events.where(event)
            add(Strand, run, rank, -1, event, event + 1)
            found[-1].rows = [[row]]
        for event in range(events.operations, events.number):
            run, rank, _ = events.where(event)
            add(Joint, run, rank, -1, event, event + 1)
            found[-1].rows = [[JOINT]]
        return found

    def run(self, actions: Mapping[int, Action], progress: Progress | None = None) -> None:
        """Carry out all events; raises Refuted if some are left because they wait for each other.

        `actions` says what events do, by code; BEGIN, END and JOINT are codes too.
        """
        ready, done, told = deque(self.strands), 0, 0
        while ready:
            strand = ready.popleft()
            since = strand.event
            self._advance(strand, actions, ready)
            done += strand.event - since
            if progress is not None and done >= told:
                progress(done)
                told = done + NOW_AND_THEN
        if any(strand.event < strand.stop for strand in self.strands):
            raise self._deadlock()

    def _advance(self, strand: Strand, actions: Mapping[int, Action], ready: deque[Strand]) -> None:
        """Run a strand until it has to wait."""
        marks, get, start = self._marks, actions.get, strand.start
        for event in range(strand.event, strand.stop):
            strand.event, mark = event, marks[event]
            if mark & AFTER and not self._may_pass(strand, event):
                return
            if not strand.rows:
                strand.rows = self.rows[start : strand.stop].tolist()
            row = strand.rows[event - start]
            action = get(row[0])
            if action is not None:
                action(strand, row)
            if mark & USED:
                self._known[event] = strand.known()
                ready.extend(self._waiting.pop(event, ()))
        strand.event = strand.stop
        strand.rows = []

    def _may_pass(self, strand: Strand, event: int) -> bool:
        """Learn from the events before this one; return False if one has not happened yet."""
        others, known, uses = self.before[event], self._known, self._uses
        while others:
            other = others[-1]
            what = known.get(other)
            if what is None:
                self._waiting[other].append(strand)
                return False
            strand.learn(other, what)
            others.pop()
            left = uses[other] = uses[other] - 1
            if not left:
                del known[other]
        return event not in self.strict or self._may_pass_strictly(strand, event)

    def _may_pass_strictly(self, strand: Strand, event: int) -> bool:
        """Return whether the events of strict edges have happened; nothing is learnt from them."""
        others = self.strict[event]
        while others:
            if others[-1] not in self._known:
                self._waiting[others[-1]].append(strand)
                return False
            self._used(others.pop())
        return True

    def _used(self, event: int) -> None:
        """Count one use of what an event knew; forget it after the last one."""
        self._uses[event] -= 1
        if not self._uses[event]:
            del self._known[event]

    # ---- deadlocks ----------------------------------------------------------------------------

    def _deadlock(self) -> Refuted:
        cycle = self._cycle()
        story = " <- ".join(self.events.story(e) for e in cycle[:8])
        return Refuted("no deadlock", self.events.story(cycle[0]), f"a cycle: {story}", "no cycle")

    def _cycle(self) -> list[int]:
        """Follow strands to those that they wait for until one repeats; return the cycle."""
        waits = {strand: other for other, strands in self._waiting.items() for strand in strands}
        path: list[Strand] = []
        place: dict[Strand, int] = {}
        strand = next(s for s in self.strands if s.event < s.stop)
        while strand not in place:
            place[strand] = len(path)
            path.append(strand)
            event = waits[strand]
            strand = next(s for s in self.strands if s.start <= event < s.stop)
        return [s.event for s in path[place[strand] :]]
