"""Telling the other ranks of an error, and hearing of theirs."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mpi4py import MPI

from han.errors import PeerError


def tag_limit(comm: MPI.Comm) -> int:
    """Return the largest message tag."""
    limit: int = comm.Get_attr(MPI.TAG_UB)  # type: ignore[assignment]
    return limit


LATEST = 1 << 62  # an epoch that concerns every call to come


@dataclass(frozen=True)
class Notice:
    """What went wrong, where, and in which call (counted by the engine's epoch)."""

    epoch: int
    rank: int
    text: str


class Notices:
    """Messages on a tag of their own, which every waiting rank probes for."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.tag = tag_limit(comm)
        self._mine: set[int] = set()
        self._sent: list[tuple[MPI.Request, bytes]] = []

    def tell(self, epoch: int, error: Exception) -> None:
        """Tell everyone that this rank raised before anything moved in call `epoch`."""
        self._mine.add(epoch)
        self.receive()  # those of earlier calls that failed everywhere
        self._send(epoch, f"{type(error).__name__}: {error}")

    def revoke(self, text: str) -> None:
        """Tell everyone that this rank has given the communicator up."""
        self._send(LATEST, text)

    def _send(self, epoch: int, text: str) -> None:
        rank = self.comm.Get_rank()
        data = json.dumps([epoch, rank, text[:2000]]).encode()
        self._sent = [s for s in self._sent if not s[0].Test()]
        for peer in range(self.comm.Get_size()):
            if peer != rank:
                request = self.comm.Isend([data, MPI.BYTE], peer, self.tag)
                self._sent.append((request, data))

    def receive(self) -> list[Notice]:
        """Take what has arrived, less what concerns calls that failed here too."""
        found = []
        status = MPI.Status()
        while self.comm.Iprobe(MPI.ANY_SOURCE, self.tag, status):
            data = bytearray(status.Get_count(MPI.BYTE))
            self.comm.Recv([data, MPI.BYTE], status.Get_source(), self.tag)
            notice = Notice(*json.loads(data))
            if notice.epoch not in self._mine:
                found.append(notice)
        return found


def peer_error(notices: list[Notice]) -> PeerError:
    """Make the error to raise for other ranks' notices, the first cause first."""
    notices = sorted(notices, key=lambda n: (n.epoch == LATEST, n.rank))
    return PeerError("; ".join(f"rank {n.rank} raised {n.text}" for n in notices))
