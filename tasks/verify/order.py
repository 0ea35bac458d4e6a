"""Walking the event graph: an order that it allows, clocks that say what any order must keep."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from han.tasks.verify.events import BEGIN, Events
from han.tasks.verify.memory import Access, Clock
from han.tasks.verify.story import Refuted


@dataclass(frozen=True)
class Domain:
    """Ranks that share memory; each has a chain of events a stream, and one of begins and ends."""

    ranks: tuple[int, ...]
    streams: int

    @property
    def width(self) -> int:
        """Entries of a clock."""
        return len(self.ranks) * (self.streams + 1)

    def chain(self, rank: int, stream: int) -> int:
        """Number the chain of a rank's stream (-1: of its begins and ends)."""
        return self.ranks.index(rank) * (self.streams + 1) + stream + 1


def domains_of(events: Events) -> list[Domain]:
    """Find, for every rank, those that it shares memory with."""
    streams = max(len(p.streams) for ps in events.programs for p in ps)
    found = []
    for rank in range(events.size):
        homes = [events.topology.home(level, rank) for level in events.channels]
        found.append(Domain(max([(rank,), *homes], key=len), streams))
    return found


class Walk:
    """Yields every event once, after all that come before it.

    With all accesses found to be ordered, what holds in this order holds in all of them. Raises
    Refuted at the end if events are left: they wait for each other.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.domains = domains_of(events)
        self.entered = [0] * len(events.preds)  # ranks that have begun the run for certain, as bits
        self._clocks: dict[int, Clock] = {}
        self._left = [len(p) + len(s) for p, s in zip(events.preds, events.strict, strict=True)]

    def __iter__(self) -> Iterator[Access]:
        preds = self.events.preds
        following: list[list[int]] = [[] for _ in preds]
        uses = [0] * len(preds)
        for event, before in enumerate(preds):
            for p in before:
                following[p].append(event)
                uses[p] += 1
        for event, before in enumerate(self.events.strict):
            for p in before:
                following[p].append(event)
        ready = deque(e for e, n in enumerate(self._left) if not n)
        while ready:
            event = ready.popleft()
            self._enter(event)
            yield self._access(event)
            for p in preds[event]:
                uses[p] -= 1
                if not uses[p]:
                    self._clocks.pop(p, None)
            for f in following[event]:
                self._left[f] -= 1
                if not self._left[f]:
                    ready.append(f)
        if any(self._left):
            raise self._deadlock()

    def _enter(self, event: int) -> None:
        run, rank, row = self.events.where[event]
        bits = 1 << rank if row == BEGIN else 0
        for p in self.events.preds[event] if row != BEGIN else ():
            if self.events.where[p][0] == run:
                bits |= self.entered[p]
        self.entered[event] = bits

    def _access(self, event: int) -> Access:
        _, rank, _ = self.events.where[event]
        domain = self.domains[rank]
        clock = np.zeros(domain.width, np.int32)
        for p in self.events.preds[event]:
            if self.events.where[p][1] in domain.ranks:
                np.maximum(clock, self._clocks[p], out=clock)
        chain = domain.chain(rank, self.events.chain[event])
        clock[chain] += 1
        self._clocks[event] = clock

        def problem(found: str, other: int, wanted: str) -> Refuted:
            by = f" ({self.events.story(other)})" if other >= 0 else ""
            return Refuted("memory", str(self.events.story(event)), found + by, wanted)

        return Access(event, chain, int(clock[chain]), clock, problem)

    def _deadlock(self) -> Refuted:
        cycle = self._cycle()
        story = " <- ".join(str(self.events.story(e)) for e in cycle[:8])
        return Refuted(
            "no deadlock", str(self.events.story(cycle[0])), f"a cycle: {story}", "an order"
        )

    def _cycle(self) -> list[int]:
        path: list[int] = []
        place: dict[int, int] = {}
        event = next(e for e, n in enumerate(self._left) if n)
        while event not in place:
            place[event] = len(path)
            path.append(event)
            before = [*self.events.preds[event], *self.events.strict[event]]
            event = next(p for p in before if self._left[p])
        return path[place[event] :]
