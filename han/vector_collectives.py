"""Collectives whose ranks know only the sizes of the blocks that they send or receive."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from han.collectives import Started
from han.message import parsers
from han.scans import Scans


class VectorCollectives(Scans):
    """Gatherv, Scatterv, Alltoallv and Alltoallw.

    A buffer of blocks is ``[data, counts]``, ``[data, (counts, displacements), type]`` and so on,
    in elements. Both ranks of a pair pass the same number of bytes for its block.
    """

    # ---- blocking ---------------------------------------------------------------------------

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather blocks of different sizes into `recvbuf` of `root`.

        Only the root's `recvbuf` is used. The root may pass ``MPI.IN_PLACE`` as `sendbuf`: its
        block is then at its place in `recvbuf`.
        """
        state = self._state or self._han
        if not state.calls.gatherv(sendbuf, recvbuf, root):
            self._run(parsers.GATHERV, sendbuf, recvbuf, root)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Scatter blocks of different sizes of `sendbuf` of `root`.

        Only the root's `sendbuf` is used. The root may pass ``MPI.IN_PLACE`` as `recvbuf`: its
        block then stays in `sendbuf`.
        """
        state = self._state or self._han
        if not state.calls.scatterv(sendbuf, recvbuf, root):
            self._run(parsers.SCATTERV, sendbuf, recvbuf, root)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send block r of `sendbuf` to rank r, and receive block r of `recvbuf` from rank r.

        With ``MPI.IN_PLACE`` as `sendbuf` the blocks to send are in `recvbuf`.
        """
        state = self._state or self._han
        if not state.calls.alltoallv(sendbuf, recvbuf):
            self._run(parsers.ALLTOALLV, sendbuf, recvbuf)

    def Alltoallw(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send block r of `sendbuf` to rank r, and receive block r of `recvbuf` from rank r.

        A buffer is ``[data, (counts, displacements), types]``, with displacements in bytes and a
        type for each block. With ``MPI.IN_PLACE`` as `sendbuf` the blocks to send are in `recvbuf`.
        """
        state = self._state or self._han
        if not state.calls.alltoallw(sendbuf, recvbuf):
            self._run(parsers.ALLTOALLW, sendbuf, recvbuf)

    # ---- nonblocking ------------------------------------------------------------------------

    def Igatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Started:
        """Start :meth:`Gatherv`; return its request."""
        started = self._quick.igatherv(sendbuf, recvbuf, root)
        return self._start(parsers.GATHERV, sendbuf, recvbuf, root) if started is False else started

    def Iscatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Started:
        """Start :meth:`Scatterv`; return its request."""
        started = self._quick.iscatterv(sendbuf, recvbuf, root)
        return (
            self._start(parsers.SCATTERV, sendbuf, recvbuf, root) if started is False else started
        )

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Alltoallv`; return its request."""
        started = self._quick.ialltoallv(sendbuf, recvbuf)
        return self._start(parsers.ALLTOALLV, sendbuf, recvbuf) if started is False else started

    def Ialltoallw(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Alltoallw`; return its request."""
        started = self._quick.ialltoallw(sendbuf, recvbuf)
        return self._start(parsers.ALLTOALLW, sendbuf, recvbuf) if started is False else started

    # ---- persistent -------------------------------------------------------------------------

    def Gatherv_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Gatherv`; collective."""
        return self._init(parsers.GATHERV, info, sendbuf, recvbuf, root)

    def Scatterv_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Scatterv`; collective."""
        return self._init(parsers.SCATTERV, info, sendbuf, recvbuf, root)

    def Alltoallv_init(self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL) -> Started:  # type: ignore[override]
        """Make a persistent request for :meth:`Alltoallv`; collective."""
        return self._init(parsers.ALLTOALLV, info, sendbuf, recvbuf)

    def Alltoallw_init(self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL) -> Started:  # type: ignore[override]
        """Make a persistent request for :meth:`Alltoallw`; collective."""
        return self._init(parsers.ALLTOALLW, info, sendbuf, recvbuf)
