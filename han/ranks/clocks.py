"""Comparison of the clocks of nodes, which start at different times and drift apart.

Rank 0's clock is the reference. Ranks of one system share its clock. For every other clock, its
lowest rank exchanges messages with rank 0. Of several exchanges, the one with the shortest round
trip counts (as in NTP). Half of its round trip bounds the error.

In the last comparison, before a communicator is freed, a rank that is late must not delay the
others for long, and must not wait for ranks that have left. Therefore no step of it is collective.
Each rank tells rank 0 that it has arrived. A rank that gets no answer within a time limit tells
rank 0 that it leaves. Rank 0 decides which ranks take part and sends each rank its reading.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from han.common.system import text_of
from han.ranks.last_words import letter, post
from han.ranks.measured import TRIES, WAIT, WAIT_FOR_OTHERS
from han.ranks.meeting import TAG_CLOCK, TAG_LAST, Meeting

if TYPE_CHECKING:
    import numpy.typing as npt

STEP = "the comparison of clocks"
BOOT = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = "/proc/self/ns/time"


@dataclass(frozen=True)
class Reading:
    """One comparison of a clock with the reference.

    When the clock showed `at` nanoseconds, the reference showed about `offset` more. The error of
    `offset` is at most `uncertainty` nanoseconds.
    """

    at: float
    offset: float
    uncertainty: float = 0.0


@dataclass(frozen=True)
class Clock:
    """Converts times of one rank to the reference; the drift is known from two readings on."""

    readings: tuple[Reading, ...] = ()

    @property
    def uncertainty(self) -> float:
        """The largest error of a converted time, in seconds."""
        return max((r.uncertainty for r in self.readings), default=0.0) * 1e-9

    def offset(self, ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return what to add to times of this clock, in nanoseconds.

        Between two readings the offset is interpolated linearly.
        """
        if not self.readings:
            return np.zeros_like(ns)
        ordered = sorted(self.readings, key=lambda r: r.at)
        return np.interp(ns, [r.at for r in ordered], [r.offset for r in ordered])


def estimate(exchanges: Sequence[tuple[int, int, int, int]]) -> Reading:
    """Return the reading of the exchange with the shortest round trip.

    Each exchange is (sent, came, answered, back) in nanoseconds. The reference shows `sent` and
    `back`; the other clock shows `came` and `answered`.
    """
    sent, came, answered, back = min(exchanges, key=_round_trip)
    away = _round_trip((sent, came, answered, back))
    return Reading((came + answered) / 2, ((sent - came) + (back - answered)) / 2, away / 2)


def _round_trip(exchange: tuple[int, int, int, int]) -> int:
    sent, came, answered, back = exchange
    return (back - sent) - (answered - came)


def system() -> str:
    """Return a value that is the same for all ranks of one kernel, containers included."""
    return text_of(BOOT) or MPI.Get_processor_name()


def identity() -> tuple[str, ...]:
    """Return a value that is the same for all ranks that share a clock, and differs for others.

    It holds the host name, the kernel's boot identifier and the time namespace.
    """
    try:
        namespace = os.readlink(NAMESPACE)
    except OSError:
        namespace = ""
    return MPI.Get_processor_name(), system(), namespace


def read_clock(meeting: Meeting) -> Reading:
    """Compare this rank's clock with the reference; collective.

    It takes about 20 round trips for each clock other than the reference.
    """
    meeting.messages()
    everyone = meeting.allgather(identity(), STEP)
    first = {name: everyone.index(name) for name in everyone}
    leader = first[everyone[meeting.rank]]
    readings: dict[int, Reading] = {}
    if meeting.rank == 0:
        readings = {r: _ask(meeting, r) for r in first.values() if r}
    elif meeting.rank == leader:
        _answer(meeting)
    of_leaders = meeting.allgather(readings, STEP)[0]
    return of_leaders.get(leader) or Reading(float(time.monotonic_ns()), 0.0)


def _ask(meeting: Meeting, peer: int) -> Reading:
    exchanges = []
    for _ in range(TRIES):
        sent = time.monotonic_ns()
        _send(meeting, peer, 0, 0)
        came, answered = _receive(meeting, peer)
        exchanges.append((sent, came, answered, time.monotonic_ns()))
    return estimate(exchanges)


def _answer(meeting: Meeting) -> None:
    for _ in range(TRIES):
        _receive(meeting, 0)
        came = time.monotonic_ns()
        _send(meeting, 0, came, time.monotonic_ns())


def _send(meeting: Meeting, peer: int, *times: int) -> None:
    data = np.array(times, np.int64)
    meeting.wait(meeting.messages().Isend([data, MPI.INT64_T], peer, TAG_CLOCK), STEP, data)


def _receive(meeting: Meeting, peer: int) -> tuple[int, int]:
    data = np.empty(2, np.int64)
    meeting.wait(meeting.messages().Irecv([data, MPI.INT64_T], peer, TAG_CLOCK), STEP, data)
    return int(data[0]), int(data[1])


GONE = None  # sent to rank 0: the sender leaves; sent by rank 0: the receiver takes no part
PING = "ping"


def last_reading(meeting: Meeting, token: int) -> Reading | None:
    """Compare this rank's clock with rank 0's, if both arrive in time; all ranks call it.

    Returns None for a rank that takes no part. `token` identifies messages of this communicator:
    an older communicator may have left messages with the same tag.
    """
    talk = _Talk(meeting, token)
    return _lead(talk) if meeting.rank == 0 else _follow(talk)


class _Left(Exception):
    """A rank does not take part any more."""


class _Talk:
    """Short messages between ranks. A sender does not wait until they are received."""

    def __init__(self, meeting: Meeting, token: int) -> None:
        assert meeting.own is not None  # the first reading made it
        self.comm, self.size, self.token = meeting.own, meeting.size, token
        self._look = partial(meeting.look, STEP) if meeting.look is not None else None

    def send(self, peer: int, value: object) -> None:
        post(self.comm, (self.token, value), peer, TAG_LAST)

    def receive(self, until: float, source: int = MPI.ANY_SOURCE) -> tuple[int, Any]:
        """Return (sender, value) of the next message; raise _Left if none arrives by `until`."""
        while (found := letter(self.comm, source, TAG_LAST, until, self._look)) is not None:
            sender, (token, value) = found
            if token == self.token:
                return sender, value
        raise _Left


def _follow(talk: _Talk) -> Reading | None:
    until = time.monotonic() + WAIT
    talk.send(0, identity())
    try:
        while (answer := talk.receive(until, 0)[1]) == PING:
            talk.send(0, (time.monotonic_ns(), time.monotonic_ns()))
    except _Left:
        talk.send(0, GONE)
        return None
    return answer if isinstance(answer, Reading) else None


def _lead(talk: _Talk) -> Reading:
    clocks = _present(talk)
    answers: dict[object, Reading | None] = {identity(): _own()}
    for rank, clock in sorted(clocks.items()):
        if clock not in answers:
            answers[clock] = _ask_once_more(talk, rank)
    for rank in range(1, talk.size):  # a rank that arrives late finds its answer
        talk.send(rank, answers[clocks[rank]] if rank in clocks else GONE)
    return _own()


def _present(talk: _Talk) -> dict[int, object]:
    """Return the clocks of the other ranks that arrive in time and do not leave again."""
    arrived: dict[int, object] = {}
    until = time.monotonic() + WAIT_FOR_OTHERS
    try:
        while True:
            # after all ranks have arrived, read what they have sent since, without waiting
            rank, clock = talk.receive(until if len(arrived) < talk.size - 1 else 0.0)
            arrived[rank] = clock
    except _Left:
        return {rank: clock for rank, clock in arrived.items() if clock is not GONE}


def _own() -> Reading:
    return Reading(float(time.monotonic_ns()), 0.0)


def _ask_once_more(talk: _Talk, rank: int) -> Reading | None:
    exchanges = []
    until = time.monotonic() + WAIT_FOR_OTHERS
    try:
        for _ in range(TRIES):
            sent = time.monotonic_ns()
            talk.send(rank, PING)
            answer = talk.receive(until, rank)[1]
            if answer is GONE:
                return None
            exchanges.append((sent, *answer, time.monotonic_ns()))
    except _Left:
        return None
    return estimate(exchanges)
