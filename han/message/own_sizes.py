"""Messages of Gatherv, Scatterv, Alltoallv and Alltoallw.

A rank knows the sizes of the blocks that it sends or receives, and of no others. They are part of
the message, and not of its signature: see :mod:`han.tasks.own_sizes`. Blocks are sent from, and
received into, the places where they are; elements with gaps are packed before a run and unpacked
after it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentError, ArgumentTypeError
from han.message.blocks import _check_apart
from han.message.buffers import Buffer, parse
from han.message.message import CallKey, Message, _no_in_place, _writable, in_place, root_of
from han.message.packing import Hook
from han.message.uneven import Vector, _all, _mover, _numbers
from han.tasks.own_sizes import own_sizes

WRAP = 1 << 64  # places may lie before the address of a buffer


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
    """Return the blocks of some buffers; those with gaps are packed, and the others with them."""
    first, sizes = blocks[0], [b.count * b.size for b in blocks]
    keep = tuple({id(b.owner): b.owner for b in blocks}.values())
    device = any(b.device for b in blocks)
    if device or all(b.dense or not b.count for b in blocks):
        places = [b.address - first.address for b in blocks]
        return Side(first.address, sizes, places, keep, None, device)
    packed = np.empty(sum(sizes), np.uint8)
    places = [0, *accumulate(sizes)][:-1]
    parts = [packed[p : p + n] for p, n in zip(places, sizes, strict=True)]
    hook = _all([_mover(*pair, packs=packs) for pair in zip(blocks, parts, strict=True)])
    return Side(packed.ctypes.data, sizes, places, (*keep, packed), hook)


def _copied(blocks: Sequence[Buffer]) -> Side:
    """Return copies of blocks, in place of which others are received."""
    sizes = [b.count * b.size for b in blocks]
    packed, places = np.empty(sum(sizes), np.uint8), [0, *accumulate(sizes)][:-1]
    parts = [packed[p : p + n] for p, n in zip(places, sizes, strict=True)]
    hook = _all([_mover(*pair, packs=True) for pair in zip(blocks, parts, strict=True)])
    return Side(packed.ctypes.data, sizes, places, (packed,), hook)


def _message(collective: str, root: int, send: Side, recv: Side) -> Message:
    signature = own_sizes(collective, root)
    device = send.device or recv.device
    places = [place % WRAP for place in (*send.places, *recv.places)]
    return Message(
        replace(signature, device=device) if device else signature,
        send.address,
        recv.address,
        (*send.keep, *recv.keep),
        send.hook,
        recv.hook,
        key=None if device else CallKey(signature.nbytes),
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
    return _exchange(comm, sendbuf, _blocks(recvbuf, "recvbuf", size),
                     lambda: _blocks(sendbuf, "sendbuf", size))  # fmt: skip


def alltoallw(comm: MPI.Comm, sendbuf: object, recvbuf: object) -> Message:
    """Make the message of an alltoall whose blocks have types of their own."""
    size = comm.Get_size()
    return _exchange(comm, sendbuf, _typed(recvbuf, "recvbuf", size),
                     lambda: _typed(sendbuf, "sendbuf", size))  # fmt: skip


def _exchange(
    comm: MPI.Comm, sendbuf: object, into: list[Buffer], given: Callable[[], list[Buffer]]
) -> Message:
    recv, rank = _side(into, packs=False), comm.Get_rank()
    if in_place(sendbuf):
        return _message("alltoallv", 0, _copied(into), recv)
    blocks = given()
    send = _side(blocks, packs=True)
    _same("recvbuf", rank, send.sizes[rank], recv.sizes[rank])
    if _meet(blocks, into):
        for block in blocks:
            if block.count:
                _apart(block, into)
    return _message("alltoallv", 0, send, recv)


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


def _typed(spec: Any, what: str, size: int) -> list[Buffer]:
    """Return the blocks of ``[data, counts, displacements, types]``; displacements are in bytes.

    ``[data, (counts, displacements), types]`` and ``[data, types]`` mean the same as in mpi4py.
    """
    data, counts, places, types = _typed_parts(_no_in_place(spec, what), what, size)
    absolute = data is MPI.BOTTOM
    whole = parse([b"" if absolute else data, MPI.BYTE], what)
    if absolute:  # displacements are addresses
        whole = replace(whole, address=0, count=0)
    elif what == "recvbuf":
        _writable(whole)
    rows = zip(counts, places, types, strict=True)
    blocks = [_typed_block(whole, what, *row, trusted=absolute) for row in rows]
    if what == "recvbuf":
        _check_disjoint(blocks)
    return blocks


def _check_disjoint(blocks: Sequence[Buffer]) -> None:
    """Raise ArgumentError if blocks without gaps overlap, into which data is received."""
    found = sorted((*b.bounds, r) for r, b in enumerate(blocks) if b.count and b.dense)
    for (_, stop, first), (start, _, second) in pairwise(found):
        if start < stop:
            raise ArgumentError(f"recvbuf: the blocks of ranks {first} and {second} overlap")


def _typed_block(
    whole: Buffer, what: str, count: int, place: int, kind: MPI.Datatype, trusted: bool
) -> Buffer:
    """Return a block of a type of its own in a buffer, which must hold it, if it is not trusted."""
    if not count:  # its type may be none at all
        return replace(whole, count=0)
    if not isinstance(kind, MPI.Datatype):
        raise ArgumentTypeError(f"{what}: {kind!r} is no MPI.Datatype")
    lower, extent = kind.Get_true_extent()
    step = kind.Get_extent()[1]
    first = place + lower + min(0, (count - 1) * step)
    last = place + lower + extent + max(0, (count - 1) * step)
    if extent and not trusted and not (first >= 0 and last <= whole.span):
        raise ArgumentError(f"{what}: a block of bytes {first} to {last} of {whole.span} bytes")
    one = parse([b"", 0, kind], what)
    return replace(one, address=whole.address + place, count=count, owner=whole.owner)


def _typed_parts(spec: Any, what: str, size: int) -> tuple[Any, Any, Any, Any]:
    if len(spec) == 4:
        data, counts, places, types = spec
    elif len(spec) == 3:
        data, pair, types = spec
        counts, places = pair
    elif len(spec) == 2:
        (data, types), counts, places = spec, None, None
    else:
        raise ArgumentError(
            f"{what}: {len(spec)} items, expected [data, counts, displacements, types]"
        )
    if data is MPI.BOTTOM and (counts is None or places is None):
        raise ArgumentError(f"{what}: MPI.BOTTOM needs counts and displacements")
    counts = [1] * size if counts is None else counts
    places = [0] * size if places is None else places
    if isinstance(types, str | MPI.Datatype):
        raise ArgumentTypeError(f"{what}: {types!r}: a type for each rank expected")
    numbers = _numbers(counts, f"{what}: counts", size)
    at = _numbers(places, f"{what}: displacements", size, signed=True)
    if len(types) != size:
        raise ArgumentError(f"{what}: {len(types)} types, one for each of {size} ranks expected")
    return data, numbers, at, types
