"""Messages of broadcasts, and of collectives whose buffers hold a block for each rank.

Data are moved as bytes. Elements with gaps are packed before a run and unpacked after it. With
MPI.IN_PLACE this rank's block is already at its place in the other buffer, and is sent from or
received into that place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentError
from han.message.buffers import Buffer, parse
from han.message.message import (
    CallKey,
    Message,
    _no_in_place,
    _reduction,
    _writable,
    in_place,
    root_of,
)
from han.message.packing import Hook, overlap, packer, unpacker
from han.tasks.signature import Signature


def bcast(comm: MPI.Comm, buf: object, root: object) -> Message:
    """Make the message of a broadcast."""
    root = root_of(comm, root)
    buffer = parse(_no_in_place(buf, "buf"), "buf")
    at_root = comm.Get_rank() == root
    moved = _Bytes.of(buffer if at_root else _writable(buffer), at_root, not at_root)
    return _message("bcast", moved.nbytes, root, moved, moved)


def gather(comm: MPI.Comm, sendbuf: object, recvbuf: object, root: object) -> Message:
    """Make the message of a gather; only the root's `recvbuf` is used."""
    root = root_of(comm, root)
    if comm.Get_rank() == root:
        return _collecting("gather", comm, sendbuf, recvbuf, root)
    if sendbuf is MPI.IN_PLACE:
        raise ArgumentError(f"sendbuf: MPI.IN_PLACE is for the root ({root}) only")
    send = _Bytes.of(parse(sendbuf, "sendbuf"), packs=True)
    return _message("gather", send.nbytes, root, send, None)


def allgather(comm: MPI.Comm, sendbuf: object, recvbuf: object) -> Message:
    """Make the message of an allgather."""
    return _collecting("allgather", comm, sendbuf, recvbuf, 0)


def _collecting(
    collective: str, comm: MPI.Comm, sendbuf: object, recvbuf: object, root: int
) -> Message:
    """Make the message of a rank that receives all blocks."""
    size, rank = comm.Get_size(), comm.Get_rank()
    buffer = _writable(parse(_no_in_place(recvbuf, "recvbuf"), "recvbuf", size))
    nbytes, there = _block(buffer, size), in_place(sendbuf)
    recv = _Bytes.of(buffer, packs=there, unpacks=True)
    if there:
        return _message(collective, nbytes, root, recv.block(rank, nbytes), recv)
    send = parse(sendbuf, "sendbuf")
    _expect(buffer, send.count * send.size, send, size)
    return _message(collective, nbytes, root, _Bytes.of(send, packs=True), recv)


def scatter(comm: MPI.Comm, sendbuf: object, recvbuf: object, root: object) -> Message:
    """Make the message of a scatter; only the root's `sendbuf` is used."""
    root = root_of(comm, root)
    if comm.Get_rank() != root:
        if recvbuf is MPI.IN_PLACE:
            raise ArgumentError(f"recvbuf: MPI.IN_PLACE is for the root ({root}) only")
        recv = _Bytes.of(_writable(parse(recvbuf, "recvbuf")), unpacks=True)
        return _message("scatter", recv.nbytes, root, None, recv)
    size = comm.Get_size()
    buffer = parse(_no_in_place(sendbuf, "sendbuf"), "sendbuf", size)
    nbytes, send = _block(buffer, size), _Bytes.of(buffer, packs=True)
    if in_place(recvbuf):
        return _message("scatter", nbytes, root, send, send.block(root, nbytes))
    into = _writable(parse(recvbuf, "recvbuf"))
    _expect(buffer, into.count * into.size, into, size)
    return _message("scatter", nbytes, root, send, _Bytes.of(into, unpacks=True))


def alltoall(comm: MPI.Comm, sendbuf: object, recvbuf: object) -> Message:
    """Make the message of an alltoall."""
    size, there = comm.Get_size(), in_place(sendbuf)
    buffer = _writable(parse(_no_in_place(recvbuf, "recvbuf"), "recvbuf", size))
    nbytes = _block(buffer, size)
    recv = _Bytes.of(buffer, packs=there, unpacks=True)
    if there:
        message = _message("alltoall", nbytes, 0, recv, recv)
        return replace(message, signature=replace(message.signature, in_place=True))
    send = parse(sendbuf, "sendbuf", size)
    _expect(buffer, _block(send, size), send, size)
    return _message("alltoall", nbytes, 0, _Bytes.of(send, packs=True), recv)


def reduce_scatter_block(comm: MPI.Comm, sendbuf: object, recvbuf: object, op: object) -> Message:
    """Make the message of a reduce-scatter of equal blocks.

    With MPI.IN_PLACE, `recvbuf` holds the operands of all blocks before the call.
    """
    size, there = comm.Get_size(), in_place(sendbuf)
    blocks = size if there else 1
    recv = _writable(parse(_no_in_place(recvbuf, "recvbuf"), "recvbuf", blocks))
    send = recv if there else parse(sendbuf, "sendbuf", size)
    _block(send, size)
    return scattered(send, recv, op, size)


def scattered(send: Buffer, recv: Buffer, op: object, size: int) -> Message:
    """Make the message of a reduce-scatter of equal blocks from parsed buffers.

    `send` is `recv` for MPI.IN_PLACE.
    """
    there = send is recv
    if not there:
        _check_apart(send, recv)
    operand = replace(send, count=send.count // size)
    message = _reduction("reduce_scatter", operand, operand if there else recv, op, 0, send)
    return replace(message, signature=replace(message.signature, in_place=there))


# ---- buffers as bytes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bytes:
    """A buffer as dense bytes: its own memory, or a packed copy.

    `begin` packs before a run, `end` unpacks after it; both are None for dense buffers.
    """

    buffer: Buffer
    address: int
    keep: tuple[object, ...]
    begin: Hook | None = None
    end: Hook | None = None

    @classmethod
    def of(cls, buffer: Buffer, packs: bool = False, unpacks: bool = False) -> _Bytes:
        """Return the bytes of a buffer that is read (`packs`), written (`unpacks`) or both."""
        if buffer.dense:
            return cls(buffer, buffer.address, (buffer.owner,))
        packed = np.empty(buffer.count * buffer.size, np.uint8)
        return cls(
            buffer,
            packed.ctypes.data,
            (buffer.owner, packed),
            packer(buffer, packed) if packs else None,
            unpacker(buffer, packed) if unpacks else None,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of data."""
        return self.buffer.count * self.buffer.size

    def block(self, rank: int, nbytes: int) -> _Bytes:
        """Return the block of one rank; the whole buffer is packed and kept alive by `self`."""
        return _Bytes(self.buffer, self.address + rank * nbytes, ())


def _message(
    collective: str, nbytes: int, root: int, send: _Bytes | None, recv: _Bytes | None
) -> Message:
    sides = [side for side in (send, recv) if side is not None]
    if send is not None and recv is not None and send.buffer is not recv.buffer:
        _check_apart(send.buffer, recv.buffer)
    device = any(side.buffer.device for side in sides)
    begin = next((side.begin for side in sides if side.begin), None)
    end = next((side.end for side in sides if side.end), None)
    return Message(
        Signature(collective, nbytes, root=root, device=device),
        0 if send is None else send.address,
        0 if recv is None else recv.address,
        tuple(kept for side in sides for kept in side.keep),
        begin,
        end,
        key=None if device else CallKey(nbytes),
    )


def _block(buffer: Buffer, size: int) -> int:
    """Return the bytes of one of `size` equal blocks; raise ArgumentError if they are not equal."""
    if buffer.count % size:
        raise ArgumentError(
            f"{buffer.what} holds {buffer.describe()}, not {size} equal blocks, one for "
            f"each rank: a multiple of {size} expected"
        )
    return buffer.count // size * buffer.size


def _expect(whole: Buffer, nbytes: int, one: Buffer, size: int) -> None:
    """Raise ArgumentError unless `whole` holds `size` blocks of `nbytes` bytes, as `one` has."""
    if whole.count * whole.size != size * nbytes:
        raise ArgumentError(
            f"{whole.what} holds {whole.count * whole.size} bytes ({whole.describe()}), "
            f"{size * nbytes} expected: {size} blocks of {nbytes} bytes, as in {one.what} "
            f"({one.describe()})"
        )


def _check_apart(send: Buffer, recv: Buffer) -> None:
    if overlap(send, recv):
        raise ArgumentError(
            "sendbuf and recvbuf overlap; pass MPI.IN_PLACE if the data is in its place already"
        )
