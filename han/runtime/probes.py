"""Probes of a calibration: short measurements in which pairs of ranks, or all of a node, take part.

A rank that takes part in no probe waits politely, as it does in other steps of set-up: ranks may
share processors.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from time import perf_counter, sleep
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from han import _native
from han.common.grouped import grouped
from han.memory.channel import memory_of
from han.model.channel_layout import LINE
from han.model.element_types import kernel
from han.ranks.meeting import Meeting
from han.runtime.measured import (
    BATCH,
    BULK_SECONDS,
    CELL,
    CHUNKS,
    FIRST_TRIES,
    HANDS,
    LARGEST,
    LEAST_BULK,
    LEAST_MEMORY,
    LINES,
    MANY,
    MEMORY,
    OF_NODE,
    PATIENT,
    PATIENT_FIRST,
    REPEATS,
    REST,
    ROW,
    SPINS,
    WINDOW,
)  # fmt: skip
from han.tuning.profile import Profile

STEP = "a calibration"
TAG = 8
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Nodes(NamedTuple):
    """The ranks of each node; which of them this rank is."""

    ranks: tuple[tuple[int, ...], ...]
    own: int
    place: int

    @classmethod
    def of(cls, memories: Sequence[int], rank: int) -> Nodes:
        """Return the nodes of ranks, of which those with one number share memory."""
        found = tuple(map(tuple, grouped((m, r) for r, m in enumerate(memories)).values()))
        own = next(k for k, ranks in enumerate(found) if rank in ranks)
        return cls(found, own, found[own].index(rank))

    @property
    def here(self) -> tuple[int, ...]:
        """The ranks of this node."""
        return self.ranks[self.own]

    def opposite(self, turn: int) -> tuple[int, ...]:
        """Return the ranks of the node that this one is paired with in a turn; () if it rests.

        In a row of turns each node meets all others.
        """
        number = len(self.ranks) + len(self.ranks) % 2
        last = number - 1
        if self.own == last:
            partner = next(k for k in range(last) if (turn - k) % last == k)
        else:
            partner = (turn - self.own) % last
            partner = last if partner == self.own else partner
        return self.ranks[partner] if partner < len(self.ranks) else ()


class Pair:
    """Messages of one size between this rank and a peer; `first`: this one begins.

    As many as `room` has places may be under way.
    """

    def __init__(
        self, meeting: Meeting, peer: int, first: bool, out: Bytes, room: Sequence[Bytes]
    ) -> None:
        self.meeting, self.first, self.buffers = meeting, first, (out, room)
        comm, nothing = meeting.comm, [out[:0], MPI.BYTE]
        self.sends = [comm.Send_init([out, MPI.BYTE], peer, TAG) for _ in room]
        self.receives = [comm.Recv_init([one, MPI.BYTE], peer, TAG) for one in room]
        self.tells = comm.Send_init(nothing, peer, TAG + 1)
        self.hears = comm.Recv_init(nothing, peer, TAG + 1)

    def _finish(self, request: MPI.Prequest) -> None:
        for _ in range(SPINS):
            if request.Test():
                return
        self.meeting.wait(request, STEP, self.buffers)

    def _move(self, request: MPI.Prequest) -> None:
        request.Start()
        self._finish(request)

    def there_and_back(self, rounds: int) -> float:
        """Exchange messages in turns; return the seconds of a message."""
        one, other = self.sends[0], self.receives[0]
        one, other = (one, other) if self.first else (other, one)
        begun = perf_counter()
        for _ in range(rounds):
            self._move(one)
            self._move(other)
        return (perf_counter() - begun) / (2 * rounds)

    def greet(self) -> None:
        """Wait for the peer, and let the library make its connection."""
        self.tells.Start()
        self._move(self.hears)
        self._finish(self.tells)

    def stream(self, sends: bool, rounds: int) -> float:
        """Send messages to the peer, or receive them; return the seconds until it has them all."""
        requests = self.sends if sends else self.receives
        begun = perf_counter()
        for k in range(rounds + len(requests)):
            request = requests[k % len(requests)]
            self._finish(request)  # at once if it was not started
            if k < rounds:
                request.Start()
        self._move(self.hears if sends else self.tells)
        return perf_counter() - begun

    def free(self) -> None:
        """Free the requests."""
        for request in (*self.sends, *self.receives, self.tells, self.hears):
            request.Free()


class Amounts(NamedTuple):
    """How much a round measures: so that no probe takes much longer than BATCH."""

    bulk: int = LEAST_BULK  # bytes of a large message; 0: links are long
    bulks: int = 1  # large messages in a row
    rounds: int = 1  # of small messages
    chunks: int = 1  # of as many rounds


class Probes:
    """The probes of all ranks, and the memory that they need; making them is collective.

    Ranks that are `crowded` outnumber processors: not all ranks of a node copy at once.
    """

    def __init__(self, meeting: Meeting, memories: Sequence[int], crowded: bool = False) -> None:
        self.meeting, self.nodes = meeting, Nodes.of(memories, meeting.rank)
        self.crowded = crowded
        here = self.nodes.here
        memory = memory_of(meeting, here, LINES * LINE + len(here) * 4 * CELL, STEP)
        shared = np.frombuffer(memory, np.uint8)
        self.lines, cells = shared[: LINES * LINE], shared[LINES * LINE :]
        self.cells = cells.reshape(len(here), 4, CELL)
        meeting.share(self._allocate, STEP)

    def _allocate(self) -> None:
        self.out, self.room = np.ones(LARGEST, np.uint8), np.empty((WINDOW, LARGEST), np.uint8)
        if self.crowded:
            return
        size = min(MEMORY, max(LEAST_MEMORY, OF_NODE // len(self.nodes.here)))
        self.from_here, self.to_here = np.ones(size, np.uint8), np.ones(size, np.uint8)

    def _together(self) -> None:
        """Wait for the ranks of this node; to wait for all takes long where links are slow."""
        self.meeting.gather(self.nodes.here, STEP)

    # ---- between nodes --------------------------------------------------------------------------

    @contextlib.contextmanager
    def _pair(self, turn: int, nbytes: int, all_ranks: bool = False) -> Iterator[Pair | None]:
        """Pair the first ranks of two nodes, or all ranks; None: this rank waits meanwhile."""
        there, place = self.nodes.opposite(turn), self.nodes.place
        taken = place < min(len(there), len(self.nodes.here)) if all_ranks else not place
        pair = None
        if there and taken:
            room = [one[:nbytes] for one in self.room]
            first = self.nodes.here < there  # of a node all ranks are, or none
            pair = Pair(self.meeting, there[place], first, self.out[:nbytes], room)
        self._together()
        if pair is not None:
            pair.greet()
        yield pair
        if pair is None:
            sleep(REST)  # other ranks may need this processor
        else:
            pair.free()

    def amounts(self) -> Amounts:
        """Try messages of growing sizes, and return how much each round measures; collective."""
        if len(self.nodes.ranks) == 1:
            return Amounts()
        small, bulk = self._first(1), LEAST_BULK
        if Profile(latency=1e6 * small).has_long_links:
            return Amounts(bulk=0)
        while True:
            large = self._first(bulk)
            if large - small > BULK_SECONDS or large > BATCH or bulk == LARGEST:
                break
            bulk *= 2
        both = int(BATCH / (2 * small))  # there and back
        rounds, chunks = max(1, min(MANY, both // CHUNKS)), max(1, min(CHUNKS, both))
        return Amounts(bulk, max(1, round(BATCH / large)), rounds, chunks)

    def _first(self, nbytes: int) -> float:
        """Return the seconds of a message between the slowest two nodes; collective."""
        seconds = 1e-7  # at least
        with self._pair(0, nbytes) as pair:
            if pair is not None:
                seconds = min(pair.there_and_back(1) for _ in range(FIRST_TRIES))
        return max(self.meeting.allgather(seconds, STEP))

    def messages(self, turn: int, how: Amounts) -> dict[str, float]:
        """Measure messages between two nodes, of one pair and of all ranks; collective.

        Where links are long, all but the latency takes more time than there is.
        """
        found = self._small(turn, how)
        if not how.bulk:
            return found
        found |= self._streamed("bandwidth", turn, how.bulk, how.bulks)
        piece = max(how.bulk // max(map(len, self.nodes.ranks)), LEAST_BULK // 4)
        return found | self._streamed("injection", turn, piece, how.bulks, all_ranks=True)

    def _small(self, turn: int, how: Amounts) -> dict[str, float]:
        with self._pair(turn, 1) as pair:
            if pair is None:
                return {}
            latency = median(pair.there_and_back(how.rounds) for _ in range(how.chunks))
            if not how.bulk:  # the first message does not count where the other rank waits for it
                return {"latency": 1e6 * latency} if pair.first else {}
            row = ROW * how.rounds
            spent = pair.stream(pair.first, row) - 2 * latency
            overhead = {"overhead": 1e6 * spent / row} if pair.first and spent > 0 else {}
            return {"latency": 1e6 * latency, **overhead}

    def _streamed(
        self, name: str, turn: int, nbytes: int, rounds: int, all_ranks: bool = False
    ) -> dict[str, float]:
        """Send large messages one after the other, first in one direction, then in the other."""
        found = dict[str, float]()
        for of_first in (True, False):
            with self._pair(turn, nbytes, all_ranks) as pair:
                if pair is None:
                    continue
                sends = pair.first == of_first
                seconds = pair.stream(sends, rounds)
                if sends:
                    found[name] = 1e-6 * nbytes * rounds / seconds
        return found

    # ---- inside a node --------------------------------------------------------------------------

    def memory(self, turn: int) -> dict[str, float]:
        """Measure what ranks of a node do with each other's memory, and with their own."""
        return {**self._flag(turn), **self._cells(), **self._own_memory()}

    def _flag(self, turn: int) -> dict[str, float]:
        """Measure the hand-over of a cache line between the first rank of a node and another."""
        here, place = self.nodes.here, self.nodes.place
        other = 1 + turn % max(1, len(here) - 1)
        if not place:
            self.lines[:] = 0
        self._together()
        if len(here) == 1 or place not in (0, other):
            sleep(REST)
            return {}
        times = [*self._handed()]
        return {"flag": 1e6 * min(times) / (2 * HANDS)} if times else {}

    def _handed(self) -> Iterator[float]:
        """Yield the seconds of each line, until a rank lacks time; then the peer ends too."""
        until = perf_counter() + BATCH
        for k, line in enumerate(self.lines.reshape(LINES, LINE)):
            patience = PATIENT if k else PATIENT_FIRST
            seconds = _native.hand_over(line, not self.nodes.place, HANDS, patience)
            if seconds is None:
                return
            yield seconds
            if perf_counter() > until:
                return

    def _cells(self) -> dict[str, float]:
        """Copy and combine what the next rank of the node has just written, as in cells."""
        if len(self.cells) == 1:  # its own cache is faster
            return {}
        mine = self.cells[self.nodes.place]
        there = self.cells[(self.nodes.place + 1) % len(self.cells)]
        own, room, add = self.out[:CELL], self.room[0, :CELL], kernel("sum", "float64")
        assert add is not None
        copies, sums = [], []
        for k in range(REPEATS):
            a, b = 2 * k % 4, (2 * k + 1) % 4
            for cell in (a, b):
                _native.plain_copy(mine[cell], own)
            self._together()
            copies.append(_seconds(partial(_native.plain_copy, room, there[a])))
            sums.append(_seconds(partial(_native.plain_combine, room, own, there[b], add)))
        return {"copy": 1e-6 * CELL / median(copies), "reduce": 1e-6 * CELL / median(sums)}

    def _own_memory(self) -> dict[str, float]:
        """Copy in all ranks at once what fits into no cache of a core."""
        if self.crowded:
            return {}
        self._together()
        work = partial(_native.plain_copy, self.to_here, self.from_here)
        return {"memory": 1e-6 * self.to_here.size / median(_seconds(work) for _ in range(REPEATS))}

    def round(self, turn: int, how: Amounts) -> Profile:
        """Measure everything once; return what this rank found."""
        found = self.memory(turn)
        if len(self.nodes.ranks) > 1:
            found |= self.messages(turn, how)
        return Profile(cores=os.cpu_count() or 0, **found)


def _seconds(work: Callable[[], object]) -> float:
    begun = perf_counter()
    work()
    return perf_counter() - begun
