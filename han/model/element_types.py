"""Names of element types and operations, and the native kernels for them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from han import _native
from han.common.errors import ArgumentError

# in the order of enum han_dtype and enum han_op (native/reductions.h)
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", "bfloat16",
)  # fmt: skip
OPS = ("sum", "prod", "max", "min", "land", "lor", "lxor", "band", "bor", "bxor")
BITWISE = ("band", "bor", "bxor")
WIDE = {"longdouble": ("sum", "prod", "max", "min"), "clongdouble": ("sum", "prod")}
# Their kernels take 1.1 to 8 times as long as that of float64's sum, those of all others as long.
SOFT = ("float16", "bfloat16")  # types whose elements are converted first
COMPLEX = ("complex64", "complex128")
NOT_MPIS = ("float16", "bfloat16")  # types that the MPI standard does not have
PAIRS = ("minloc", "maxloc")


@lru_cache(maxsize=256)  # NumPy makes the name anew each time: 3 us
def numpy_name(dtype: np.dtype[np.generic]) -> str:
    """Return the name of a NumPy type by its size, not by its C type: ``longlong`` is ``int64``."""
    if dtype.char in "gG":
        return "longdouble" if dtype.char == "g" else "clongdouble"
    return str(dtype.name)


def element_type(name: Any) -> np.dtype[Any]:
    """Return the NumPy type that a name such as ``f8`` or another object stands for.

    Raises ArgumentError if it stands for none.
    """
    try:
        found: np.dtype[Any] = np.dtype(name)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name!r} is not a NumPy type; write f8, float32, i4, uint8, complex128 ..."
        ) from None
    return found


def kernel(op: str, dtype: str) -> tuple[int, int] | None:
    """Return the numbers of an operation and a type if there is a kernel for them, else None."""
    if dtype == "byte" and op not in BITWISE:
        return None
    dtype = "uint8" if dtype == "byte" else dtype
    if op not in OPS or dtype not in DTYPES:
        return None
    numbers = OPS.index(op), DTYPES.index(dtype)
    return numbers if _native.has_kernel(*numbers) else None


@lru_cache(maxsize=256)
def heavy(op: str, dtype: str) -> bool:
    """Whether the kernel of a pair takes longer than memory does for its operands."""
    return dtype in SOFT or (op == "prod" and dtype in COMPLEX)


def ops_of(dtype: str) -> tuple[str, ...]:
    """The predefined operations that are defined on a type."""
    return tuple(op for op in OPS if kernel(op, dtype)) or WIDE.get(dtype, ())
