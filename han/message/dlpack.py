"""Objects that show their memory through DLPack: tensors of other libraries.

A capsule is kept, not consumed. Its producer may free the memory with the capsule.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mpi4py import MPI

from han import _native
from han.message.reader import BY_TENSOR, READER, facts

HOSTS = (1, 3, 11)  # DLPack's device types with memory of the host: CPU, CUDA host, ROCm host
LATEST = (1, 0)  # the version of DLPack up to which han reads capsules
NO_SYNCHRONISATION = -1  # the caller has synchronised its stream, as for mpi4py

_KINDS = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_NAMES = {
    (4, 16): "bfloat16", (6, 8): "bool",
    (7, 8): "float8_e3m4", (8, 8): "float8_e4m3", (9, 8): "float8_e4m3b11fnuz",
    (10, 8): "float8_e4m3fn", (11, 8): "float8_e4m3fnuz", (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz", (14, 8): "float8_e8m0fnu",
}  # fmt: skip
_WIDE = {(2, 128): "longdouble", (5, 256): "clongdouble"}
_COMPLEX = {32: "complex64", 64: "complex128", 128: "clongdouble"}  # by the bits of two lanes
CODES = {
    "bool": "?", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
    "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8",
    "float16": "e", "float32": "f", "float64": "d", "longdouble": "g",
    "complex64": "F", "complex128": "D", "clongdouble": "G",
}  # fmt: skip


class Tensor(NamedTuple):
    """The memory of a tensor. It stays valid as long as `owner` lives.

    `name` is the NumPy name of the element type, that of ml_dtypes (``bfloat16``), or ``""``.
    """

    owner: object
    address: int
    nbytes: int
    name: str
    itemsize: int
    readonly: bool
    contiguous: bool


def device_of(producer: Any) -> int | None:
    """Return the DLPack device type of an object; None if it has no DLPack."""
    if not hasattr(producer, "__dlpack__") or not hasattr(producer, "__dlpack_device__"):
        return None
    return int(producer.__dlpack_device__()[0])


def tensor_of(producer: Any, on_host: bool) -> Tensor:
    """Return the memory of an object with DLPack.

    Raises BufferError for a damaged capsule, and what the producer raises.
    """
    more = {} if on_host else {"stream": NO_SYNCHRONISATION}
    try:
        capsule = producer.__dlpack__(max_version=LATEST, copy=False, **more)
    except TypeError:  # a producer of DLPack before 1.0
        capsule = producer.__dlpack__(**more)
    address, nbytes, code, bits, lanes, readonly, contiguous = _native.read_dlpack(capsule)
    name, itemsize = _element(code, bits, lanes)
    known = facts(itemsize, type_of(name), name or "byte")
    READER.learn(BY_TENSOR, code | bits << 8 | lanes << 16, known)
    return Tensor(capsule, address, nbytes, name, itemsize, readonly, contiguous)


def _element(code: int, bits: int, lanes: int) -> tuple[str, int]:
    """Return the name and the size of an element; packed elements of no known type are bytes."""
    itemsize = (bits * lanes + 7) // 8
    if lanes == 2 and code == 2 and bits in _COMPLEX:
        return _COMPLEX[bits], itemsize
    if lanes != 1:
        return "", 1
    name = _NAMES.get((code, bits)) or _WIDE.get((code, bits))
    if name is None and code in _KINDS:
        name = f"{_KINDS[code]}{bits}"
        name = name if name in CODES else None
    return (name, itemsize) if name else ("", 1)


def type_of(name: str) -> MPI.Datatype:
    """Return the MPI type of an element; MPI.BYTE for unnamed ones, DATATYPE_NULL if none."""
    if not name:
        return MPI.BYTE
    try:
        return MPI.Datatype.fromcode(CODES[name])
    except (KeyError, ValueError):
        return MPI.DATATYPE_NULL
