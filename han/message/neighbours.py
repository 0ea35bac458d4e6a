"""Messages of neighbourhood collectives.

They are alltoalls of blocks whose sizes only two ranks know (:mod:`han.message.own_sizes`): the
block is empty where two ranks are no neighbours. If a rank is named several times, as in a periodic
grid of two processes, its blocks make one, which is packed and unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from mpi4py import MPI

from han.common.errors import ArgumentError
from han.message.buffers import Buffer, parse
from han.message.message import Message, _no_in_place, _writable
from han.message.own_sizes import Side, _apart, _meet, _message, _packed, _side
from han.message.uneven import Vector


class Neighbours:
    """The neighbours of a rank: those that it sends to, and those that it receives from.

    They are in the order of MPI. A negative one is no process: no data goes to its block, or comes
    from it.
    """

    def __init__(self, comm: MPI.Topocomm) -> None:
        self.size, self.rank = comm.Get_size(), comm.Get_rank()
        self.sources, self.targets = map(tuple, comm.inoutedges)
        # What goes in one direction of a grid comes from the other one.
        self._turned = isinstance(comm, MPI.Cartcomm)

    @property
    def distinct(self) -> bool:
        """Whether no rank is named twice, among those to send to or to receive from."""
        named = [r for r in self.targets if r >= 0], [r for r in self.sources if r >= 0]
        return all(len({*each}) == len(each) for each in named)

    def packed(self, same: bool, counted: bool) -> bytes:
        """Return the neighbours as the look-up in C takes them; empty if it cannot serve them.

        `same`: each neighbour gets the whole send buffer. `counted`: blocks have counts.
        """
        numbers = len(self.targets), len(self.sources), *self.targets, *self.sources
        return struct.pack(f"={2 + len(numbers)}i", same, counted, *numbers) * self.distinct

    def sent(self, blocks: Sequence[Buffer]) -> Side:
        """Return the blocks to the neighbours, by rank."""
        return self._by_rank(blocks, self.targets, range(len(blocks)), packs=True)

    def received(self, blocks: Sequence[Buffer]) -> Side:
        """Return the blocks from the neighbours, by rank."""
        order = [k ^ int(self._turned) for k in range(len(blocks))]
        return self._by_rank(blocks, self.sources, order, packs=False)

    def _by_rank(
        self, blocks: Sequence[Buffer], ranks: Sequence[int], order: Sequence[int], packs: bool
    ) -> Side:
        """Return the blocks for, or from, each rank; those of one rank are joined in an order."""
        known = sorted((ranks[k], at, k) for at, k in enumerate(order) if ranks[k] >= 0)
        side = _side([blocks[k] for *_, k in known], packs) if known else Side(0, [], [])
        owners = [rank for rank, *_ in known]
        if len({*owners}) < len(owners) and side.hook is None and not side.device:
            side = _packed([blocks[k] for *_, k in known], packs)
        sizes, places = [0] * self.size, [0] * self.size
        for rank, nbytes, place in reversed([*zip(owners, side.sizes, side.places, strict=True)]):
            sizes[rank] += nbytes
            places[rank] = place
        return side._replace(sizes=sizes, places=places)


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
    edges: Neighbours, same: bool, counted: bool, sendbuf: object, recvbuf: object
) -> Message:
    """Make the message of a call with neighbours; the arguments are as for `Neighbours.packed`."""
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
