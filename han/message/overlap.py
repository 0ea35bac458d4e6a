"""Whether two buffers have bytes in common."""

from __future__ import annotations

import numpy as np

from han.message.buffers import Buffer
from han.message.packing import unpacker

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
    moved = Buffer("mask", mask, there, buffer.count, buffer.datatype, "", buffer.layout)
    unpacker(moved, np.ones(buffer.count * buffer.size, np.uint8))()
    return mask
