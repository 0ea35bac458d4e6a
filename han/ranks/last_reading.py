"""The last comparison of clocks before a communicator is freed.

A rank that is late must not delay the others for long, and must not wait for ranks that have left.
Therefore no step of it is collective. Each rank tells rank 0 that it has arrived. A rank that gets
no answer within a time limit tells rank 0 that it leaves. Rank 0 decides which ranks take part and
sends each rank its reading.
"""

from __future__ import annotations

import pickle
import time
from typing import Any

from mpi4py import MPI

from han.ranks.clocks import STEP, TRIES, Reading, estimate, identity
from han.ranks.meeting import TAG_LAST, Meeting, Patience, abandon

WAIT = 10.0  # seconds that a rank waits for rank 0
WAIT_FOR_OTHERS = 5.0  # shorter, so that ranks that wait for rank 0 get its answer in time
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
        self.comm, self.size, self.look = meeting.own, meeting.size, meeting.look
        self.token = token

    def send(self, peer: int, value: object) -> None:
        data = pickle.dumps((self.token, value))
        request = self.comm.Isend([data, MPI.BYTE], peer, TAG_LAST)
        if not request.Test():
            abandon((request, data))

    def receive(self, until: float, source: int = MPI.ANY_SOURCE) -> tuple[int, Any]:
        """Return (sender, value) of the next message; raise _Left if none arrives by `until`."""
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
            answers[clock] = _ask(talk, rank)
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


def _ask(talk: _Talk, rank: int) -> Reading | None:
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
