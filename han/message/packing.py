"""Packing: elements with gaps become dense bytes, and dense bytes such elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from han.message.buffers import Buffer

Hook = Callable[[], None]


def packer(buffer: Buffer, packed: np.ndarray[Any, Any]) -> Hook:
    """Return a function that copies the data of a buffer to `packed`."""

    def pack(memory: MPI.buffer, datatype: MPI.Datatype) -> None:
        datatype.Pack(memory, packed, 0, MPI.COMM_SELF)

    return _on_memory(buffer, pack)


def unpacker(buffer: Buffer, packed: np.ndarray[Any, Any]) -> Hook:
    """Return a function that copies `packed` to the data of a buffer."""

    def unpack(memory: MPI.buffer, datatype: MPI.Datatype) -> None:
        datatype.Unpack(packed, 0, memory, MPI.COMM_SELF)

    return _on_memory(buffer, unpack)


def _on_memory(buffer: Buffer, act: Callable[[MPI.buffer, MPI.Datatype], None]) -> Hook:
    """Return a function that calls `act` with the memory of a buffer, and the type of its elements.

    mpi4py infers the number of elements from the size of the memory, and accepts no MPI.BOTTOM. So
    a type with addresses, or without an extent, is replaced by one for all elements.
    """
    if not (buffer.count and buffer.size):
        return nothing
    if buffer.address > 0 and buffer.extent > 0:
        return partial(act, MPI.memory.fromaddress(buffer.address, buffer.span), buffer.datatype)
    start, stop = buffer.bounds

    def on_all() -> None:
        moved = buffer.datatype.Create_hindexed([buffer.count], [buffer.address - start])
        sized = moved.Create_resized(0, stop - start).Commit()
        try:
            act(MPI.memory.fromaddress(start, stop - start), sized)
        finally:
            sized.Free()
            moved.Free()

    return on_all


def nothing() -> None:
    """Do nothing."""
