"""The collectives of ``han.Comm`` whose buffers hold a block for each rank.

They are han's where all ranks share memory on some level. Elsewhere they are the MPI library's, by
the nonblocking form, so that han's own requests go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from han.message import blocks as message
from han.message import uneven as uneven
from han.message.message import Message
from han.runtime.left import left_request

if TYPE_CHECKING:
    from han.runtime.state import State

Parse = Callable[..., Message]


class BlockCollectives(MPI.Intracomm):
    """Gather, Scatter, Allgather, Alltoall and Reduce_scatter_block, in all forms.

    Also Allgatherv and Reduce_scatter, whose blocks differ in size. Other forms of different sizes
    are mpi4py's own: there only a root, or a pair, knows how much moves.
    """

    _state: State | None = None

    @property
    def _han(self) -> State:
        raise NotImplementedError("han.Comm knows it")

    def _run(self, name: str, parse: Parse, *arguments: object) -> None:
        """Make a blocking call that is new or not plain, or that han leaves to MPI."""
        state = self._han
        if not (self._moves(parse, *arguments) and state.run(parse, *arguments)):
            state.wait_for(self._mpis("I" + name.lower(), *arguments), name)

    def _start(self, name: str, parse: Parse, *arguments: object) -> Any:
        """Start a nonblocking call that is new or not plain, or that han leaves to MPI."""
        state = self._han
        moves = self._moves(parse, *arguments)
        request = state.try_to_start(parse, *arguments) if moves else None
        return request or left_request(self._mpis(name, *arguments), state, name)

    def _init(self, name: str, info: MPI.Info, parse: Parse, *arguments: object) -> Any:
        """Make a persistent request, of han's or of MPI's."""
        state = self._han
        moves = self._moves(parse, *arguments)
        request = state.try_to_init(parse, *arguments) if moves else None
        return request or left_request(self._mpis(name, *arguments, info), state, name)

    def _moves(self, parse: Parse, *arguments: object) -> bool:
        """Whether the call is han's; if not, in checked mode, once all ranks agree on it."""
        state = self._han
        moves = state.moves_blocks()
        if not moves:
            state.check(parse, *arguments)
        return moves

    def _mpis(self, name: str, *arguments: object) -> Any:
        """Make a call of MPI's; the other ranks, who may wait for this one, hear of an error."""
        with self._han.notices.leaving():
            return getattr(MPI.Intracomm, name)(self, *arguments)

    # ---- blocking ---------------------------------------------------------------------------

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather everybody's block at `root`; `recvbuf` counts there only."""
        state = self._state or self._han
        if not state.calls.gather(sendbuf, recvbuf, root):
            self._run("Gather", message.gather, sendbuf, recvbuf, root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Scatter the blocks of `root`; `sendbuf` counts there only."""
        state = self._state or self._han
        if not state.calls.scatter(sendbuf, recvbuf, root):
            self._run("Scatter", message.scatter, sendbuf, recvbuf, root)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather everybody's block at all ranks."""
        state = self._state or self._han
        if not state.calls.allgather(sendbuf, recvbuf):
            self._run("Allgather", message.allgather, sendbuf, recvbuf)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send a block to each rank, and get one from each."""
        state = self._state or self._han
        if not state.calls.alltoall(sendbuf, recvbuf):
            self._run("Alltoall", message.alltoall, sendbuf, recvbuf)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """Reduce blocks, one for each rank."""
        state = self._state or self._han
        if not state.calls.reduce_scatter_block(sendbuf, recvbuf, op):
            parse = message.reduce_scatter_block
            self._run("Reduce_scatter_block", parse, sendbuf, recvbuf, op)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather everybody's block at all ranks; blocks may differ in size."""
        self._run("Allgatherv", uneven.allgatherv, sendbuf, recvbuf)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = MPI.SUM
    ) -> None:
        """Reduce blocks, one for each rank, of `recvcounts` elements each.

        Without them the ranks tell each other how many elements they receive.
        """
        counts = self._counts(sendbuf, recvbuf, recvcounts)
        self._run("Reduce_scatter", uneven.reduce_scatter, sendbuf, recvbuf, counts, op)

    def _counts(self, sendbuf: Any, recvbuf: Any, recvcounts: Any) -> Any:
        """Find out what all ranks receive, where they do not say."""
        state = self._han
        if recvcounts is not None or sendbuf is MPI.IN_PLACE or not state.moves_blocks():
            return recvcounts
        counts = np.empty(state.size, np.int64)
        served = state.run(uneven.recvcounts, recvbuf, counts)
        return counts if served else None

    # ---- nonblocking ------------------------------------------------------------------------

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        """Start a gather."""
        started = self._han.calls.igather(sendbuf, recvbuf, root)
        return started or self._start("Igather", message.gather, sendbuf, recvbuf, root)

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        """Start a scatter."""
        started = self._han.calls.iscatter(sendbuf, recvbuf, root)
        return started or self._start("Iscatter", message.scatter, sendbuf, recvbuf, root)

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Start an allgather."""
        started = self._han.calls.iallgather(sendbuf, recvbuf)
        return started or self._start("Iallgather", message.allgather, sendbuf, recvbuf)

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Start an alltoall."""
        started = self._han.calls.ialltoall(sendbuf, recvbuf)
        return started or self._start("Ialltoall", message.alltoall, sendbuf, recvbuf)

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Any:
        """Start a reduce-scatter of equal blocks."""
        started = self._han.calls.ireduce_scatter_block(sendbuf, recvbuf, op)
        parse = message.reduce_scatter_block
        return started or self._start("Ireduce_scatter_block", parse, sendbuf, recvbuf, op)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Start an allgather of blocks of different sizes."""
        return self._start("Iallgatherv", uneven.allgatherv, sendbuf, recvbuf)

    def Ireduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = MPI.SUM
    ) -> Any:
        """Start a reduce-scatter of blocks of different sizes; without `recvcounts` it waits."""
        counts = self._counts(sendbuf, recvbuf, recvcounts)
        parse = uneven.reduce_scatter
        return self._start("Ireduce_scatter", parse, sendbuf, recvbuf, counts, op)

    # ---- persistent -------------------------------------------------------------------------

    def Gather_init(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL
    ) -> Any:
        """Make a gather that can be started again and again."""
        return self._init("Gather_init", info, message.gather, sendbuf, recvbuf, root)

    def Scatter_init(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL
    ) -> Any:
        """Make a scatter that can be started again and again."""
        return self._init("Scatter_init", info, message.scatter, sendbuf, recvbuf, root)

    def Allgather_init(self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL) -> Any:
        """Make an allgather that can be started again and again."""
        return self._init("Allgather_init", info, message.allgather, sendbuf, recvbuf)

    def Alltoall_init(self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL) -> Any:
        """Make an alltoall that can be started again and again."""
        return self._init("Alltoall_init", info, message.alltoall, sendbuf, recvbuf)

    def Reduce_scatter_block_init(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, info: MPI.Info = MPI.INFO_NULL
    ) -> Any:
        """Make a reduce-scatter of equal blocks that can be started again and again."""
        name, parse = "Reduce_scatter_block_init", message.reduce_scatter_block
        return self._init(name, info, parse, sendbuf, recvbuf, op)

    def Allgatherv_init(self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL) -> Any:
        """Make an allgather of blocks of different sizes that can be started again and again."""
        return self._init("Allgatherv_init", info, uneven.allgatherv, sendbuf, recvbuf)

    def Reduce_scatter_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: MPI.Op = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
    ) -> Any:
        """Make a reduce-scatter of blocks of different sizes that can be started repeatedly."""
        counts = self._counts(sendbuf, recvbuf, recvcounts)
        name, parse = "Reduce_scatter_init", uneven.reduce_scatter
        return self._init(name, info, parse, sendbuf, recvbuf, counts, op)
