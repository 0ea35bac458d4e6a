"""Messages of Gatherv, Scatterv, Alltoallv and Alltoallw.

A rank knows the sizes of the blocks that it sends or receives, and of no others. They are part of
the message, and not of its signature: see :mod:`han.tasks.own_sizes`. Blocks are sent from, and
received into, the places where they are; elements with gaps are packed before a run and unpacked
after it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentError, ArgumentTypeError
from han.message.blocks import _check_apart
from han.message.buffers import Buffer, parse, placed
from han.message.message import CallKey, Message, _no_in_place, _writable, in_place, root_of
from han.message.packing import WRAP, Hook, run_start
from han.message.uneven import Vector, _all, _mover, _numbers
from han.model.program import AT_MOST
from han.tasks.neighbours import Neighbours
from han.tasks.own_sizes import own_sizes

TYPED = (
    "no buffer of blocks with types of their own; expected [data, types], "
    "[data, (counts, displacements), types] or [data, counts, displacements, types]"
)
# In place of a kind of elements, as other plans serve such a call: native/python/py_own_blocks.c
SINGLY, SHARED, ONE_FOR_ALL = -1, -2, -3


def kind_of(neighbours: Neighbours) -> int:
    """Return the kind of calls with neighbours that all ranks know."""
    return ONE_FOR_ALL if neighbours.same else SHARED


class Side(NamedTuple):
    """The blocks that a rank sends, or those that it receives: one for each rank.

    `places` are in bytes from `address`. `hook` packs them before a run, or unpacks them after it.
    """

    address: int
    sizes: list[int]
    places: list[int]
    keep: tuple[object, ...] = ()
    hook: Hook | None = None
    device: bool = False

    def only(self, rank: int, size: int) -> Side:
        """Return these blocks, of which there is one, as that of one of `size` ranks."""
        sizes, places = [0] * size, [0] * size
        sizes[rank], places[rank] = self.sizes[0], self.places[0]
        return self._replace(sizes=sizes, places=places)

    def without(self, rank: int) -> Side:
        """Return the same without the block of one rank, which stays in its place."""
        return self._replace(sizes=[n * (r != rank) for r, n in enumerate(self.sizes)])


def _nothing(size: int) -> Side:
    return Side(0, [0] * size, [0] * size)


def _side(blocks: Sequence[Buffer], packs: bool) -> Side:
    """Return the blocks of a buffer; those whose data is not one run of bytes are packed."""
    first = blocks[0]
    if first.device:
        sizes = [b.count * b.size for b in blocks]
        places = [b.address - first.address for b in blocks]
        return Side(first.address, sizes, places, (first.owner,), None, True)
    return _laid(blocks, [run_start(b) for b in blocks], packs)


def _packed(blocks: Sequence[Buffer], packs: bool) -> Side:
    """Return packed copies of the blocks of a buffer, made before a run, or unpacked after it."""
    return _laid(blocks, [None] * len(blocks), packs)


def _laid(blocks: Sequence[Buffer], runs: Sequence[int | None], packs: bool) -> Side:
    """Return blocks where their data is, and packed copies of the others.

    `runs`: where the data of each block begins in it; None: it is packed.
    """
    sizes = [b.count * b.size for b in blocks]
    apart = [n * (run is None) for n, run in zip(sizes, runs, strict=True)]
    packed, ends = np.empty(sum(apart), np.uint8), accumulate(apart, initial=0)
    starts = [b.address + (run or 0) for b, run in zip(blocks, runs, strict=True)]
    hooks = []
    for k, (at, end) in enumerate(pairwise(ends)):
        if runs[k] is None:
            starts[k] = packed.ctypes.data + at
            hooks.append(_mover(blocks[k], packed[at:end], packs=packs))
    places = [start - starts[0] for start in starts]
    hook = _all(hooks) if hooks else None
    return Side(starts[0], sizes, places, (blocks[0].owner, packed), hook)


def _message(
    collective: str, root: int, send: Side, recv: Side, singly: bool = False,
    neighbours: Neighbours | None = None,
) -> Message:  # fmt: skip
    signature = own_sizes(collective, root, singly, neighbours)
    kind = SINGLY * singly if neighbours is None else kind_of(neighbours)
    device = send.device or recv.device
    places = [place % WRAP for place in (*send.places, *recv.places)]
    return Message(
        replace(signature, device=device) if device else signature,
        send.address,
        recv.address,
        (*send.keep, *recv.keep),
        send.hook,
        recv.hook,
        key=None if device else CallKey(signature.nbytes, kind),
        own=array("Q", (*send.sizes, *recv.sizes, *places)).tobytes(),
    )


def _one(spec: object, what: str, received: bool = False) -> Side:
    """Return the only block of a buffer."""
    buffer = parse(spec, what)
    return _side([_writable(buffer) if received else buffer], packs=not received)


def _blocks(spec: object, what: str, size: int) -> list[Buffer]:
    """Return the block of each rank in a buffer."""
    received = what == "recvbuf"
    vector = Vector.of(_no_in_place(spec, what), what, size, disjoint=received)
    if received:
        _writable(vector.buffer)
    return [vector.block(rank) for rank in range(size)]


def typed_blocks(
    spec: object, what: str, size: int, left_out: Collection[int] = ()
) -> list[Buffer]:
    """Return the blocks of a buffer that have types of their own.

    `spec` is ``[data, counts, displacements, types]``, ``[data, (counts, displacements), types]``
    or ``[data, types]``, with displacements in bytes. Without numbers each block is one element
    where the data begins. No data moves in the blocks that are `left_out`.
    """
    items = spec if isinstance(spec, list | tuple) else ()
    match list(items):
        case [data, types]:
            counts, starts = None, None
        case [data, (counts, starts), types] | [data, counts, starts, types]:
            pass
        case _:
            raise ArgumentTypeError(f"{what}: {TYPED}")
    if data is MPI.BOTTOM and (counts is None or starts is None):
        raise ArgumentError(f"{what}: MPI.BOTTOM needs counts and displacements")
    if not isinstance(types, list | tuple) or len(types) != size:
        raise ArgumentError(f"{what}: {types!r} is no list of {size} types, one for each block")
    numbers = _numbers(1 if counts is None else counts, f"{what}: counts", size)
    places = _numbers(0 if starts is None else starts, f"{what}: displacements", size, signed=True)
    numbers = tuple(0 if k in left_out else n for k, n in enumerate(numbers))
    return [placed(data, *block, what) for block in zip(numbers, places, types, strict=True)]


def _same(whole: str, number: int, given: int, block: int) -> None:
    """Raise ArgumentError unless a rank's block for itself has one size on both sides."""
    if given != block:
        raise ArgumentError(
            f"a rank's block for itself: {given} bytes are sent, and block {number} of {whole} has "
            f"{block}"
        )


def gatherv(comm: MPI.Comm, sendbuf: object, recvbuf: object, root: object) -> Message:
    """Make the message of a gather of blocks, whose sizes the root and their senders know."""
    root, size = root_of(comm, root), comm.Get_size()
    if comm.Get_rank() != root:
        if sendbuf is MPI.IN_PLACE:
            raise ArgumentError(f"sendbuf: MPI.IN_PLACE is for the root ({root}) only")
        return _message("gatherv", root, _one(sendbuf, "sendbuf").only(root, size), _nothing(size))
    blocks = _blocks(recvbuf, "recvbuf", size)
    recv = _side(blocks, packs=False)
    if in_place(sendbuf):
        return _message("gatherv", root, _nothing(size), _in_its_place(recv, blocks, root))
    send = _one(sendbuf, "sendbuf").only(root, size)
    _same("recvbuf", root, send.sizes[root], recv.sizes[root])
    _apart(parse(sendbuf, "sendbuf"), blocks)
    return _message("gatherv", root, send, recv)


def gather_up_to(comm: MPI.Comm, sendbuf: object, recvbuf: object, root: object) -> Message:
    """Make the message of a gather of blocks that fill equal parts of `recvbuf` or less."""
    root, size = root_of(comm, root), comm.Get_size()
    send = _one(sendbuf, "sendbuf").only(root, size)
    if comm.Get_rank() != root:
        return _message("gatherv", root, send, _nothing(size), singly=True)
    whole = _one(recvbuf, "recvbuf", True)
    most = whole.sizes[0] // size
    sizes = [send.sizes[root] if r == root else most | AT_MOST for r in range(size)]
    places = [r * most for r in range(size)]
    recv = whole._replace(sizes=sizes, places=places)
    return _message("gatherv", root, send, recv, singly=True)


def scatterv(comm: MPI.Comm, sendbuf: object, recvbuf: object, root: object) -> Message:
    """Make the message of a scatter of blocks, whose sizes the root and their receivers know."""
    root, size = root_of(comm, root), comm.Get_size()
    if comm.Get_rank() != root:
        if recvbuf is MPI.IN_PLACE:
            raise ArgumentError(f"recvbuf: MPI.IN_PLACE is for the root ({root}) only")
        recv = _one(recvbuf, "recvbuf", True).only(root, size)
        return _message("scatterv", root, _nothing(size), recv)
    blocks = _blocks(sendbuf, "sendbuf", size)
    send = _side(blocks, packs=True)
    if in_place(recvbuf):
        return _message("scatterv", root, send.without(root), _nothing(size))
    recv = _one(recvbuf, "recvbuf", True).only(root, size)
    _same("sendbuf", root, recv.sizes[root], send.sizes[root])
    _apart(parse(recvbuf, "recvbuf"), blocks)
    return _message("scatterv", root, send, recv)


def alltoallv(comm: MPI.Comm, sendbuf: object, recvbuf: object) -> Message:
    """Make the message of an alltoall of blocks whose sizes only two ranks know."""
    size = comm.Get_size()
    into = _blocks(recvbuf, "recvbuf", size)
    return _exchanged(comm, None if in_place(sendbuf) else _blocks(sendbuf, "sendbuf", size), into)


def _exchanged(comm: MPI.Comm, blocks: list[Buffer] | None, into: list[Buffer]) -> Message:
    """Make the message of an alltoall; without blocks to send it is in place."""
    rank, recv = comm.Get_rank(), _side(into, packs=False)
    if blocks is None:  # copies of the blocks in place of which others are received
        return _message("alltoallv", 0, _packed(into, packs=True), recv)
    send = _side(blocks, packs=True)
    _same("recvbuf", rank, send.sizes[rank], recv.sizes[rank])
    if _meet(blocks, into):
        for block in blocks:
            if block.count:
                _apart(block, into)
    return _message("alltoallv", 0, send, recv)


def alltoallw(comm: MPI.Comm, sendbuf: object, recvbuf: object) -> Message:
    """Make the message of an alltoall of blocks that have types of their own."""
    size = comm.Get_size()
    into = [_writable(b) for b in typed_blocks(_no_in_place(recvbuf, "recvbuf"), "recvbuf", size)]
    blocks = None if in_place(sendbuf) else typed_blocks(sendbuf, "sendbuf", size)
    return _exchanged(comm, blocks, into)


def _in_its_place(recv: Side, blocks: list[Buffer], root: int) -> Side:
    """Return what the root receives where its own block is in place; it is not unpacked there."""
    if recv.hook is None:
        return recv.without(root)
    others = [b if r != root else replace(b, count=0) for r, b in enumerate(blocks)]
    return _side(others, packs=False)


def _meet(some: Sequence[Buffer], others: Sequence[Buffer]) -> bool:
    """Return whether any bytes between the first and the last ones of both are the same."""
    (a, b), (c, d) = _bounds(some), _bounds(others)
    return max(a, c) < min(b, d)


def _bounds(blocks: Sequence[Buffer]) -> tuple[int, int]:
    bounds = [block.bounds for block in blocks if block.count and not block.device]
    return min((a for a, _ in bounds), default=0), max((b for _, b in bounds), default=0)


def _apart(one: Buffer, blocks: Sequence[Buffer]) -> None:
    """Raise ArgumentError if a buffer overlaps some blocks."""
    for block in blocks:
        if block.count and not one.device:
            _check_apart(one, block)
