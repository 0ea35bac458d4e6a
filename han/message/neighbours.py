"""Messages of neighbourhood collectives.

They are alltoalls of blocks whose sizes only two ranks know (:mod:`han.message.own_sizes`): the
block is empty where two ranks are no neighbours. If a graph names a rank several times, its blocks
make one, which is packed and unpacked unless they are contiguous. In a periodic grid of two
processes both neighbours are the same: there a blocking call goes in two steps, one for each
direction.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from copy import copy

from mpi4py import MPI

from han.common.errors import ArgumentError
from han.message.buffers import Buffer, parse
from han.message.message import Message, _no_in_place, _writable
from han.message.own_sizes import Side, _apart, _meet, _message, _packed, _side
from han.message.uneven import Vector

BOTH = 2  # processes of a periodic dimension in which both neighbours are the same


class Edges:
    """The edges of a rank: the ranks that it sends to, and those that it receives from.

    They are in the order of MPI. A negative one is no process: no data goes to its block, or comes
    from it.
    """

    def __init__(self, comm: MPI.Topocomm) -> None:
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.sources, self.targets = comm.inoutedges
        self.narrow = isinstance(comm, MPI.Cartcomm) and _is_narrow(comm)

    def steps(self) -> tuple[Edges, ...]:
        """Return the edges of each step in which a blocking call goes; as many on all ranks."""
        if not self.narrow:
            return (self,)
        return self._towards(0), self._towards(1)

    def _towards(self, way: int) -> Edges:
        """Return the edges that lead in one direction of each dimension."""
        found = copy(self)
        found.narrow = False
        found.targets = _every_other(self.targets, way)
        found.sources = _every_other(self.sources, 1 - way)
        return found

    def packed(self, same: bool, counted: bool) -> bytes:
        """Return the neighbours as the look-up in C takes them; empty if it cannot serve them.

        `same`: each neighbour gets the whole send buffer. `counted`: blocks have counts.
        """
        numbers = len(self.targets), len(self.sources), *self.targets, *self.sources
        return struct.pack(f"={2 + len(numbers)}i", same, counted, *numbers) * (not self.narrow)

    def sent(self, blocks: Sequence[Buffer]) -> Side:
        """Return the blocks to the neighbours, by rank; for each as it receives them."""
        # what goes in one direction of a grid comes from the other one
        order = [k ^ int(self.narrow) for k in range(len(blocks))]
        return self._by_rank(blocks, self.targets, order, packs=True)

    def received(self, blocks: Sequence[Buffer]) -> Side:
        """Return the blocks from the neighbours, by rank."""
        return self._by_rank(blocks, self.sources, range(len(blocks)), packs=False)

    def _by_rank(
        self, blocks: Sequence[Buffer], ranks: Sequence[int], order: Sequence[int], packs: bool
    ) -> Side:
        """Return the blocks for, or from, each rank; those of one rank are joined in an order."""
        known = sorted((ranks[k], at, k) for at, k in enumerate(order) if ranks[k] >= 0)
        chosen, owners = [blocks[k] for *_, k in known], [rank for rank, *_ in known]
        side = _side(chosen, packs) if known else Side(0, [], [])
        if len({*owners}) < len(owners) and side.hook is None and not side.device:
            side = _packed(chosen, packs)
        sizes, places = [0] * self.size, [0] * self.size
        for rank, nbytes, place in reversed([*zip(owners, side.sizes, side.places, strict=True)]):
            sizes[rank] += nbytes
            places[rank] = place
        return side._replace(sizes=sizes, places=places)


def _is_narrow(comm: MPI.Cartcomm) -> bool:
    """Return whether a process has the same neighbour on both sides in some direction."""
    dims, periods, _ = comm.Get_topo()
    return any(period and dim <= BOTH for dim, period in zip(dims, periods, strict=True))


def _every_other(ranks: Sequence[int], way: int) -> list[int]:
    """Return ranks of one direction in each dimension, and no process in the place of others."""
    return [rank if k % 2 == way else MPI.PROC_NULL for k, rank in enumerate(ranks)]


def _equal(spec: object, what: str, number: int) -> list[Buffer]:
    """Return the blocks of a buffer that holds so many of one size."""
    if not number:
        return []
    whole = parse(_no_in_place(spec, what), what, number)
    count, left = divmod(whole.count, number)
    if left:
        raise ArgumentError(
            f"{what} holds {whole.describe()}, which {number} neighbours cannot share evenly"
        )
    return [_part(whole, k * count, count) for k in range(number)]


def _part(whole: Buffer, start: int, count: int) -> Buffer:
    return Vector(whole, (count,), (start,)).block(0)


def _counted(spec: object, what: str, number: int) -> list[Buffer]:
    """Return the blocks of a buffer that are given by counts."""
    if not number:
        return []
    vector = Vector.of(_no_in_place(spec, what), what, number, disjoint=what == "recvbuf")
    return [vector.block(k) for k in range(number)]


def _same(spec: object, what: str, number: int) -> list[Buffer]:
    """Return the whole buffer so many times."""
    return [parse(_no_in_place(spec, what), what)] * number


def message_of(
    edges: Edges, same: bool, counted: bool, sendbuf: object, recvbuf: object
) -> Message:
    """Make the message of a call with neighbours; the arguments are as for `Edges.packed`."""
    read = _counted if counted else _equal
    blocks = (_same if same else read)(sendbuf, "sendbuf", len(edges.targets))
    into = [_writable(each) for each in read(recvbuf, "recvbuf", len(edges.sources))]
    send, recv = edges.sent(blocks), edges.received(into)
    given, taken = send.sizes[edges.rank], recv.sizes[edges.rank]
    if given != taken:
        raise ArgumentError(
            f"a rank's blocks for itself: {given} bytes are sent, recvbuf has {taken} for them"
        )
    if _meet(blocks, into):
        for block in blocks:
            if block.count:
                _apart(block, into)
    return _message("alltoallv", 0, send, recv)
