"""The scans of ``han.Comm``: blocking, nonblocking and persistent."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from han.collectives import Collectives, Started
from han.message import parsers


class Scans(Collectives):
    """Scans of an intra-communicator, beside its other collectives."""

    def Scan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """Reduce `sendbuf` of ranks 0 to r element by element into `recvbuf` of rank r.

        The buffers are those of :meth:`Allreduce`. Operands are combined in the order of ranks.
        """
        state = self._state or self._han
        if not state.calls.scan(sendbuf, recvbuf, op):
            self._run(parsers.SCAN, sendbuf, recvbuf, op)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """Reduce `sendbuf` of the ranks before r element by element into `recvbuf` of rank r.

        The buffers are those of :meth:`Allreduce`; `recvbuf` of rank 0 stays as it is.
        """
        state = self._state or self._han
        if not state.calls.exscan(sendbuf, recvbuf, op):
            self._run(parsers.EXSCAN, sendbuf, recvbuf, op)

    def Iscan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Started:
        """Start :meth:`Scan`; return its request."""
        started = self._quick.iscan(sendbuf, recvbuf, op)
        return self._start(parsers.SCAN, sendbuf, recvbuf, op) if started is False else started

    def Iexscan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Started:
        """Start :meth:`Exscan`; return its request."""
        started = self._quick.iexscan(sendbuf, recvbuf, op)
        return self._start(parsers.EXSCAN, sendbuf, recvbuf, op) if started is False else started

    def Scan_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Scan`; collective."""
        return self._init(parsers.SCAN, info, sendbuf, recvbuf, op)

    def Exscan_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Exscan`; collective."""
        return self._init(parsers.EXSCAN, info, sendbuf, recvbuf, op)
