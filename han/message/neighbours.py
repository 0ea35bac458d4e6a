"""Messages of neighbourhood collectives.

They are alltoalls of blocks whose sizes only two ranks know (:mod:`han.message.own_sizes`): the
block is empty where two ranks are no neighbours. If a graph names a rank several times, its blocks
make one, which is packed and unpacked unless they are contiguous.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from mpi4py import MPI

from han.common.errors import ArgumentError
from han.message.buffers import Buffer, parse, parts_of
from han.message.message import Message, _no_in_place, _writable
from han.message.own_sizes import (
    SINGLY,
    TYPED,
    Side,
    _apart,
    _meet,
    _message,
    _packed,
    _side,
    kind_of,
    typed_blocks,
)
from han.message.uneven import WRONG, Vector
from han.tasks.neighbours import Neighbours


class Form(IntEnum):
    """How a buffer tells its blocks; as in native/door.h."""

    EQUAL = 0  # they are alike
    COUNTED = 1  # they have counts of their own
    TYPED = 2  # they have types of their own


class EdgeBlocks(NamedTuple):
    """The block of each neighbour; `device`: in memory of a device, also if there is none."""

    each: list[Buffer]
    device: bool

    @classmethod
    def of(cls, vector: Vector) -> EdgeBlocks:
        """Return the blocks of a buffer."""
        each = [vector.block(k) for k in range(len(vector.counts))]
        return cls(each, vector.buffer.device)


class Edges:
    """The edges of a rank: the ranks that it sends to, and those that it receives from.

    They are in the order of MPI. A negative one is no process: no data goes to its block, or comes
    from it. `everyone` are the targets of all ranks, if all ranks know them.
    """

    def __init__(self, comm: MPI.Topocomm, everyone: Sequence[Sequence[int]] | None = None) -> None:
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.sources, self.targets = comm.inoutedges
        self._everyone = everyone

    @cached_property
    def _known(self) -> dict[bool, Neighbours]:
        everyone = self._everyone
        known = () if everyone is None else (False, True)
        return {same: Neighbours.of(everyone or (), same) for same in known}

    def of_all(self, same: bool) -> Neighbours | None:
        """Return the neighbours of all ranks, if all ranks know them."""
        return self._known.get(same)

    def packed(self, same: bool, form: Form) -> bytes:
        """Return the neighbours as the look-up in C takes them.

        `same`: each neighbour gets the whole send buffer.
        """
        neighbours = self.of_all(same)
        kind = SINGLY if neighbours is None else kind_of(neighbours)
        numbers = len(self.targets), len(self.sources), *self.targets, *self.sources
        return struct.pack(f"={3 + len(numbers)}i", kind, same, form, *numbers)

    def sent(self, blocks: EdgeBlocks) -> Side:
        """Return the blocks to the neighbours, by rank."""
        return self._by_rank(blocks, self.targets, packs=True)

    def received(self, blocks: EdgeBlocks) -> Side:
        """Return the blocks from the neighbours, by rank."""
        return self._by_rank(blocks, self.sources, packs=False)

    def _by_rank(self, blocks: EdgeBlocks, ranks: Sequence[int], packs: bool) -> Side:
        """Return the blocks for, or from, each rank; those of one rank are joined."""
        known = sorted((rank, k) for k, rank in enumerate(ranks) if rank >= 0)
        chosen, owners = [blocks.each[k] for _, k in known], [rank for rank, _ in known]
        several = len({*owners}) < len(owners) and not blocks.device
        make = _packed if several else _side
        side = make(chosen, packs) if known else Side(0, [], [], device=blocks.device)
        sizes, places = [0] * self.size, [0] * self.size
        for rank, nbytes, place in reversed([*zip(owners, side.sizes, side.places, strict=True)]):
            sizes[rank] += nbytes
            places[rank] = place
        return side._replace(sizes=sizes, places=places)


def _equal(spec: object, what: str, ranks: Sequence[int]) -> EdgeBlocks:
    """Return the blocks of a buffer that holds one for each neighbour, all of one size."""
    whole = parse(_no_in_place(spec, what), what, len(ranks))
    count, left = divmod(whole.count, len(ranks) or 1)
    if left:
        raise ArgumentError(
            f"{what} holds {whole.describe()}, which {len(ranks)} neighbours cannot share evenly"
        )
    counts = tuple(count * (rank >= 0) for rank in ranks)
    return EdgeBlocks.of(Vector(whole, counts, tuple(k * count for k in range(len(ranks)))))


def _counted(spec: object, what: str, ranks: Sequence[int]) -> EdgeBlocks:
    """Return the blocks of a buffer that are given by counts."""
    spec, received = _no_in_place(spec, what), what == "recvbuf"
    if not ranks:
        data, *_ = parts_of(spec, what, WRONG)
        return EdgeBlocks([], parse(data, what).device)
    left_out = {k for k, rank in enumerate(ranks) if rank < 0}
    return EdgeBlocks.of(Vector.of(spec, what, len(ranks), received, left_out))


def _same(spec: object, what: str, ranks: Sequence[int]) -> EdgeBlocks:
    """Return the whole buffer for each neighbour."""
    whole = parse(_no_in_place(spec, what), what)
    return EdgeBlocks([whole] * len(ranks), whole.device)


def _typed(spec: object, what: str, ranks: Sequence[int]) -> EdgeBlocks:
    """Return the blocks of a buffer that have types of their own."""
    spec = _no_in_place(spec, what)
    if not ranks:
        data, *_ = parts_of(spec, what, TYPED)
        return EdgeBlocks([], parse(data, what).device)
    left_out = {k for k, rank in enumerate(ranks) if rank < 0}
    each = typed_blocks(spec, what, len(ranks), left_out)
    return EdgeBlocks(each, any(block.device for block in each))


READERS = {Form.EQUAL: _equal, Form.COUNTED: _counted, Form.TYPED: _typed}


def message_of(edges: Edges, same: bool, form: Form, sendbuf: object, recvbuf: object) -> Message:
    """Make the message of a call with neighbours; the arguments are as for `Edges.packed`."""
    read = READERS[form]
    blocks = (_same if same else read)(sendbuf, "sendbuf", edges.targets)
    into = read(recvbuf, "recvbuf", edges.sources)
    for block in into.each:
        _writable(block)
    send, recv = edges.sent(blocks), edges.received(into)
    given, taken = send.sizes[edges.rank], recv.sizes[edges.rank]
    if given != taken:
        raise ArgumentError(
            f"a rank's blocks for itself: {given} bytes are sent, recvbuf has {taken} for them"
        )
    if _meet(blocks.each, into.each):
        for block in blocks.each:
            if block.count:
                _apart(block, into.each)
    neighbours = edges.of_all(same)
    return _message("alltoallv", 0, send, recv, neighbours is None, neighbours)
