"""Values of all ranks on rank 0 when a program ends, without waiting long for any rank.

A rank may be late, or have died. Therefore this is not collective: each rank sends its value, and
rank 0 answers when it has received the values or waits no more.
"""

from __future__ import annotations

import pickle
import time
from typing import Any

from mpi4py import MPI

from han.ranks.meeting import Patience, abandon

VALUE, ANSWER = 1, 2  # tags
WAIT = 10.0  # seconds that a rank waits for rank 0
WAIT_FOR_OTHERS = 5.0  # shorter, so that ranks that wait for rank 0 get its answer in time


def last_words(comm: MPI.Intracomm, value: object, waits: bool = True) -> dict[int, Any]:
    """Return the values of the ranks that come in time, by rank; empty on other ranks than 0.

    `comm` is used for nothing else. A rank that does not wait only sends its value.
    """
    if comm.Get_rank():
        tell(comm, value, waits)
        return {}
    return {0: value} | hear(comm, time.monotonic() + (WAIT_FOR_OTHERS if waits else 0.0))


def tell(comm: MPI.Intracomm, value: object, waits: bool = True) -> None:
    """Send a value to rank 0, and wait for its answer."""
    _tell(comm, value, WAIT if waits else 0.0)


def hear(comm: MPI.Intracomm, until: float) -> dict[int, Any]:
    """Return the values of the other ranks, by rank; on rank 0.

    Values that have come are received even if the time `until` has passed.
    """
    found: dict[int, Any] = {}
    _hear(comm, found, until)
    for peer in range(1, comm.Get_size()):
        _send(comm, bytearray(0), peer, ANSWER)
    return found


def _send(comm: MPI.Intracomm, data: bytes | bytearray, peer: int, tag: int) -> MPI.Request:
    request = comm.Isend([data, MPI.BYTE], peer, tag)
    if not request.Test():
        abandon((request, data))
    return request


def _tell(comm: MPI.Intracomm, value: object, limit: float) -> None:
    """Send a value to rank 0, and wait for its answer."""
    _send(comm, pickle.dumps(value), 0, VALUE)
    patience = Patience()
    while patience.waited < limit:
        if comm.Iprobe(0, ANSWER):
            # Some libraries complain of messages that nobody received.
            comm.Recv([bytearray(0), MPI.BYTE], 0, ANSWER)
            return
        patience.pause()


def _hear(comm: MPI.Intracomm, found: dict[int, Any], until: float) -> None:
    """Receive values until all ranks have sent one, or the time has come."""
    patience, status = Patience(), MPI.Status()
    while len(found) < comm.Get_size() - 1:
        message = comm.Improbe(MPI.ANY_SOURCE, VALUE, status)
        if message is not None:
            data = bytearray(status.Get_count(MPI.BYTE))
            if not _done(message.Irecv([data, MPI.BYTE]), data, until):
                return
            found[status.Get_source()] = pickle.loads(data)
        elif time.monotonic() > until:
            return
        else:
            patience.pause()


def _done(request: MPI.Request, data: bytearray, until: float) -> bool:
    """Wait for a message; its sender may have died meanwhile."""
    patience = Patience()
    while not request.Test():
        if time.monotonic() > until:
            abandon((request, data))
            return False
        patience.pause()
    return True
