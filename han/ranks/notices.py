"""Telling the other ranks of an error, and hearing of theirs."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from han.common.errors import HanError, PeerError, RevokedError
from han.ranks.meeting import Meeting, abandon


def tag_limit(comm: MPI.Comm) -> int:
    """Return the largest message tag. Open MPI tells it on MPI.COMM_WORLD and duplicates only."""
    limit: Any = comm.Get_attr(MPI.TAG_UB) or MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    return int(limit)


LEFT = 1 << 61  # calls that are MPI's are counted from here on
LATEST = 1 << 62  # a call that concerns every call to come
LONGEST = 2000  # characters of a text


@dataclass(frozen=True)
class Notice:
    """What went wrong, where, and in which call.

    Calls are counted alike on all ranks, as the engine's ``issued`` does; those that are left to
    the MPI library pass no engine, and are counted by themselves, from LEFT on. `rank` is whose
    error it is, `sender` who says so: one who gives up because of another's error names that one.
    """

    call: int
    rank: int
    sender: int
    text: str


class Notices:
    """Messages on a tag of their own, which every waiting rank probes for.

    They may come early, before this rank makes the call that they are about, and late, after
    it; one that is about a call that failed here too is nobody's business. Making this is
    collective: the ranks agree on a `token`, which tells their notices from those of a
    communicator that was freed with some still on their way.
    """

    def __init__(self, meeting: Meeting) -> None:
        self.comm = meeting.comm
        self.rank = meeting.rank
        self.tag = tag_limit(self.comm)
        self.token = meeting.allgather(
            int.from_bytes(os.urandom(4), "little") >> 1, "the making of a han.Comm"
        )[0]
        self.left = LEFT  # the next call that is MPI's
        self._mine: dict[int, int] = {}  # calls that failed here: peers yet to be heard about it
        self._early: list[Notice] = []
        self._lock = threading.RLock()  # several threads may wait
        self._sent: list[tuple[MPI.Request, bytes]] = []

    def tell(self, call: int, error: BaseException) -> None:
        """Tell everyone that this rank raised before anything moved in its call number `call`."""
        with self._lock:
            if self.comm.Get_size() > 1:
                self._mine[call] = self.comm.Get_size() - 1
            self._fetch()  # those of calls that failed everywhere need not pile up
        self._send(Notice(call, self.rank, self.rank, f"{type(error).__name__}: {error}"))

    def revoke(self, error: BaseException, cause: int | None = None) -> None:
        """Tell everyone that this rank gives the communicator up, for the error of rank `cause`."""
        rank = self.rank if cause is None else cause
        self._send(Notice(LATEST, rank, self.rank, f"{type(error).__name__}: {error}"))

    def _send(self, notice: Notice) -> None:
        fields = [self.token, notice.call, notice.rank, notice.sender, notice.text[:LONGEST]]
        data = json.dumps(fields).encode()
        self._sent = [s for s in self._sent if not s[0].Test()]
        for peer in range(self.comm.Get_size()):
            if peer != self.rank:
                request = self.comm.Isend([data, MPI.BYTE], peer, self.tag)
                self._sent.append((request, data))

    def receive(self, issued: int) -> list[Notice]:
        """Take what has arrived about the first `issued` calls, less what also failed here."""
        with self._lock:
            self._fetch()
            found = [n for n in self._early if self._concerns(n, issued)]
            self._early = [n for n in self._early if n not in found]
        return found

    def _concerns(self, notice: Notice, issued: int) -> bool:
        left = LEFT <= notice.call < self.left
        return notice.call == LATEST or notice.call < issued or left

    @contextlib.contextmanager
    def leaving(self) -> Iterator[None]:
        """Count a call that is left to the MPI library; tell the others if it raises."""
        call, self.left = self.left, self.left + 1
        try:
            yield
        except BaseException as error:
            self.tell(call, error)
            raise

    @property
    def held(self) -> int:
        """The first call, counted from 1, that a notice is about which came early; 0: none."""
        return min((n.call + 1 for n in self._early if n.call < LEFT), default=0)

    def close(self) -> None:
        """Leave what is still on its way to the MPI library."""
        abandon([s for s in self._sent if not s[0].Test()])

    def _fetch(self) -> None:
        """Empty the mailbox."""
        status = MPI.Status()
        while message := self.comm.Improbe(MPI.ANY_SOURCE, self.tag, status):
            data = bytearray(status.Get_count(MPI.BYTE))
            message.Recv([data, MPI.BYTE])
            token, *fields = json.loads(data)
            if token == self.token:
                self._early.append(Notice(*fields))
        self._early = [n for n in self._early if not self._failed_here_too(n)]

    def _failed_here_too(self, notice: Notice) -> bool:
        left = self._mine.get(notice.call)
        if left is None:
            return False
        self._mine[notice.call] = left - 1
        if left == 1:  # that was everybody
            del self._mine[notice.call]
        return True


def first_cause(notices: list[Notice]) -> Notice:
    """Return the notice that the others follow from."""
    return min(notices, key=lambda n: (n.call, n.rank != n.sender, n.sender))


def peer_error(notices: list[Notice], rank: int, story: str) -> HanError:
    """Make the error that `rank` raises for other ranks' notices, the first cause first.

    `story` tells what it was waiting for.
    """
    if first_cause(notices).rank == rank:  # they gave up because of what went wrong here
        text = "; ".join(f"rank {n.sender} raised {n.text}" for n in notices)
        return RevokedError(
            f"the other ranks gave this communicator up after an error of this rank: {text}"
        )
    own = [n for n in notices if n.rank == n.sender] or notices
    own.sort(key=lambda n: (n.call, n.sender))
    text = "; ".join(f"rank {n.sender} raised {n.text}" for n in own)
    return PeerError(f"{text}; rank {rank} was in {story}")
