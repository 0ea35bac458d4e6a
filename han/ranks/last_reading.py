"""The clocks once more, before a communicator goes: of the ranks that are still there.

A rank that comes late must not cost the others much, nor wait for those that have left. So every
rank tells rank 0 that it has come, and again when it leaves because no answer came in time;
rank 0 says who takes part. All this goes from one rank to another: nothing collective is left
half done.
"""

from __future__ import annotations

import pickle
import time
from typing import Any

from mpi4py import MPI

from han.ranks.clocks import STEP, TRIES, Reading, estimate, identity
from han.ranks.meeting import TAG_LAST, Meeting, Patience, abandon

WAIT = 10.0  # seconds that a rank waits for rank 0
WAIT_FOR_OTHERS = 5.0  # that rank 0 waits for the others: those who wait for it hear in time
GONE = None  # who says so takes no part any more; who is told so does not either
PING = "ping"


def last_reading(meeting: Meeting, token: int) -> Reading | None:
    """Read the clock if this rank and rank 0 come within some seconds; all ranks call it.

    `token` tells messages of this communicator from stray ones of another before it.
    """
    talk = _Talk(meeting, token)
    return _lead(talk) if meeting.rank == 0 else _follow(talk)


class _Left(Exception):
    """A rank takes no part any more."""


class _Talk:
    """Short messages, whose sender does not wait for them to be received."""

    def __init__(self, meeting: Meeting, token: int) -> None:
        self.comm, self.size, self.look = meeting.comm, meeting.size, meeting.look
        self.token = token

    def say(self, peer: int, value: object) -> None:
        data = pickle.dumps((self.token, value))
        request = self.comm.Isend([data, MPI.BYTE], peer, TAG_LAST)
        if not request.Test():
            abandon((request, data))

    def hear(self, until: float, source: int = MPI.ANY_SOURCE) -> tuple[int, Any]:
        """Wait for the next message, return (sender, what it says); raise _Left if none comes."""
        patience, status = Patience(), MPI.Status()
        while True:
            if message := self.comm.Improbe(source, TAG_LAST, status):
                data = bytearray(status.Get_count(MPI.BYTE))
                message.Recv([data, MPI.BYTE])
                token, value = pickle.loads(data)
                if token == self.token:
                    return status.Get_source(), value
            elif time.monotonic() > until:
                raise _Left
            elif patience.pause() and self.look is not None:
                self.look(STEP)


def _follow(talk: _Talk) -> Reading | None:
    until = time.monotonic() + WAIT
    talk.say(0, identity())
    try:
        while (told := talk.hear(until, 0)[1]) == PING:
            talk.say(0, (time.monotonic_ns(), time.monotonic_ns()))
    except _Left:
        talk.say(0, GONE)
        return None
    return told if isinstance(told, Reading) else None


def _lead(talk: _Talk) -> Reading:
    clocks = _present(talk)
    answers: dict[object, Reading | None] = {identity(): _own()}
    for rank, clock in sorted(clocks.items()):
        if clock not in answers:
            answers[clock] = _ask(talk, rank)
    for rank in range(1, talk.size):  # for those who are late it lies there
        talk.say(rank, answers[clocks[rank]] if rank in clocks else GONE)
    return _own()


def _present(talk: _Talk) -> dict[int, object]:
    """Return the clocks of the other ranks that come and stay."""
    said: dict[int, object] = {}
    until = time.monotonic() + WAIT_FOR_OTHERS
    try:
        while True:
            # once all have come, what they said since is still to be heard
            rank, clock = talk.hear(until if len(said) < talk.size - 1 else 0.0)
            said[rank] = clock
    except _Left:
        return {rank: clock for rank, clock in said.items() if clock is not GONE}


def _own() -> Reading:
    return Reading(float(time.monotonic_ns()), 0.0)


def _ask(talk: _Talk, rank: int) -> Reading | None:
    exchanges = []
    until = time.monotonic() + WAIT_FOR_OTHERS
    try:
        for _ in range(TRIES):
            sent = time.monotonic_ns()
            talk.say(rank, PING)
            answer = talk.hear(until, rank)[1]
            if answer is GONE:
                return None
            exchanges.append((sent, *answer, time.monotonic_ns()))
    except _Left:
        return None
    return estimate(exchanges)
