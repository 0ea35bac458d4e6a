"""The collectives of ``han.Comm``: blocking, nonblocking and persistent.

Every method first asks the look-up in C, which serves calls with a known plan, and those that are
MPI's own. Otherwise it parses the arguments and finds or makes the plan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from han._native import by_mpi
from han.attached import Attached
from han.message import parsers
from han.message.message import in_place
from han.message.parsers import Parser
from han.runtime.left import NOTHING, HeldRequest, Left, LeftRequest, left_request
from han.runtime.request import Request
from han.runtime.state import Served
from han.tasks.signature import ON_DEVICE

Started = Request | LeftRequest | MPI.Request  # of nonblocking and persistent calls


class Collectives(Attached):
    """Collectives of an intra-communicator. Arguments are spelled as in mpi4py.

    A buffer is an array, another object with a buffer or a tensor, or a list such as
    ``[data, count, type]``. ``MPI.IN_PLACE`` is allowed where MPI allows it, and None stands for
    it. Calls on memory of a device are the MPI library's own; all ranks pass such memory, or none
    does. All ranks make the same calls in the same order, with the same root, operation and size.
    Operands of an operation that does not commute are combined in the order of ranks.

    Blocking calls, and ``Wait`` and ``Test`` of requests, raise

    - ArgumentError (ArgumentTypeError) for wrong arguments, before any data moves;
    - MismatchError if another rank made a different call;
    - PeerError if another rank raised in the call, or died;
    - CollectiveTimeoutError if no progress was made for ``HAN_TIMEOUT`` seconds;
    - RevokedError if an earlier error has made the communicator unusable.
    """

    def _run(self, parser: Parser, *arguments: object) -> None:
        """Run a blocking call that the look-up did not serve."""
        state = self._han
        served = state.run(parser, *arguments)
        if served is Served.BY_MPI:
            request = self._mpis(served, f"I{parser.name.lower()}", *arguments)
            left_request(request, state.health, parser.name).Wait()
        elif served is Served.ON_DEVICE:  # MPI libraries lack some nonblocking calls there
            self._mpis(served, parser.name, *arguments)

    @property
    def _quick(self) -> Any:
        """The look-up in C; one that serves nothing if the communicator is not set up yet."""
        state = self._state or self._found()
        return NOTHING if state is None else state.calls

    def _start(self, parser: Parser, *arguments: object) -> Started:
        """Start a nonblocking call that the look-up did not serve.

        It cannot set up a communicator, as it must not wait for other ranks. It is MPI's then.
        """
        state, name = self._found(), f"I{parser.name.lower()}"
        if state is None:
            self._check_live()
            method = getattr(self._plain, name)
            request = by_mpi(method, self, *parsers.for_mpi(arguments))
            return HeldRequest(request, arguments)
        served, request = state.start(parser, *arguments)
        if served is Served.BY_HAN and request is not None:
            return request
        left = left_request(self._mpis(served, name, *arguments), state.health, name)
        left.after, left.buffers = request, arguments
        return left

    def _init(self, parser: Parser, info: MPI.Info, *arguments: object) -> Started:
        """Make a persistent request, which the look-up may have served."""
        made: Any = getattr(self._quick, parser.init)(*arguments) if parser.init else False
        if made is not False:
            return made  # type: ignore[no-any-return]
        state, name = self._han, f"{parser.name}_init"
        served, request = state.init(parser, *arguments)
        if request is not None:
            return request
        step = f"{name} ({ON_DEVICE})" if served is Served.ON_DEVICE else name
        return left_request(self._mpis(served, name, *arguments, info), state.health, step)

    def _mpis(self, served: Served, name: str, *arguments: object) -> Any:
        """Call a method of mpi4py; `served` says why han leaves the call to it.

        If the method raises, tell the other ranks, which may wait for this one. Raises Left on
        communicators of C programs, which call MPI themselves.
        """
        if self._of_c:
            raise Left
        with self._han.health.notices.leaving():
            return by_mpi(getattr(self._plain, name), self, *parsers.for_mpi(arguments))

    # ---- blocking ---------------------------------------------------------------------------

    def Barrier(self) -> None:
        """Wait until all ranks have called this."""
        state = self._state or self._han
        if not state.calls.barrier():
            self._run(parsers.BARRIER)

    barrier = Barrier  # mpi4py's other name

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Broadcast `buf` of `root` to `buf` of all other ranks.

        All ranks pass the same number of bytes.
        """
        state = self._state or self._han
        if not state.calls.bcast(buf, root):
            self._run(parsers.BCAST, buf, root)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> None:
        """Reduce `sendbuf` of all ranks element by element into `recvbuf` of `root`.

        Both have the same number and type of elements. Only the root's `recvbuf` is used. The root
        may pass ``MPI.IN_PLACE`` as `sendbuf`: its operand is then in `recvbuf`.
        """
        state = self._state or self._han
        if not state.calls.reduce(sendbuf, recvbuf, op, root):
            self._run(parsers.REDUCE, sendbuf, recvbuf, op, root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """Reduce `sendbuf` of all ranks element by element into `recvbuf` of all ranks.

        Both have the same number and type of elements. With ``MPI.IN_PLACE`` as `sendbuf` the
        operand is in `recvbuf`. The results are the same bits on all ranks.
        """
        state = self._state or self._han
        if not state.calls.allreduce(sendbuf, recvbuf, op):
            self._run(parsers.ALLREDUCE, sendbuf, recvbuf, op)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather `sendbuf`, one block, of each rank into `recvbuf` of `root`, in rank order.

        Only the root's `recvbuf` is used. It holds a block for each rank. The root may pass
        ``MPI.IN_PLACE`` as `sendbuf`: its block is then at its place in `recvbuf`.
        """
        state = self._state or self._han
        if not state.calls.gather(sendbuf, recvbuf, root):
            self._run(parsers.GATHER, sendbuf, recvbuf, root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Scatter `sendbuf` of `root`, a block for each rank, into `recvbuf` of the ranks.

        Only the root's `sendbuf` is used. The root may pass ``MPI.IN_PLACE`` as `recvbuf`: its
        block then stays in `sendbuf`.
        """
        state = self._state or self._han
        if not state.calls.scatter(sendbuf, recvbuf, root):
            self._run(parsers.SCATTER, sendbuf, recvbuf, root)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather `sendbuf`, one block, of each rank into `recvbuf` of all ranks.

        `recvbuf` holds a block for each rank, in the order of ranks. With ``MPI.IN_PLACE`` as
        `sendbuf` each rank's block is at its place in `recvbuf`.
        """
        state = self._state or self._han
        if not state.calls.allgather(sendbuf, recvbuf):
            self._run(parsers.ALLGATHER, sendbuf, recvbuf)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send block r of `sendbuf` to rank r, and receive block r of `recvbuf` from rank r.

        Both buffers hold a block for each rank, all of one size. With ``MPI.IN_PLACE`` as
        `sendbuf` the blocks to send are in `recvbuf`.
        """
        state = self._state or self._han
        if not state.calls.alltoall(sendbuf, recvbuf):
            self._run(parsers.ALLTOALL, sendbuf, recvbuf)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """Reduce `sendbuf`, a block for each rank, and store block r of the result on rank r.

        `recvbuf` holds one block. With ``MPI.IN_PLACE`` as `sendbuf` the operands are in
        `recvbuf`, which holds all blocks; the result is stored at its beginning.
        """
        state = self._state or self._han
        if not state.calls.reduce_scatter_block(sendbuf, recvbuf, op):
            self._run(parsers.REDUCE_SCATTER_BLOCK, sendbuf, recvbuf, op)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather blocks of different sizes of all ranks into `recvbuf` of all ranks.

        `recvbuf` is ``[data, counts]``, ``[data, (counts, displacements), type]`` and so on, in
        elements. All ranks pass the same counts; displacements may differ.
        """
        state = self._state or self._han
        if not state.calls.allgatherv(sendbuf, recvbuf):
            self._run(parsers.ALLGATHERV, sendbuf, recvbuf)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = MPI.SUM
    ) -> None:
        """Reduce `sendbuf`; store a block of ``recvcounts[r]`` elements of the result on rank r.

        All ranks pass the same `recvcounts`. If it is None, an allgather tells all ranks the
        number of elements of each rank's `recvbuf`.
        """
        state = self._state or self._han
        if recvcounts is None:
            recvcounts = self._counts(sendbuf, recvbuf)
        if not state.calls.reduce_scatter(sendbuf, recvbuf, recvcounts, op):
            self._run(parsers.REDUCE_SCATTER, sendbuf, recvbuf, recvcounts, op)

    def _counts(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Gather the number of elements that each rank receives; None if the call has no need."""
        state = self._han
        if in_place(sendbuf):
            return None
        counts = np.empty(state.size, np.int64)
        if state.calls.recvcounts(recvbuf, counts):
            return counts
        served = state.run(parsers.RECVCOUNTS, recvbuf, counts)
        return counts if served is Served.BY_HAN else None

    # ---- nonblocking ------------------------------------------------------------------------

    def Ibarrier(self) -> Started:
        """Start :meth:`Barrier`; return its request."""
        started = self._quick.ibarrier()
        return self._start(parsers.BARRIER) if started is False else started

    def Ibcast(self, buf: Any, root: int = 0) -> Started:
        """Start :meth:`Bcast`; return its request."""
        started = self._quick.ibcast(buf, root)
        return self._start(parsers.BCAST, buf, root) if started is False else started

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> Started:
        """Start :meth:`Reduce`; return its request."""
        started = self._quick.ireduce(sendbuf, recvbuf, op, root)
        return (
            self._start(parsers.REDUCE, sendbuf, recvbuf, op, root) if started is False else started
        )

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Started:
        """Start :meth:`Allreduce`; return its request."""
        started = self._quick.iallreduce(sendbuf, recvbuf, op)
        return self._start(parsers.ALLREDUCE, sendbuf, recvbuf, op) if started is False else started

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Started:
        """Start :meth:`Gather`; return its request."""
        started = self._quick.igather(sendbuf, recvbuf, root)
        return self._start(parsers.GATHER, sendbuf, recvbuf, root) if started is False else started

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Started:
        """Start :meth:`Scatter`; return its request."""
        started = self._quick.iscatter(sendbuf, recvbuf, root)
        return self._start(parsers.SCATTER, sendbuf, recvbuf, root) if started is False else started

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Allgather`; return its request."""
        started = self._quick.iallgather(sendbuf, recvbuf)
        return self._start(parsers.ALLGATHER, sendbuf, recvbuf) if started is False else started

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Alltoall`; return its request."""
        started = self._quick.ialltoall(sendbuf, recvbuf)
        return self._start(parsers.ALLTOALL, sendbuf, recvbuf) if started is False else started

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Started:
        """Start :meth:`Reduce_scatter_block`; return its request."""
        started = self._quick.ireduce_scatter_block(sendbuf, recvbuf, op)
        return (
            self._start(parsers.REDUCE_SCATTER_BLOCK, sendbuf, recvbuf, op)
            if started is False
            else started
        )

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Allgatherv`; return its request."""
        started = self._quick.iallgatherv(sendbuf, recvbuf)
        return self._start(parsers.ALLGATHERV, sendbuf, recvbuf) if started is False else started

    def Ireduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = MPI.SUM
    ) -> Started:
        """Start :meth:`Reduce_scatter`; return its request.

        If `recvcounts` is None, this waits until all ranks have told their counts.
        """
        if recvcounts is None and self._found() is not None:
            recvcounts = self._counts(sendbuf, recvbuf)
        started = self._quick.ireduce_scatter(sendbuf, recvbuf, recvcounts, op)
        return (
            self._start(parsers.REDUCE_SCATTER, sendbuf, recvbuf, recvcounts, op)
            if started is False
            else started
        )

    # ---- persistent -------------------------------------------------------------------------

    def Barrier_init(self, info: MPI.Info = MPI.INFO_NULL) -> Started:  # type: ignore[override]
        """Make a persistent request for :meth:`Barrier`; collective."""
        return self._init(parsers.BARRIER, info)

    def Bcast_init(self, buf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Started:  # type: ignore[override]
        """Make a persistent request for :meth:`Bcast`; collective."""
        return self._init(parsers.BCAST, info, buf, root)

    def Reduce_init(  # type: ignore[override]
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
    ) -> Started:
        """Make a persistent request for :meth:`Reduce`; collective."""
        return self._init(parsers.REDUCE, info, sendbuf, recvbuf, op, root)

    def Allreduce_init(  # type: ignore[override]
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
    ) -> Started:
        """Make a persistent request for :meth:`Allreduce`; collective."""
        return self._init(parsers.ALLREDUCE, info, sendbuf, recvbuf, op)

    def Gather_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Gather`; collective."""
        return self._init(parsers.GATHER, info, sendbuf, recvbuf, root)

    def Scatter_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Scatter`; collective."""
        return self._init(parsers.SCATTER, info, sendbuf, recvbuf, root)

    def Allgather_init(self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL) -> Started:  # type: ignore[override]
        """Make a persistent request for :meth:`Allgather`; collective."""
        return self._init(parsers.ALLGATHER, info, sendbuf, recvbuf)

    def Alltoall_init(self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL) -> Started:  # type: ignore[override]
        """Make a persistent request for :meth:`Alltoall`; collective."""
        return self._init(parsers.ALLTOALL, info, sendbuf, recvbuf)

    def Reduce_scatter_block_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Reduce_scatter_block`; collective."""
        return self._init(parsers.REDUCE_SCATTER_BLOCK, info, sendbuf, recvbuf, op)

    def Allgatherv_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Allgatherv`; collective."""
        return self._init(parsers.ALLGATHERV, info, sendbuf, recvbuf)

    def Reduce_scatter_init(  # type: ignore[override]
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: MPI.Op = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
    ) -> Started:
        """Make a persistent request for :meth:`Reduce_scatter`; collective."""
        if recvcounts is None:
            recvcounts = self._counts(sendbuf, recvbuf)
        return self._init(parsers.REDUCE_SCATTER, info, sendbuf, recvbuf, recvcounts, op)
