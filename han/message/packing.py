"""Packing: elements with gaps become dense bytes, and the reverse; buffers that overlap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from han.message.buffers import Buffer

Hook = Callable[[], object]


def packer(buffer: Buffer, packed: np.ndarray[Any, Any]) -> Hook:
    """Return a function that copies the data of a buffer to `packed`."""
    return _on_memory(
        buffer, lambda memory, kind: partial(kind.Pack, memory, packed, 0, MPI.COMM_SELF)
    )


def unpacker(buffer: Buffer, packed: np.ndarray[Any, Any]) -> Hook:
    """Return a function that copies `packed` to the data of a buffer."""
    return _on_memory(
        buffer, lambda memory, kind: partial(kind.Unpack, packed, 0, memory, MPI.COMM_SELF)
    )


def _on_memory(buffer: Buffer, make: Callable[[MPI.buffer, MPI.Datatype], Hook]) -> Hook:
    """Return what `make` makes of the memory of a buffer, and the type of its elements.

    mpi4py infers the number of elements from the size of the memory, and accepts no MPI.BOTTOM. So
    a type with addresses, or without an extent, is replaced by one for all elements.
    """
    if not (buffer.count and buffer.size):
        return nothing
    if buffer.address > 0 and buffer.extent > 0:
        return make(MPI.memory.fromaddress(buffer.address, buffer.span), buffer.datatype)
    start, stop = buffer.bounds

    def on_all() -> None:
        moved = buffer.datatype.Create_hindexed([buffer.count], [buffer.address - start])
        sized = moved.Create_resized(0, stop - start).Commit()
        try:
            make(MPI.memory.fromaddress(start, stop - start), sized)()
        finally:
            sized.Free()
            moved.Free()

    return on_all


def nothing() -> None:
    """Do nothing."""


Mask = np.ndarray[tuple[int], np.dtype[np.uint8]]


def overlap(one: Buffer, other: Buffer) -> bool:
    """Return whether a byte of data belongs to both buffers; gaps belong to none."""
    (a, b), (c, d) = one.bounds, other.bounds
    low, high = max(a, c), min(b, d)
    if low >= high or a == b or c == d:
        return False
    if one.dense and other.dense:
        return True
    return bool(np.any(_mask(one)[low - a : high - a] & _mask(other)[low - c : high - c]))


def _mask(buffer: Buffer) -> Mask:
    """Return 1 for each byte of data between the bounds of a buffer, 0 for each byte of a gap."""
    start, stop = buffer.bounds
    mask = np.ones(stop - start, np.uint8)
    if buffer.dense:
        return mask
    mask[:] = 0
    there = mask.ctypes.data + buffer.address - start
    moved = Buffer("mask", mask, there, buffer.count, buffer.datatype, "", buffer.extents)
    unpacker(moved, np.ones(buffer.count * buffer.size, np.uint8))()
    return mask
