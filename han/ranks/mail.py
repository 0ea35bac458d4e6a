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
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from han.ranks.measured import MOST_EARLY
from han.ranks.meeting import TAG_DATA, abandon

LEAST_LIMIT = 32767  # of tags, in every MPI library
LABEL = struct.Struct("=QQQ")  # of data: the tokens of the mail and of the communicator, the call


def tag_limit(comm: MPI.Comm) -> int:
    """Return the largest message tag.

    Open MPI has this attribute on MPI.COMM_WORLD and its duplicates only.
    """
    limit: Any = comm.Get_attr(MPI.TAG_UB)
    if limit is None and MPI.Is_initialized():  # else the process uses sessions
        limit = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    return LEAST_LIMIT if limit is None else int(limit)


Fields = Sequence[Any]


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
        self._receivers: dict[int, Any] = {}  # Notices, by token
        self._early: OrderedDict[int, list[tuple[int, Fields]]] = OrderedDict()
        self._kept: dict[int, list[memoryview]] = {}  # labelled data, by sender
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

    def join(self, token: int, receiver: Any) -> None:
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
            for kept in self._kept.values():
                kept[:] = [data for data in kept if LABEL.unpack_from(data)[1] != token]
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

    def label(self, token: int, call: int) -> bytes:
        """Return what tells the data of a call of a communicator."""
        return LABEL.pack(self.token, token, call)

    def start_data(self, label: bytes, data: bytes, rank: int) -> MPI.Request:
        """Start to send data to a rank of `comm`."""
        return self.comm.Isend([label + data, MPI.BYTE], rank, TAG_DATA)

    def data(self, label: bytes, rank: int) -> memoryview | None:
        """Return data that a rank of `comm` has sent; None: they have not come.

        Others that come first are kept, as they may be those of other communicators.
        """
        with self.lock:
            if self._kept:
                kept = self._kept.get(rank, [])
                for k, early in enumerate(kept):
                    if early[: LABEL.size] == label:
                        return kept.pop(k)[LABEL.size :]
            while (data := self._received(rank)) is not None:
                if data[: LABEL.size] == label:
                    return data[LABEL.size :]
                self._keep(data, rank)
            return None

    def _received(self, rank: int) -> memoryview | None:
        """Return labelled data of a rank, without waiting for them."""
        coming = self._coming.get(rank)
        if coming is None:
            status = MPI.Status()
            message = self.comm.Improbe(rank, TAG_DATA, status)
            if message is None:
                return None
            data: Any = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            coming = self._coming[rank] = message.Irecv([data, MPI.BYTE]), data
        if not coming[0].Test():
            return None
        del self._coming[rank]
        return memoryview(coming[1])

    def _keep(self, data: memoryview, rank: int) -> None:
        own, token, _ = LABEL.unpack_from(data)
        if own == self.token and token in self._receivers:
            self._kept.setdefault(rank, []).append(data)

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
        if len(self._early) > MOST_EARLY:
            self._early.popitem(last=False)

    def close(self, free: bool) -> None:
        """Leave unfinished sends to the MPI library; free `comm` if no message is under way."""
        self.closed = True
        abandon([s for s in self._sent if not s[0].Test()])
        abandon(list(self._coming.values()))
        if free and self._quiet:
            self.comm.Free()
