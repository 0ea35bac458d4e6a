"""Packing: elements with gaps become dense bytes, and the reverse; buffers that overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from han import _native
from han.message.buffers import Buffer
from han.message.reader import READER

Hook = Callable[[], object]
WRAP = 1 << 64  # the numbers of addresses; with MPI.BOTTOM a buffer may begin before the first one


def packer(buffer: Buffer, packed: np.ndarray[Any, Any]) -> Hook:
    """Return a function that copies the data of a buffer to `packed`."""
    return _made(buffer, packed, packs=True)


def unpacker(buffer: Buffer, packed: np.ndarray[Any, Any]) -> Hook:
    """Return a function that copies `packed` to the data of a buffer."""
    return _made(buffer, packed, packs=False)


def _made(buffer: Buffer, packed: np.ndarray[Any, Any], packs: bool) -> Hook:
    count, nbytes = buffer.count, buffer.count * buffer.size
    if not nbytes:
        return nothing
    where = buffer.address % WRAP
    return _native.packer(
        READER, buffer.datatype, count, where, nbytes, packed.ctypes.data, packed, packs
    )


def run_start(buffer: Buffer) -> int | None:
    """Return where the data of a buffer begins, from its address, if it is one run of bytes."""
    if buffer.dense or not buffer.count:
        return 0
    return _native.run_start(READER, buffer.datatype, buffer.count)


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
