"""Packing: elements with gaps become dense bytes, and dense bytes such elements."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from han.message.buffers import Buffer

Hook = Callable[[], None]


def packer(buffer: Buffer, packed: np.ndarray[Any, Any]) -> Hook:
    """Return a function that copies the data of a buffer to `packed`."""

    def pack() -> None:
        with _described(buffer) as (memory, datatype):
            datatype.Pack(memory, packed, 0, MPI.COMM_SELF)

    return pack if buffer.count and buffer.size else nothing


def unpacker(buffer: Buffer, packed: np.ndarray[Any, Any]) -> Hook:
    """Return a function that copies `packed` to the data of a buffer."""

    def unpack() -> None:
        with _described(buffer) as (memory, datatype):
            datatype.Unpack(packed, 0, memory, MPI.COMM_SELF)

    return unpack if buffer.count and buffer.size else nothing


@contextlib.contextmanager
def _described(buffer: Buffer) -> Iterator[tuple[MPI.buffer, MPI.Datatype]]:
    """Yield the memory of a buffer, and a type for its elements relative to that memory.

    mpi4py infers the number of elements from the size of the memory, and accepts no MPI.BOTTOM. So
    a type with addresses, or without an extent, is replaced by one for all elements.
    """
    if buffer.address > 0 and buffer.extent > 0:
        yield MPI.memory.fromaddress(buffer.address, buffer.span), buffer.datatype
        return
    start, stop = buffer.bounds
    moved = buffer.datatype.Create_hindexed([buffer.count], [buffer.address - start])
    sized = moved.Create_resized(0, stop - start).Commit()
    try:
        yield MPI.memory.fromaddress(start, stop - start), sized
    finally:
        sized.Free()
        moved.Free()


def nothing() -> None:
    """Do nothing."""
