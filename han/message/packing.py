"""Packing: elements with gaps become dense bytes, and dense bytes such elements."""

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
