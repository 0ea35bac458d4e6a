"""Mail: messages of han's own between the ranks of a communicator and of its descendants.

A communicator that is made from a plain one of MPI duplicates it. Communicators that are made from
it send their notices over that duplicate too, so that they need no duplicate of their own: MPI
libraries have few of them. Messages begin with the token of the mail, which tells them from late
ones of a duplicate that was freed, and with the token of their communicator.
"""

from __future__ import annotations

import json
import struct
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

from han.ranks.meeting import TAG_DATA, abandon

EARLY = 256  # communicators for which messages are kept that arrive before the communicator is made
LABEL = struct.Struct("=QQQ")  # of data: the tokens of the mail and of the communicator, the call


def tag_limit(comm: MPI.Comm) -> int:
    """Return the largest message tag.

    Open MPI has this attribute on MPI.COMM_WORLD and its duplicates only.
    """
    limit: Any = comm.Get_attr(MPI.TAG_UB) or MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    return int(limit)


Fields = Sequence[Any]


class Receiver(Protocol):
    """Takes the messages of one communicator."""

    def arrived(self, source: int, fields: Fields) -> None:
        """Take a message; `source` is its sender's rank on the duplicate."""


class Mail:
    """Sends and receives messages on `comm`, on a tag of their own.

    `comm` is a duplicate; it is freed when the last communicator that uses it is closed. `token` is
    the token of the communicator that it was made for.
    """

    def __init__(self, comm: MPI.Intracomm, token: int) -> None:
        self.comm, self.token = comm, token
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.tag = tag_limit(comm)
        self.lock = threading.RLock()  # several threads may wait in calls of its communicators
        self._receivers: dict[int, Receiver] = {}
        self._early: OrderedDict[int, list[tuple[int, Fields]]] = OrderedDict()
        self._data: dict[tuple[int, int, int], deque[memoryview]] = {}  # by sender, token and call
        self._coming: dict[int, tuple[MPI.Request, Any]] = {}  # data under way, by sender
        self._numbers = 0
        self._sent: list[tuple[MPI.Request, bytes]] = []
        self._quiet = True  # messages of closed communicators have arrived
        self.closed = False

    def number(self) -> int:
        """Return a token for a communicator of which this rank is the first; no rank has it yet."""
        with self.lock:
            self._numbers += 1
            return self.token + 1 + self._numbers * self.size + self.rank

    def join(self, token: int, receiver: Receiver) -> None:
        """Deliver the messages of a communicator from now on."""
        with self.lock:
            self._receivers[token] = receiver
            for source, fields in self._early.pop(token, ()):
                receiver.arrived(source, fields)

    def leave(self, token: int, quiet: bool) -> bool:
        """Deliver no more; return whether no communicator uses the mail any more.

        If it is not `quiet`, messages may be under way, and the duplicate is never freed: in Open
        MPI a message that comes later takes the place of the first one of the communicator that has
        the same number then.
        """
        with self.lock:
            self._receivers.pop(token, None)
            for key in [key for key in self._data if key[1] == token]:
                del self._data[key]
            self._quiet &= quiet
            return not self._receivers

    def send(self, token: int, fields: Fields, ranks: Iterable[int]) -> None:
        """Send a message to some ranks of `comm`, without waiting."""
        data = json.dumps([self.token, token, *fields]).encode()
        with self.lock:
            done = [s for s in self._sent if s[0].Test()]  # a callback of MPI may send meanwhile
            self._sent = [s for s in self._sent if s not in done]
            for rank in {*ranks} - {self.rank}:
                request = self.comm.Isend([data, MPI.BYTE], rank, self.tag)
                self._sent.append((request, data))

    # ---- data of a call -----------------------------------------------------------------------

    def start_data(self, token: int, call: int, data: bytes, rank: int) -> MPI.Request:
        """Start to send the data of a call of a communicator to a rank of `comm`."""
        whole = LABEL.pack(self.token, token, call) + data
        return self.comm.Isend([whole, MPI.BYTE], rank, TAG_DATA)

    def data(self, token: int, call: int, rank: int) -> memoryview | None:
        """Return the data of a call that a rank of `comm` has sent; None: they have not come.

        Data of other calls that come first are kept, as they may be those of other communicators.
        """
        wanted = rank, token, call
        with self.lock:
            while wanted not in self._data:
                if not self._receive(rank):
                    return None
            found = self._data[wanted].popleft()
            calls = [key for key in self._data if key[:2] == wanted[:2]]
            for key in calls:  # older ones are those of calls that raised here
                if not self._data[key] or key[2] < call:
                    del self._data[key]
            return found

    def _receive(self, rank: int) -> bool:
        """Receive data of a rank without waiting; return whether some have come."""
        if rank not in self._coming:
            status = MPI.Status()
            message = self.comm.Improbe(rank, TAG_DATA, status)
            if message is None:
                return False
            data: Any = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            self._coming[rank] = message.Irecv([data, MPI.BYTE]), data
        request, data = self._coming[rank]
        if not request.Test():
            return False
        del self._coming[rank]
        own, token, call = LABEL.unpack_from(data)
        if own == self.token and token in self._receivers:
            waiting = self._data.setdefault((rank, token, call), deque())
            waiting.append(memoryview(data)[LABEL.size :])
        return True

    def fetch(self) -> None:
        """Receive and deliver all messages that have arrived."""
        status = MPI.Status()
        with self.lock:
            while message := self.comm.Improbe(MPI.ANY_SOURCE, self.tag, status):
                data = bytearray(status.Get_count(MPI.BYTE))
                message.Recv([data, MPI.BYTE])
                own, token, *fields = json.loads(data)
                if own == self.token:
                    self._deliver(token, status.Get_source(), fields)

    def _deliver(self, token: int, source: int, fields: Fields) -> None:
        receiver = self._receivers.get(token)
        if receiver is not None:
            receiver.arrived(source, fields)
            return
        self._early.setdefault(token, []).append((source, fields))
        if len(self._early) > EARLY:
            self._early.popitem(last=False)

    def close(self, free: bool) -> None:
        """Leave unfinished sends to the MPI library; free `comm` if no message is under way."""
        self.closed = True
        abandon([s for s in self._sent if not s[0].Test()])
        abandon(list(self._coming.values()))
        if free and self._quiet:
            self.comm.Free()
