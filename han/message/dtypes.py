"""Element types and operations: MPI's and NumPy's names for what han has kernels for."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentError

# in the order of enum han_dtype and enum han_op (native/reductions.h)
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
OPS = ("sum", "prod", "max", "min", "land", "lor", "lxor", "band", "bor", "bxor")
BITWISE = ("band", "bor", "bxor")
WIDE = {"longdouble": ("sum", "prod", "max", "min"), "clongdouble": ("sum", "prod")}
PAIRS = ("minloc", "maxloc")


@cache
def _predefined_ops() -> dict[int, str]:
    return {MPI._handleof(getattr(MPI, name.upper())): name for name in (*OPS, *PAIRS)}


def op_name(op: MPI.Op) -> str:
    """Name a predefined operation; ``""`` for one of the user's."""
    return _predefined_ops().get(MPI._handleof(op), "")


@cache
def _pair_types() -> frozenset[int]:
    names = ("FLOAT_INT", "DOUBLE_INT", "LONG_INT", "TWOINT", "SHORT_INT", "LONG_DOUBLE_INT")
    return frozenset(MPI._handleof(getattr(MPI, n)) for n in names)


def is_pair(datatype: MPI.Datatype) -> bool:
    """Whether MINLOC and MAXLOC take this type."""
    return MPI._handleof(datatype) in _pair_types()


def type_name(datatype: MPI.Datatype) -> str:
    """Name the NumPy type that a predefined MPI type is; ``""`` if there is none."""
    if datatype == MPI.BYTE:
        return "byte"
    if datatype in (MPI.CHAR, MPI.WCHAR, MPI.PACKED):
        return ""
    try:
        code = datatype.tocode()
    except ValueError:
        return ""
    return numpy_name(np.dtype(code)) if code else ""


def numpy_name(dtype: np.dtype[np.generic]) -> str:
    """Name a NumPy type by its size rather than its C spelling: ``longlong`` is ``int64``."""
    if dtype.char in "gG":
        return "longdouble" if dtype.char == "g" else "clongdouble"
    return str(dtype.name)


def element_type(name: Any) -> np.dtype[Any]:
    """Return NumPy's type of a name such as ``f8`` or ``float32``, or of what else is one."""
    try:
        found: np.dtype[Any] = np.dtype(name)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name!r} is not a NumPy type; write f8, float32, i4, uint8, complex128 ..."
        ) from None
    return found


def mpi_type(dtype: np.dtype[np.generic]) -> MPI.Datatype:
    """Return MPI's type of a NumPy type; DATATYPE_NULL where MPI has none."""
    try:
        return MPI.Datatype.fromcode(dtype.char)
    except ValueError:
        return MPI.DATATYPE_NULL


def kernel(op: str, dtype: str) -> tuple[int, int] | None:
    """Return the numbers of the native kernel of an operation on a type, or None."""
    from han._native import has_kernel

    if dtype == "byte" and op not in BITWISE:
        return None
    dtype = "uint8" if dtype == "byte" else dtype
    if op not in OPS or dtype not in DTYPES:
        return None
    numbers = OPS.index(op), DTYPES.index(dtype)
    return numbers if has_kernel(*numbers) else None


def ops_of(dtype: str) -> tuple[str, ...]:
    """All predefined operations that are defined on a type."""
    return tuple(op for op in OPS if kernel(op, dtype)) or WIDE.get(dtype, ())
