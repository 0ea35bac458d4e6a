"""Neighbourhood collectives of han.Cartcomm, han.Graphcomm and han.Distgraphcomm."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

from mpi4py import MPI

from han.collectives import Collectives, Started
from han.message.message import Message
from han.message.neighbours import Edges, message_of
from han.message.parsers import Parser
from han.runtime.state import Served


class Step(NamedTuple):
    """A call, or a step of it: its parser, and the neighbours as the look-up takes them."""

    parser: Parser
    ranks: bytes


class Kind:
    """A neighbourhood collective of one communicator; a blocking call goes in `steps`."""

    def __init__(self, name: str, edges: Edges, same: bool, counted: bool) -> None:
        def step(each: Edges) -> Step:
            def parse(_: MPI.Comm, sendbuf: object, recvbuf: object) -> Message:
                return message_of(each, same, counted, sendbuf, recvbuf)

            return Step(Parser(name, parse), each.packed(same, counted))

        self.whole, self.steps = step(edges), tuple(map(step, edges.steps()))


class Kinds:
    """The neighbourhood collectives of one communicator."""

    def __init__(self, comm: MPI.Topocomm) -> None:
        edges = Edges(comm)
        self.allgather = Kind("Neighbor_allgather", edges, same=True, counted=False)
        self.allgatherv = Kind("Neighbor_allgatherv", edges, same=True, counted=True)
        self.alltoall = Kind("Neighbor_alltoall", edges, same=False, counted=False)
        self.alltoallv = Kind("Neighbor_alltoallv", edges, same=False, counted=True)


class NeighbourCollectives(MPI.Topocomm, Collectives):
    """Neighbor_allgather(v) and Neighbor_alltoall(v): ranks exchange blocks with neighbours only.

    A buffer of blocks has one for each neighbour, in the order of MPI. For a neighbour that is no
    process, beyond the edge of a grid, the block is there, and stays as it is. Both ranks of a pair
    pass the same number of bytes. If two processes of a periodic grid are neighbours on both sides,
    what goes in one direction arrives from the other one.
    """

    @cached_property
    def _kinds(self) -> Kinds:
        return Kinds(self)

    # ---- blocking ---------------------------------------------------------------------------

    def Neighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send `sendbuf` to each neighbour; receive one block of each into `recvbuf`."""
        self._run_kind(self._kinds.allgather, sendbuf, recvbuf)

    def Neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send `sendbuf` to each neighbour; receive blocks of different sizes into `recvbuf`."""
        self._run_kind(self._kinds.allgatherv, sendbuf, recvbuf)

    def Neighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send a block of `sendbuf` to each neighbour; receive one of each into `recvbuf`."""
        self._run_kind(self._kinds.alltoall, sendbuf, recvbuf)

    def Neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Exchange blocks of different sizes with the neighbours."""
        self._run_kind(self._kinds.alltoallv, sendbuf, recvbuf)

    def _run_kind(self, kind: Kind, *buffers: Any) -> None:
        state = self._state or self._han
        for parser, ranks in kind.steps:
            if state.calls.neighbours(ranks, *buffers):
                continue
            if self._run(parser, *buffers) is not Served.BY_HAN:
                return  # the library's call is a whole one

    # ---- nonblocking ------------------------------------------------------------------------

    def Ineighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Neighbor_allgather`; return its request."""
        return self._start_kind(self._kinds.allgather, sendbuf, recvbuf)

    def Ineighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Neighbor_allgatherv`; return its request."""
        return self._start_kind(self._kinds.allgatherv, sendbuf, recvbuf)

    def Ineighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Neighbor_alltoall`; return its request."""
        return self._start_kind(self._kinds.alltoall, sendbuf, recvbuf)

    def Ineighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Neighbor_alltoallv`; return its request."""
        return self._start_kind(self._kinds.alltoallv, sendbuf, recvbuf)

    def _start_kind(self, kind: Kind, *buffers: Any) -> Started:
        parser, ranks = kind.whole
        started: Any = self._quick.ineighbours(ranks, *buffers)
        return self._start(parser, *buffers) if started is False else started

    # ---- persistent -------------------------------------------------------------------------

    def Neighbor_allgather_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Neighbor_allgather`; collective."""
        return self._init_kind(self._kinds.allgather, info, sendbuf, recvbuf)

    def Neighbor_allgatherv_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Neighbor_allgatherv`; collective."""
        return self._init_kind(self._kinds.allgatherv, info, sendbuf, recvbuf)

    def Neighbor_alltoall_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Neighbor_alltoall`; collective."""
        return self._init_kind(self._kinds.alltoall, info, sendbuf, recvbuf)

    def Neighbor_alltoallv_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Neighbor_alltoallv`; collective."""
        return self._init_kind(self._kinds.alltoallv, info, sendbuf, recvbuf)

    def _init_kind(self, kind: Kind, info: MPI.Info, *buffers: Any) -> Started:
        parser, ranks = kind.whole
        made: Any = self._quick.neighbours_init(ranks, *buffers)
        return self._init(parser, info, *buffers) if made is False else made
