"""Messages of collectives whose blocks differ in size.

All ranks know the sizes of all blocks, which are part of the signature. If all blocks are equal,
the message is that of the call with equal blocks. Each rank chooses the displacements of its
blocks. Blocks that are not contiguous in rank order are received into a temporary buffer and then
copied to their places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentError, ArgumentTypeError
from han.message.blocks import _Bytes, _check_apart, _message, allgather, scattered
from han.message.buffers import Buffer, parse, parts_of
from han.message.message import Message, _no_in_place, _reduction, _writable, in_place
from han.message.packing import Hook, nothing, packer, unpacker
from han.tasks.signature import Signature


def allgatherv(comm: MPI.Comm, sendbuf: object, recvbuf: object) -> Message:
    """Make the message of an allgather of blocks of different sizes."""
    rank, there = comm.Get_rank(), in_place(sendbuf)
    into = Vector.of(_no_in_place(recvbuf, "recvbuf"), "recvbuf", comm.Get_size())
    _writable(into.buffer)
    lengths = [n * into.buffer.size for n in into.counts]
    recv = into.as_bytes(rank if there else None)
    if there:
        start = sum(lengths[:rank])
        send = replace(recv, address=recv.address + start, keep=(), begin=None, end=None)
    else:
        buffer, mine = parse(sendbuf, "sendbuf"), into.block(rank).describe()
        _expect_bytes(buffer, lengths[rank], f"block {rank} of recvbuf ({mine})")
        send = _Bytes.of(buffer, packs=True)
        if recv.address != into.buffer.address:  # it may lie between the blocks
            for r in range(comm.Get_size()):
                _check_apart(buffer, into.block(r))
    message = _message("allgather", max(lengths), 0, send, recv)
    return replace(message, signature=_uneven(message.signature, lengths))


def reduce_scatter(
    comm: MPI.Comm, sendbuf: object, recvbuf: object, counts: object, op: object
) -> Message:
    """Make the message of a reduce-scatter of blocks of different sizes.

    `counts` holds the number of elements of each block. With MPI.IN_PLACE, `recvbuf` holds the
    operands of all blocks before the call.
    """
    size, rank, there = comm.Get_size(), comm.Get_rank(), in_place(sendbuf)
    numbers = _numbers(counts, "recvcounts", size)
    recv = _writable(parse(_no_in_place(recvbuf, "recvbuf"), "recvbuf"))
    send = recv if there else parse(sendbuf, "sendbuf")
    _expect_elements(send, sum(numbers), f"the sum of recvcounts {_few(numbers)}")
    if not there:
        _expect_elements(recv, numbers[rank], f"recvcounts[{rank}]")
        _check_apart(send, recv)
    if len(set(numbers)) == 1 and not there:  # other ranks may not be in place
        return scattered(send, recv, op, size)
    operand = replace(send, count=numbers[rank])
    message = _reduction("reduce_scatter", operand, operand if there else recv, op, 0, send)
    if there and message.end is None:
        message = _beside(message, operand)
    largest = max(numbers) * operand.extent
    key = message.key and message.key._replace(nbytes=largest)
    lengths = numbers if send.size else (0,) * size
    return replace(message, signature=_uneven(message.signature, lengths), key=key)


def recvcounts(comm: MPI.Comm, recvbuf: object, counts: np.ndarray[Any, Any]) -> Message:
    """Make the message of an allgather of the numbers of elements that the ranks receive."""
    recv = parse(_no_in_place(recvbuf, "recvbuf"), "recvbuf")
    return allgather(comm, np.array([recv.count], counts.dtype), counts)


def _uneven(signature: Signature, counts: Sequence[int]) -> Signature:
    """Add the number of elements of each block to a signature, unless all blocks are equal."""
    if len(set(counts)) == 1:
        return signature
    return replace(signature, count=max(counts), counts=tuple(counts))


def _beside(message: Message, recv: Buffer) -> Message:
    """Receive into a temporary buffer: in place, results would overwrite operands still in use."""
    stage = np.empty(max(recv.span, 1), np.uint8)

    def end() -> None:
        _memory(recv)[:] = stage[: recv.span]

    end = end if recv.span else nothing
    return replace(message, recv=stage.ctypes.data, keep=(*message.keep, stage), end=end)


# ---- buffers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vector:
    """A buffer with a block for each rank, given by counts and displacements in elements."""

    buffer: Buffer
    counts: tuple[int, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(
        cls,
        spec: object,
        what: str,
        size: int,
        disjoint: bool = True,
        left_out: Collection[int] = (),
    ) -> Vector:
        """Return the Vector of an argument; `what` names it in messages.

        `spec` is an array, ``[data, type]``, ``[data, counts]``,
        ``[data, (counts, displacements)]``, one of these two with a type, or
        ``[data, counts, displacements, type]``. Without counts the elements are divided evenly,
        and the first ranks get one more where a remainder is left. Without displacements the
        blocks are contiguous. No data moves in the blocks that are `left_out`. Raises
        ArgumentError, also for blocks that overlap and are to be `disjoint`.
        """
        data, counts, starts, datatype = _parts(spec, what)
        if counts is None:
            whole = parse(data if datatype is None else [data, datatype], what)
            n, left = divmod(whole.count, size)
            numbers = tuple(n + (r < left) for r in range(size))
        else:
            numbers = _numbers(counts, f"{what}: counts", size)
        places = _places(starts, numbers, what)
        numbers = tuple(0 if r in left_out else n for r, n in enumerate(numbers))
        reach = max((0, *(s + n for s, n in zip(places, numbers, strict=True) if n)))
        given = [data, reach] if datatype is None else [data, reach, datatype]
        before = max((-s for s, n in zip(places, numbers, strict=True) if n), default=0)
        buffer = parse(given, what, before=before)
        if buffer.size and disjoint:
            _check_disjoint(places, numbers, what)
        return cls(buffer, numbers, places)

    @property
    def joined(self) -> bool:
        """Whether the blocks are contiguous, in the order of ranks."""
        return all(
            s == at or not n
            for s, n, at in zip(
                self.starts, self.counts, accumulate(self.counts, initial=0), strict=False
            )
        )

    def block(self, number: int) -> Buffer:
        """Return the block of one rank."""
        at = self.buffer.address + self.starts[number] * self.buffer.extent
        return replace(self.buffer, address=at, count=self.counts[number])

    def as_bytes(self, sends: int | None) -> _Bytes:
        """Return the bytes that are received; in place, block `sends` of them is also sent."""
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
    """Return a function that packs a buffer or unpacks it.

    Dense bytes are copied by NumPy: MPI may have no type for them.
    """
    if not buffer.dense:
        return packer(buffer, packed) if packs else unpacker(buffer, packed)
    if not packed.size:
        return nothing

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
    todo = [hook for hook in hooks if hook is not nothing]

    def run() -> None:
        for hook in todo:
            hook()

    return run


WRONG = (
    "{} items are no buffer of blocks; expected [data, counts], [data, counts, type], "
    "[data, (counts, displacements), type] or [data, counts, displacements, type]"
)


def _parts(spec: Any, what: str) -> tuple[Any, Any, Any, Any]:
    """Return data, counts, displacements and type of a vector argument."""
    data, counts, starts, datatype = parts_of(spec, what, WRONG)
    if not isinstance(counts, tuple) or len(spec) == 4:
        return data, counts, starts, datatype
    if len(counts) != 2:
        raise ArgumentTypeError(
            f"{what}: a tuple is (counts, displacements), not {len(counts)} values; "
            "spell counts as a list"
        )
    return data, *counts, datatype


def _numbers(numbers: Any, what: str, size: int, signed: bool = False) -> tuple[int, ...]:
    """Return one whole number for each rank; a single number stands for all ranks."""
    if hasattr(numbers, "__index__") and np.ndim(numbers) == 0:
        numbers = [numbers] * size
    found = _whole(numbers, what)
    if len(found) != size:
        raise ArgumentError(f"{what}: {len(found)} numbers, {size} expected, one for each rank")
    if found and not signed and min(found) < 0:
        raise ArgumentError(f"{what}: {min(found)} is negative")
    return found


def _whole(numbers: Any, what: str) -> tuple[int, ...]:
    """Return the items 0, 1 ... of a sequence, as mpi4py and the look-up in C read it."""
    try:
        return tuple(int(numbers[k].__index__()) for k in range(len(numbers)))
    except (AttributeError, TypeError, LookupError, NotImplementedError):  # a view of two axes
        raise ArgumentTypeError(
            f"{what}: {numbers!r} does not hold a whole number for each rank"
        ) from None


def _places(starts: Any, counts: Sequence[int], what: str) -> tuple[int, ...]:
    """Return the displacement of each block."""
    if starts is None:
        return tuple(accumulate(counts, initial=0))[:-1]
    if hasattr(starts, "__index__") and np.ndim(starts) == 0:
        starts = [r * int(starts) for r in range(len(counts))]
    return _numbers(starts, f"{what}: displacements", len(counts), signed=True)


def _check_disjoint(places: Sequence[int], counts: Sequence[int], what: str) -> None:
    """Raise ArgumentError for blocks that overlap."""
    taken = sorted((s, s + n, r) for r, (s, n) in enumerate(zip(places, counts, strict=True)) if n)
    for (_, stop, first), (start, _, second) in pairwise(taken):
        if start < stop:
            raise ArgumentError(
                f"{what}: the blocks of ranks {first} and {second} overlap: one ends at element "
                f"{stop}, the other begins at {start}"
            )


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
