"""The reader of buffer arguments in C, and what it is told about the types of elements.

It reads the spellings that programs write often as :func:`han.message.buffers.parse` does, with the
same result. It knows the types of NumPy's arrays from the start. It learns other types, type codes
and formats when an argument with them is first parsed.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from han import _native
from han.message.dtypes import FORTRAN_PAIRS, PAIR_TYPES, mpi_type, pair_name
from han.message.unlocked import WIDE_HANDLES, offset_of
from han.model.element_types import DTYPES, WIDE, numpy_name

NUMBERS = "?bBhHiIlLqQefdgFDG"  # the letters of NumPy's types of numbers
KINDS = {name: k for k, name in enumerate((*DTYPES, "byte", *WIDE, *PAIR_TYPES, *FORTRAN_PAIRS))}
NO_KIND = -1  # the look-up in C serves no reductions of such elements
REFUSED = (type(MPI.BOTTOM), type(MPI.IN_PLACE), str)  # their buffers are no memory

# What stands for a type of elements in an argument, as C names it
BY_ARRAY, BY_HANDLE, BY_FORMAT, BY_CODE, BY_TENSOR, WITH_GAPS = "ahfctg"
MOST_LETTERS, MOST_BYTES = 7, 255  # of a format or a code, and of an element, that C finds

OFFSETS = {offset_of(one) for one in (MPI.BYTE, MPI.SUM)}  # of handles in objects
if len(OFFSETS) > 1:
    raise ImportError("han: mpi4py's types and operations hold MPI's handles in different places")

# How types are made, as native/mpi_table.h orders them
COMBINERS = (
    MPI.COMBINER_DUP, MPI.COMBINER_CONTIGUOUS, MPI.COMBINER_VECTOR, MPI.COMBINER_HVECTOR,
    MPI.COMBINER_INDEXED, MPI.COMBINER_HINDEXED, MPI.COMBINER_INDEXED_BLOCK,
    MPI.COMBINER_HINDEXED_BLOCK, MPI.COMBINER_STRUCT, MPI.COMBINER_SUBARRAY, MPI.COMBINER_RESIZED,
    MPI.COMBINER_DARRAY,
)  # fmt: skip

READER = _native.Reader(
    MPI.__file__,
    WIDE_HANDLES,
    MPI.COMM_SELF.handle,
    MPI.Datatype,
    max(OFFSETS),
    REFUSED,
    MPI.buffer,
    MPI.IN_PLACE,
    MPI.Exception,
    COMBINERS,
    MPI.ORDER_C,
)


def kind_of(name: str) -> int:
    """Return C's number of an element type; `name` is that of NumPy, or of MPI's pairs."""
    return KINDS.get(name, NO_KIND)


def facts(size: int, datatype: MPI.Datatype, name: str) -> tuple[int, int, int]:
    """Return what the reader is told about a type: size in bytes, MPI's handle, kind."""
    return size, datatype.handle, kind_of(name or pair_name(datatype))


def learn_text(source: str, text: str, size: int, known: tuple[int, int, int]) -> None:
    """Tell the reader about a format, of elements of `size` bytes, or a type code, of size 1."""
    letters = text.encode()
    if 0 < len(letters) <= MOST_LETTERS and size <= MOST_BYTES:
        READER.learn(source, int.from_bytes(letters, "big") << 8 | size, known)


def _teach_arrays() -> None:
    for letter in NUMBERS:
        dtype = np.dtype(letter)
        known = facts(dtype.itemsize, mpi_type(dtype), numpy_name(dtype))
        READER.learn(BY_ARRAY, dtype.num, known)


_teach_arrays()
