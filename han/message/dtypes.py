"""The names that ``han.model.element_types`` gives to MPI's operations and types."""

from __future__ import annotations

from functools import cache

import numpy as np
from mpi4py import MPI

from han.model.element_types import OPS, PAIRS, numpy_name

ADDED = 256  # NumPy's first number of types that other packages add


@cache
def predefined_ops() -> dict[int, tuple[str, MPI.Op]]:
    """Return the names and objects of MPI's operations, by their handles."""
    ops = {name: getattr(MPI, name.upper()) for name in (*OPS, *PAIRS)}
    return {op.handle: (name, op) for name, op in ops.items()}


def op_name(op: MPI.Op) -> str:
    """Return the name of a predefined operation; ``""`` for a user-defined one."""
    return predefined_ops().get(op.handle, ("", op))[0]


def canonical(op: MPI.Op) -> MPI.Op:
    """Return mpi4py's object of a predefined operation, as ``MPI.SUM``; others as they are."""
    return predefined_ops().get(op.handle, ("", op))[1]


PAIR_TYPES = ("FLOAT_INT", "DOUBLE_INT", "LONG_INT", "TWOINT", "SHORT_INT", "LONG_DOUBLE_INT")
FORTRAN_PAIRS = ("MPI_2REAL", "MPI_2DOUBLE_PRECISION", "MPI_2INTEGER")  # mpi4py has no objects


@cache
def _pair_names() -> dict[int, str]:
    return {getattr(MPI, name).handle: name for name in PAIR_TYPES}


def pair_name(datatype: MPI.Datatype) -> str:
    """Return the name of a type that MINLOC and MAXLOC take, as ``DOUBLE_INT``; else ``""``."""
    handle = datatype.handle
    if handle not in _pair_names() and datatype and datatype.is_predefined:
        name = datatype.Get_name()
        _pair_names()[handle] = name if name in FORTRAN_PAIRS else ""
    return _pair_names().get(handle, "")


def library_refusal(op: MPI.Op, datatype: MPI.Datatype) -> int:
    """Return the MPI library's error code for a predefined operation on a predefined type, or 0."""
    return _refusal(op.handle, datatype.handle)


@cache
def _refusal(operation: int, kind: int) -> int:
    op, datatype = MPI.Op.fromhandle(operation), MPI.Datatype.fromhandle(kind)
    one, other = np.zeros((2, max(datatype.extent, 1)), np.uint8)
    try:
        op.Reduce_local([one, 1, datatype], [other, 1, datatype])
    except MPI.Exception as error:
        return error.Get_error_code()
    return MPI.SUCCESS


@cache
def _char() -> str:
    """Return the name of MPI.CHAR, which is no number in the standard, but in all libraries."""
    one, other = np.array([[1], [128]], np.uint8)
    if library_refusal(MPI.MAX, MPI.CHAR):
        return ""
    MPI.MAX.Reduce_local([one, 1, MPI.CHAR], [other, 1, MPI.CHAR])
    return "uint8" if other[0] == 128 else "int8"


def type_name(datatype: MPI.Datatype) -> str:
    """Return the NumPy name of a predefined MPI type; ``""`` if it has none."""
    if datatype == MPI.BYTE:
        return "byte"
    if datatype == MPI.CHAR:
        return _char()
    if datatype in (MPI.WCHAR, MPI.PACKED):
        return ""
    try:
        code = datatype.tocode()
    except ValueError:
        return ""
    return numpy_name(np.dtype(code)) if code else ""


def is_in_packed_form(datatype: MPI.Datatype) -> bool:
    """Return whether elements of a derived type are the same bytes in memory and packed.

    These are contiguous copies of a predefined type without gaps.
    """
    if datatype.Get_size() != datatype.Get_extent()[1] or datatype.Get_true_extent()[0]:
        return False
    base, combiner, _ = datatype.decode()
    if combiner == "NAMED":
        return True
    found = combiner in ("CONTIGUOUS", "DUP", "RESIZED") and is_in_packed_form(base)
    for one in base if isinstance(base, list) else [base]:
        if not one.is_predefined:
            one.Free()
    return found


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
