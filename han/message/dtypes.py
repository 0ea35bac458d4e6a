"""The names that ``han.model.element_types`` gives to MPI's operations and types."""

from __future__ import annotations

from functools import cache

import numpy as np
from mpi4py import MPI

from han.model.element_types import OPS, PAIRS, numpy_name

ADDED = 256  # NumPy's first number of types that other packages add


@cache
def _predefined_ops() -> dict[int, str]:
    return {MPI._handleof(getattr(MPI, name.upper())): name for name in (*OPS, *PAIRS)}


def op_name(op: MPI.Op) -> str:
    """Return the name of a predefined operation; ``""`` for a user-defined one."""
    return _predefined_ops().get(MPI._handleof(op), "")


@cache
def _pair_types() -> frozenset[int]:
    names = ("FLOAT_INT", "DOUBLE_INT", "LONG_INT", "TWOINT", "SHORT_INT", "LONG_DOUBLE_INT")
    return frozenset(MPI._handleof(getattr(MPI, n)) for n in names)


def is_pair(datatype: MPI.Datatype) -> bool:
    """Return whether MINLOC and MAXLOC take this type."""
    return MPI._handleof(datatype) in _pair_types()


def type_name(datatype: MPI.Datatype) -> str:
    """Return the NumPy name of a predefined MPI type; ``""`` if it has none."""
    if datatype == MPI.BYTE:
        return "byte"
    if datatype in (MPI.CHAR, MPI.WCHAR, MPI.PACKED):
        return ""
    try:
        code = datatype.tocode()
    except ValueError:
        return ""
    return numpy_name(np.dtype(code)) if code else ""


def mpi_type(dtype: np.dtype[np.generic]) -> MPI.Datatype:
    """Return the MPI type of a NumPy type; DATATYPE_NULL if it has none.

    Of strings those of one character have one. The letters of types that other packages have
    added to NumPy mean nothing.
    """
    if dtype.num >= ADDED:
        return MPI.DATATYPE_NULL
    try:
        return MPI.Datatype.fromcode(dtype.str[1:] if dtype.char in "SU" else dtype.char)
    except ValueError:
        return MPI.DATATYPE_NULL
