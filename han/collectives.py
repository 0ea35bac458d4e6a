"""The collectives of ``han.Comm``: blocking, nonblocking and persistent.

Every method takes the same way. The look-up in C serves calls of plain arrays whose plan is known.
Else the arguments are parsed, and the plan is found or made. A call that han does not serve is the
MPI library's, by its nonblocking form, so that han's own requests go on meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from han.message import parsers
from han.message.parsers import Parser
from han.runtime.left import LeftRequest, left_request
from han.runtime.request import Request
from han.runtime.state import State

Started = Request | LeftRequest  # what nonblocking and persistent calls return


class Collectives(MPI.Intracomm):
    """Collectives of an intra-communicator.

    Those whose buffers hold a block for each rank are han's where all ranks share memory on some
    level. Gatherv, Scatterv and Alltoallv are mpi4py's own: only a root, or a pair, knows how much
    moves there.
    """

    _state: State | None = None

    @property
    def _han(self) -> State:
        raise NotImplementedError("han.Comm knows it")

    def _run(self, parser: Parser, *arguments: object) -> None:
        """Make a blocking call that the look-up did not serve."""
        state = self._han
        if not state.run(parser, *arguments):
            state.wait_for(self._mpis(f"I{parser.name.lower()}", *arguments), parser.name)

    def _start(self, parser: Parser, *arguments: object) -> Started:
        """Start a nonblocking call that the look-up did not serve."""
        state, name = self._han, f"I{parser.name.lower()}"
        started = state.start(parser, *arguments)
        return started or left_request(self._mpis(name, *arguments), state.health, name)

    def _init(self, parser: Parser, info: MPI.Info, *arguments: object) -> Started:
        """Make a persistent request."""
        state, name = self._han, f"{parser.name}_init"
        made = state.init(parser, *arguments)
        return made or left_request(self._mpis(name, *arguments, info), state.health, name)

    def _mpis(self, name: str, *arguments: object) -> Any:
        """Make a call of MPI's; the other ranks, who may wait for this one, hear of an error."""
        with self._han.health.notices.leaving():
            return getattr(MPI.Intracomm, name)(self, *arguments)

    # ---- blocking ---------------------------------------------------------------------------

    def Barrier(self) -> None:
        """Wait until all ranks have called it."""
        state = self._state or self._han
        if not state.calls.barrier():
            self._run(parsers.BARRIER)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Broadcast `buf` from `root` to all ranks."""
        state = self._state or self._han
        if not state.calls.bcast(buf, root):
            self._run(parsers.BCAST, buf, root)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> None:
        """Reduce to `root`; `recvbuf` counts there only."""
        state = self._state or self._han
        if not state.calls.reduce(sendbuf, recvbuf, op, root, state.rank == root):
            self._run(parsers.REDUCE, sendbuf, recvbuf, op, root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """Reduce to all ranks."""
        state = self._state or self._han
        if not state.calls.allreduce(sendbuf, recvbuf, op):
            self._run(parsers.ALLREDUCE, sendbuf, recvbuf, op)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather everybody's block at `root`; `recvbuf` counts there only."""
        state = self._state or self._han
        if not state.calls.gather(sendbuf, recvbuf, root):
            self._run(parsers.GATHER, sendbuf, recvbuf, root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Scatter the blocks of `root`; `sendbuf` counts there only."""
        state = self._state or self._han
        if not state.calls.scatter(sendbuf, recvbuf, root):
            self._run(parsers.SCATTER, sendbuf, recvbuf, root)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather everybody's block at all ranks."""
        state = self._state or self._han
        if not state.calls.allgather(sendbuf, recvbuf):
            self._run(parsers.ALLGATHER, sendbuf, recvbuf)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send a block to each rank, and get one from each."""
        state = self._state or self._han
        if not state.calls.alltoall(sendbuf, recvbuf):
            self._run(parsers.ALLTOALL, sendbuf, recvbuf)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """Reduce blocks, one for each rank."""
        state = self._state or self._han
        if not state.calls.reduce_scatter_block(sendbuf, recvbuf, op):
            self._run(parsers.REDUCE_SCATTER_BLOCK, sendbuf, recvbuf, op)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather everybody's block at all ranks; blocks may differ in size."""
        self._run(parsers.ALLGATHERV, sendbuf, recvbuf)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = MPI.SUM
    ) -> None:
        """Reduce blocks, one for each rank, of `recvcounts` elements each.

        Without them the ranks tell each other how many elements they receive.
        """
        counts = self._counts(sendbuf, recvbuf, recvcounts)
        self._run(parsers.REDUCE_SCATTER, sendbuf, recvbuf, counts, op)

    def _counts(self, sendbuf: Any, recvbuf: Any, recvcounts: Any) -> Any:
        """Find out what all ranks receive, where they do not say."""
        state = self._han
        if recvcounts is not None or sendbuf is MPI.IN_PLACE or not state.moves_blocks():
            return recvcounts
        counts = np.empty(state.size, np.int64)
        served = state.run(parsers.RECVCOUNTS, recvbuf, counts)
        return counts if served else None

    # ---- nonblocking ------------------------------------------------------------------------

    def Ibarrier(self) -> Started:  # type: ignore[override]
        """Start a barrier."""
        state = self._han
        return state.calls.ibarrier() or self._start(parsers.BARRIER)

    def Ibcast(self, buf: Any, root: int = 0) -> Started:  # type: ignore[override]
        """Start a broadcast."""
        state = self._han
        return state.calls.ibcast(buf, root) or self._start(parsers.BCAST, buf, root)

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> Started:  # type: ignore[override]
        """Start a reduce."""
        state, at_root = self._han, self._han.rank == root
        started = state.calls.ireduce(sendbuf, recvbuf, op, root, at_root)
        return started or self._start(parsers.REDUCE, sendbuf, recvbuf, op, root)

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Started:  # type: ignore[override]
        """Start an allreduce."""
        state = self._han
        started = state.calls.iallreduce(sendbuf, recvbuf, op)
        return started or self._start(parsers.ALLREDUCE, sendbuf, recvbuf, op)

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Started:  # type: ignore[override]
        """Start a gather."""
        started = self._han.calls.igather(sendbuf, recvbuf, root)
        return started or self._start(parsers.GATHER, sendbuf, recvbuf, root)

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Started:  # type: ignore[override]
        """Start a scatter."""
        started = self._han.calls.iscatter(sendbuf, recvbuf, root)
        return started or self._start(parsers.SCATTER, sendbuf, recvbuf, root)

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Started:  # type: ignore[override]
        """Start an allgather."""
        started = self._han.calls.iallgather(sendbuf, recvbuf)
        return started or self._start(parsers.ALLGATHER, sendbuf, recvbuf)

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Started:  # type: ignore[override]
        """Start an alltoall."""
        started = self._han.calls.ialltoall(sendbuf, recvbuf)
        return started or self._start(parsers.ALLTOALL, sendbuf, recvbuf)

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Started:  # type: ignore[override]
        """Start a reduce-scatter of equal blocks."""
        started = self._han.calls.ireduce_scatter_block(sendbuf, recvbuf, op)
        return started or self._start(parsers.REDUCE_SCATTER_BLOCK, sendbuf, recvbuf, op)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Started:  # type: ignore[override]
        """Start an allgather of blocks of different sizes."""
        return self._start(parsers.ALLGATHERV, sendbuf, recvbuf)

    def Ireduce_scatter(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = MPI.SUM
    ) -> Started:
        """Start a reduce-scatter of blocks of different sizes; without `recvcounts` it waits."""
        counts = self._counts(sendbuf, recvbuf, recvcounts)
        return self._start(parsers.REDUCE_SCATTER, sendbuf, recvbuf, counts, op)

    # ---- persistent -------------------------------------------------------------------------

    def Barrier_init(self, info: MPI.Info = MPI.INFO_NULL) -> Started:  # type: ignore[override]
        """Make a barrier that can be started again and again."""
        return self._init(parsers.BARRIER, info)

    def Bcast_init(self, buf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Started:  # type: ignore[override]
        """Make a broadcast that can be started again and again."""
        return self._init(parsers.BCAST, info, buf, root)

    def Reduce_init(  # type: ignore[override]
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
    ) -> Started:
        """Make a reduce that can be started again and again."""
        return self._init(parsers.REDUCE, info, sendbuf, recvbuf, op, root)

    def Allreduce_init(  # type: ignore[override]
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
    ) -> Started:
        """Make an allreduce that can be started again and again."""
        return self._init(parsers.ALLREDUCE, info, sendbuf, recvbuf, op)

    def Gather_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a gather that can be started again and again."""
        return self._init(parsers.GATHER, info, sendbuf, recvbuf, root)

    def Scatter_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a scatter that can be started again and again."""
        return self._init(parsers.SCATTER, info, sendbuf, recvbuf, root)

    def Allgather_init(self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL) -> Started:  # type: ignore[override]
        """Make an allgather that can be started again and again."""
        return self._init(parsers.ALLGATHER, info, sendbuf, recvbuf)

    def Alltoall_init(self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL) -> Started:  # type: ignore[override]
        """Make an alltoall that can be started again and again."""
        return self._init(parsers.ALLTOALL, info, sendbuf, recvbuf)

    def Reduce_scatter_block_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a reduce-scatter of equal blocks that can be started again and again."""
        return self._init(parsers.REDUCE_SCATTER_BLOCK, info, sendbuf, recvbuf, op)

    def Allgatherv_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make an allgather of blocks of different sizes that can be started again and again."""
        return self._init(parsers.ALLGATHERV, info, sendbuf, recvbuf)

    def Reduce_scatter_init(  # type: ignore[override]
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: MPI.Op = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
    ) -> Started:
        """Make a reduce-scatter of blocks of different sizes that can be started repeatedly."""
        counts = self._counts(sendbuf, recvbuf, recvcounts)
        return self._init(parsers.REDUCE_SCATTER, info, sendbuf, recvbuf, counts, op)
