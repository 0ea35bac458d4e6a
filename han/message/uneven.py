"""The messages of collectives whose ranks have blocks of different sizes.

All ranks know the sizes of all blocks, which are part of the signature; blocks that are all alike
make the call that has one size for all. Where a rank wants its blocks to lie is its own matter:
what is not one behind the other, in the order of ranks, is received beside and put in its place
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentError, ArgumentTypeError
from han.message.blocks import _Bytes, _check_apart, _message, allgather, scattered
from han.message.buffers import Buffer, parse
from han.message.message import (
    Hook,
    Message,
    _no_in_place,
    _packer,
    _reduction,
    _unpacker,
    _writable,
)
from han.tasks.signature import Signature


def allgatherv(comm: MPI.Comm, sendbuf: object, recvbuf: object) -> Message:
    """Make the message of an allgather of blocks of different sizes."""
    rank, in_place = comm.Get_rank(), sendbuf is MPI.IN_PLACE
    into = Vector.of(_no_in_place(recvbuf, "recvbuf"), "recvbuf", comm.Get_size())
    _writable(into.buffer)
    lengths = [n * into.buffer.size for n in into.counts]
    recv = into.as_bytes(rank if in_place else None)
    if in_place:
        start = sum(lengths[:rank])
        send = replace(recv, address=recv.address + start, keep=(), begin=None, end=None)
    else:
        buffer = parse(sendbuf, "sendbuf")
        _expect_bytes(buffer, lengths[rank], f"block {rank} of recvbuf ({into.describe(rank)})")
        send = _Bytes.of(buffer, packs=True)
        if recv.address != into.buffer.address:  # there may be room for it between the blocks
            for r in range(comm.Get_size()):
                _check_apart(buffer, into.block(r))
    message = _message("allgather", max(lengths), 0, send, recv)
    return replace(message, signature=_uneven(message.signature, lengths), plain=None)


def reduce_scatter(
    comm: MPI.Comm, sendbuf: object, recvbuf: object, counts: object, op: object
) -> Message:
    """Make the message of a reduce-scatter; in place, `recvbuf` holds all blocks before it."""
    size, rank, in_place = comm.Get_size(), comm.Get_rank(), sendbuf is MPI.IN_PLACE
    numbers = _numbers(counts, "recvcounts", size)
    recv = _writable(parse(_no_in_place(recvbuf, "recvbuf"), "recvbuf"))
    send = recv if in_place else parse(sendbuf, "sendbuf")
    _expect_elements(send, sum(numbers), f"the sum of recvcounts {_few(numbers)}")
    if not in_place:
        _expect_elements(recv, numbers[rank], f"recvcounts[{rank}]")
        _check_apart(send, recv)
    if len(set(numbers)) == 1 and not in_place:  # which this call's other ranks need not be
        return scattered(send, recv, op, size)
    operand = replace(send, count=numbers[rank])
    message = _reduction("reduce_scatter", operand, operand if in_place else recv, op, 0)
    if in_place and message.end is None:
        message = _beside(message, operand)
    return replace(message, signature=_uneven(message.signature, numbers), plain=None)


def recvcounts(comm: MPI.Comm, recvbuf: object, counts: np.ndarray[Any, Any]) -> Message:
    """Make the message in which every rank tells how many elements `recvbuf` takes."""
    recv = parse(_no_in_place(recvbuf, "recvbuf"), "recvbuf")
    return allgather(comm, np.array([recv.count], counts.dtype), counts)


def _uneven(signature: Signature, counts: Sequence[int]) -> Signature:
    """Give a signature the number of elements in each block, unless all are alike."""
    if len(set(counts)) == 1:
        return signature
    return replace(signature, count=max(counts), counts=tuple(counts))


def _beside(message: Message, recv: Buffer) -> Message:
    """Receive beside the user's memory: there the result lies over what is still to be combined."""
    stage = np.empty(max(recv.span, 1), np.uint8)

    def end() -> None:
        _memory(recv)[:] = stage[: recv.span]

    end = end if recv.span else _nothing
    return replace(message, recv=stage.ctypes.data, keep=(*message.keep, stage), end=end)


# ---- buffers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vector:
    """A buffer with a block for each rank: so many elements each, from so many elements on."""

    buffer: Buffer
    counts: tuple[int, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, spec: object, what: str, size: int) -> Vector:
        """Normalise a vector argument in every spelling that mpi4py takes.

        Those are an array, ``[data, type]``, ``[data, counts]``,
        ``[data, (counts, displacements)]``, both with a type, and
        ``[data, counts, displacements, type]``. Without counts the elements are dealt out evenly,
        the first ranks get what is left over; without displacements blocks lie one behind the
        other. Raises ArgumentError.
        """
        data, counts, starts, datatype = _parts(spec, what)
        if counts is None:
            whole = parse(data if datatype is None else [data, datatype], what)
            n, left = divmod(whole.count, size)
            numbers = tuple(n + (r < left) for r in range(size))
        else:
            numbers = _numbers(counts, f"{what}: counts", size)
        places = _places(starts, numbers, what)
        reach = max((s + n for s, n in zip(places, numbers, strict=True) if n), default=0)
        given = [data, reach] if datatype is None else [data, reach, datatype]
        return cls(parse(given, what), numbers, places)

    @property
    def joined(self) -> bool:
        """Whether blocks lie one behind the other, in the order of ranks."""
        return all(
            s == at or not n
            for s, n, at in zip(
                self.starts, self.counts, accumulate(self.counts, initial=0), strict=False
            )
        )

    def describe(self, block: int) -> str:
        """``16 x float64``."""
        return self.block(block).describe()

    def block(self, number: int) -> Buffer:
        """A rank's block."""
        at = self.buffer.address + self.starts[number] * self.buffer.extent
        return replace(self.buffer, address=at, count=self.counts[number])

    def as_bytes(self, sends: int | None) -> _Bytes:
        """Take it as what is received; in place, as what block `sends` is sent from too."""
        buffer = self.buffer
        if buffer.dense and self.joined:
            return _Bytes(buffer, buffer.address, (buffer.owner,))
        packed = np.empty(sum(self.counts) * buffer.size, np.uint8)
        ends = accumulate((n * buffer.size for n in self.counts), initial=0)
        parts = [packed[a:b] for a, b in pairwise(ends)]
        blocks = [self.block(r) for r in range(len(parts))]
        keep = (buffer.owner, packed)
        begin = None if sends is None else _mover(blocks[sends], parts[sends], packs=True)
        end = _all(_mover(*pair, packs=False) for pair in zip(blocks, parts, strict=True))
        return _Bytes(replace(buffer, count=0), packed.ctypes.data, keep, begin, end)


def _mover(buffer: Buffer, packed: np.ndarray[Any, Any], packs: bool) -> Hook:
    """Pack a buffer or unpack it; bytes that lie densely need no type, which MPI may not have."""
    if not buffer.dense:
        return _packer(buffer, packed) if packs else _unpacker(buffer, packed)
    if not packed.size:
        return _nothing

    def move() -> None:
        if packs:
            packed[:] = _memory(buffer)
        else:
            _memory(buffer)[:] = packed

    return move


def _memory(buffer: Buffer) -> np.ndarray[Any, Any]:
    memory = MPI.memory.fromaddress(buffer.address, buffer.span)
    return np.asarray(memory).view(np.uint8)


def _all(hooks: Iterable[Hook]) -> Hook:
    todo = [hook for hook in hooks if hook is not _nothing]

    def run() -> None:
        for hook in todo:
            hook()

    return run


def _nothing() -> None:
    """Do nothing."""


def _parts(spec: object, what: str) -> tuple[Any, Any, Any, Any]:
    """Take a vector argument apart: data, counts, displacements, type."""
    if not isinstance(spec, list | tuple):
        return spec, None, None, None
    counts: Any = None
    starts: Any = None
    datatype: Any = None
    match list(spec):
        case [data]:
            pass
        case [data, (MPI.Datatype() | str()) as datatype]:
            pass
        case [data, counts]:
            pass
        case [data, counts, datatype]:
            pass
        case [data, counts, starts, datatype]:
            return data, counts, starts, datatype
        case _:
            raise ArgumentTypeError(
                f"{what}: a list of {len(spec)} is no buffer of blocks; expected [data, counts], "
                "[data, counts, type], [data, (counts, displacements), type] or "
                "[data, counts, displacements, type]"
            )
    if isinstance(counts, tuple):
        if len(counts) != 2:
            raise ArgumentTypeError(
                f"{what}: a tuple is (counts, displacements), not {len(counts)} values; "
                "spell counts as a list"
            )
        counts, starts = counts
    return data, counts, starts, datatype


def _numbers(numbers: Any, what: str, size: int) -> tuple[int, ...]:
    """Take one whole number for each rank, or the same for all."""
    if hasattr(numbers, "__index__") and np.ndim(numbers) == 0:
        numbers = [numbers] * size
    found = _whole(numbers, what)
    if len(found) != size:
        raise ArgumentError(f"{what}: {len(found)} numbers, {size} expected, one for each rank")
    if found and min(found) < 0:
        raise ArgumentError(f"{what}: {min(found)} is negative")
    return found


def _whole(numbers: Any, what: str) -> tuple[int, ...]:
    try:
        return tuple(int(n.__index__()) for n in numbers)
    except (AttributeError, TypeError):
        raise ArgumentTypeError(
            f"{what}: {numbers!r} are no whole numbers, one for each rank"
        ) from None


def _places(starts: Any, counts: Sequence[int], what: str) -> tuple[int, ...]:
    """Return where each block begins; refuse blocks that overlap."""
    if starts is None:
        return tuple(accumulate(counts, initial=0))[:-1]
    if hasattr(starts, "__index__") and np.ndim(starts) == 0:
        starts = [r * int(starts) for r in range(len(counts))]
    places = _numbers(starts, f"{what}: displacements", len(counts))
    taken = sorted((s, s + n, r) for r, (s, n) in enumerate(zip(places, counts, strict=True)) if n)
    for (_, stop, first), (start, _, second) in pairwise(taken):
        if start < stop:
            raise ArgumentError(
                f"{what}: the blocks of ranks {first} and {second} overlap: one ends at element "
                f"{stop}, the other begins at {start}"
            )
    return places


def _few(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"({shown}{' ...' if len(numbers) > 8 else ''})"


def _expect_elements(buffer: Buffer, count: int, why: str) -> None:
    if buffer.count != count:
        raise ArgumentError(
            f"{buffer.what} holds {buffer.describe()}, {count} elements expected: {why}"
        )


def _expect_bytes(buffer: Buffer, nbytes: int, why: str) -> None:
    if buffer.count * buffer.size != nbytes:
        raise ArgumentError(
            f"{buffer.what} holds {buffer.count * buffer.size} bytes ({buffer.describe()}), "
            f"{nbytes} expected: {why}"
        )
