"""Neighbourhood collectives of han.Cartcomm, han.Graphcomm and han.Distgraphcomm."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise, product
from typing import Any, NamedTuple

from mpi4py import MPI

from han._native import by_mpi
from han.collectives import Collectives, Started
from han.common.errors import ArgumentError, HanError
from han.message import parsers
from han.message.message import Message
from han.message.neighbours import Edges, Form, message_of
from han.message.parsers import Parser
from han.runtime.left import HeldRequest, Left, left_request
from han.runtime.state import State
from han.tasks.call import bytes_of
from han.tasks.neighbours import Neighbours
from han.tasks.own_sizes import own_sizes
from han.tasks.signature import Signature

CALLS = {
    "Neighbor_allgather": Form.EQUAL,
    "Neighbor_allgatherv": Form.COUNTED,
    "Neighbor_alltoall": Form.EQUAL,
    "Neighbor_alltoallv": Form.COUNTED,
    "Neighbor_alltoallw": Form.TYPED,
}
BOTH = 2  # processes of a periodic dimension in which both neighbours are the same one
MOST_EDGES = 1 << 16  # of a distributed graph whose ranks tell each other all of them
FIRST = "the first call with neighbours"


class NeighbourCall(NamedTuple):
    """A call of one communicator: its parser, and the neighbours as the look-up takes them.

    `neighbours` are those of all ranks, if all ranks know them.
    """

    parser: Parser
    ranks: bytes
    neighbours: Neighbours | None


def _serves(comm: MPI.Topocomm) -> bool:
    """Return whether han serves the calls of a communicator; the same on all ranks."""
    if comm.Get_topology() != MPI.CART:
        return True
    dims, periods, _ = MPI.Cartcomm(comm).Get_topo()
    return not any(period and dim <= BOTH for dim, period in zip(dims, periods, strict=True))


def _shares(state: State) -> bool:
    """Return whether ranks of a node may share what goes to others; the same on all ranks."""
    topology = state.parts.topology
    return topology.whole is None and topology.attach and topology.node_level is not None


def _targets(comm: MPI.Topocomm, state: State) -> Sequence[Sequence[int]] | None:
    """Return the targets of all ranks where ranks of a node may share what goes to others.

    Collective: the ranks of a distributed graph tell each other. None elsewhere, and if there are
    too many edges.
    """
    if not _shares(state):
        return None
    if comm.Get_topology() == MPI.CART:
        return _of_grid(*MPI.Cartcomm(comm).Get_topo()[:2])
    if comm.Get_topology() == MPI.GRAPH:
        index, edges = MPI.Graphcomm(comm).Get_topo()
        return [edges[a:b] for a, b in pairwise([0, *index])]
    meeting, targets = state.health.meeting, [*comm.outedges]
    with state.health.together(FIRST):
        if sum(n for (n,) in meeting.numbers([len(targets)], FIRST)) > MOST_EDGES:
            return None
        return meeting.allgather(targets, FIRST)


def _of_grid(dims: Sequence[int], periods: Sequence[int]) -> list[list[int]]:
    """Return the neighbours of the processes of a grid, whose last dimension is the densest."""
    places = [*product(*map(range, dims))]
    ranks = {place: rank for rank, place in enumerate(places)}

    def neighbour(place: tuple[int, ...], axis: int, step: int) -> int:
        at = place[axis] + step
        at = at % dims[axis] if periods[axis] else at
        return ranks.get((*place[:axis], at, *place[axis + 1 :]), MPI.PROC_NULL)

    axes = range(len(dims))
    return [[neighbour(p, axis, step) for axis in axes for step in (-1, 1)] for p in places]


def calls_of(comm: MPI.Topocomm, state: State) -> dict[str, NeighbourCall]:
    """Return the calls of a communicator; collective."""
    edges = Edges(comm, _targets(comm, state))
    state.calls.meet(edges.packed(False, Form.COUNTED), edges.packed(True, Form.COUNTED))

    def call(name: str) -> NeighbourCall:
        how = "allgather" in name, CALLS[name]

        def parse(_: MPI.Comm, sendbuf: object, recvbuf: object) -> Message:
            return message_of(edges, *how, sendbuf, recvbuf)

        return NeighbourCall(Parser(name, parse), edges.packed(*how), edges.of_all(how[0]))

    return {name: call(name) for name in CALLS}


class NeighbourCollectives(MPI.Topocomm, Collectives):
    """Neighbor_allgather(v) and Neighbor_alltoall(v, w): ranks exchange blocks with neighbours.

    A buffer of blocks has one for each neighbour, in the order of MPI. For a neighbour that is no
    process, beyond the edge of a grid, the block is there, and stays as it is. Both ranks of a pair
    pass the same number of bytes. In a grid with a periodic dimension of one or two processes the
    calls are the MPI library's.
    """

    @cached_property
    def _calls(self) -> dict[str, NeighbourCall]:
        self._check_live()
        if not _serves(self):
            return {}
        state = self._han
        if state.neighbour_calls is None:
            state.neighbour_calls = calls_of(self, state)
        return state.neighbour_calls

    def _knows_calls(self) -> bool:
        """Return whether this rank knows the calls without waiting for others."""
        state = self._found()
        if state is None:
            return False
        told = state.neighbour_calls is not None
        return told or self.Get_topology() != MPI.DIST_GRAPH or not _shares(state)

    def _signature_of(self, collective: str, *details: Any) -> Signature:
        """Return the Signature of a call, for `explain`."""
        name = str(collective).capitalize()
        if name not in CALLS:
            return super()._signature_of(collective, *details)  # type: ignore[misc,no-any-return]
        if not _serves(self):
            raise ArgumentError(
                f"{name} is the MPI library's: a periodic dimension has one or two processes"
            )
        if not self._knows_calls():
            raise HanError(
                f"explain: the ranks tell each other their neighbours in the first call with "
                f"them: call {name} before"
            )
        neighbours = self._calls[name].neighbours
        signature = own_sizes("alltoallv", singly=neighbours is None, neighbours=neighbours)
        return signature.changed(count=bytes_of(details[0]))

    def _librarys(self, name: str, *arguments: Any) -> Any:
        """Call the library's method; return its request, if it has one.

        A nonblocking call must not wait for other ranks. So it is the library's too if the
        communicator is not set up yet, or the ranks have not told each other their neighbours.
        Raises Left as `_mpis` does.
        """
        if self._of_c:
            raise Left
        state = self._state or self._found()
        self._check_live()
        leaving = contextlib.nullcontext() if state is None else state.health.notices.leaving()
        with leaving:
            method = getattr(self._plain, name)
            request = by_mpi(method, self, *parsers.for_mpi(arguments))
        if request is None or (state is None and isinstance(request, MPI.Prequest)):
            return request
        if state is None:
            return HeldRequest(request, arguments)
        return left_request(request, state.health, name)

    # ---- blocking ---------------------------------------------------------------------------

    def Neighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send `sendbuf` to each neighbour; receive one block of each into `recvbuf`."""
        self._run_call("Neighbor_allgather", sendbuf, recvbuf)

    def Neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send `sendbuf` to each neighbour; receive blocks of different sizes into `recvbuf`."""
        self._run_call("Neighbor_allgatherv", sendbuf, recvbuf)

    def Neighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send a block of `sendbuf` to each neighbour; receive one of each into `recvbuf`."""
        self._run_call("Neighbor_alltoall", sendbuf, recvbuf)

    def Neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Exchange blocks of different sizes with the neighbours."""
        self._run_call("Neighbor_alltoallv", sendbuf, recvbuf)

    def Neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> None:
        """Exchange blocks that have types of their own with the neighbours."""
        self._run_call("Neighbor_alltoallw", sendbuf, recvbuf)

    def _run_call(self, name: str, *buffers: Any) -> None:
        call = self._calls.get(name)
        if call is None:
            self._librarys(name, *buffers)
            return
        state = self._state or self._han
        if not state.calls.neighbours(call.ranks, *buffers):
            self._run(call.parser, *buffers)

    # ---- nonblocking ------------------------------------------------------------------------

    def Ineighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Neighbor_allgather`; return its request."""
        return self._start_call("Neighbor_allgather", sendbuf, recvbuf)

    def Ineighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Neighbor_allgatherv`; return its request."""
        return self._start_call("Neighbor_allgatherv", sendbuf, recvbuf)

    def Ineighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Neighbor_alltoall`; return its request."""
        return self._start_call("Neighbor_alltoall", sendbuf, recvbuf)

    def Ineighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Neighbor_alltoallv`; return its request."""
        return self._start_call("Neighbor_alltoallv", sendbuf, recvbuf)

    def Ineighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> Started:
        """Start :meth:`Neighbor_alltoallw`; return its request."""
        return self._start_call("Neighbor_alltoallw", sendbuf, recvbuf)

    def _start_call(self, name: str, *buffers: Any) -> Started:
        call = self._calls.get(name) if self._knows_calls() else None
        if call is None:
            return self._librarys(f"I{name.lower()}", *buffers)  # type: ignore[no-any-return]
        started: Any = self._quick.ineighbours(call.ranks, *buffers)
        return self._start(call.parser, *buffers) if started is False else started

    # ---- persistent -------------------------------------------------------------------------

    def Neighbor_allgather_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Neighbor_allgather`; collective."""
        return self._init_call("Neighbor_allgather", info, sendbuf, recvbuf)

    def Neighbor_allgatherv_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Neighbor_allgatherv`; collective."""
        return self._init_call("Neighbor_allgatherv", info, sendbuf, recvbuf)

    def Neighbor_alltoall_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Neighbor_alltoall`; collective."""
        return self._init_call("Neighbor_alltoall", info, sendbuf, recvbuf)

    def Neighbor_alltoallv_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Neighbor_alltoallv`; collective."""
        return self._init_call("Neighbor_alltoallv", info, sendbuf, recvbuf)

    def Neighbor_alltoallw_init(  # type: ignore[override]
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL
    ) -> Started:
        """Make a persistent request for :meth:`Neighbor_alltoallw`; collective."""
        return self._init_call("Neighbor_alltoallw", info, sendbuf, recvbuf)

    def _init_call(self, name: str, info: MPI.Info, *buffers: Any) -> Started:
        call = self._calls.get(name)
        if call is None:
            return self._librarys(f"{name}_init", *buffers, info)  # type: ignore[no-any-return]
        made: Any = self._quick.neighbours_init(call.ranks, *buffers)
        return self._init(call.parser, info, *buffers) if made is False else made
