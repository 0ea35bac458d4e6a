"""Buffer arguments, in every spelling of mpi4py, as records of one form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentError, ArgumentTypeError
from han.message.dtypes import mpi_type, type_name
from han.model.element_types import numpy_name

CPU = 1  # DLPack's device type


@dataclass(frozen=True)
class Memory:
    """The memory of an object. It stays valid as long as `owner` lives."""

    owner: object
    address: int
    nbytes: int
    dtype: np.dtype[Any]
    readonly: bool
    plain: bool  # a NumPy array of numbers


@dataclass(frozen=True)
class Buffer:
    """One buffer argument.

    It has `count` elements of `datatype`, `extent` bytes apart. The first one begins `lower` bytes
    after `address`. An element has `size` bytes of data. `what` names the argument in messages.
    `name` is the NumPy name of the element type, or ``""`` for user-defined types. `dtype_number`
    is NumPy's type number for a plain array, else None.
    """

    what: str
    owner: object
    address: int
    count: int
    datatype: MPI.Datatype
    name: str
    size: int
    extent: int
    readonly: bool
    dtype_number: int | None
    lower: int = 0

    @property
    def predefined(self) -> bool:
        """Whether the elements are of a predefined type."""
        return bool(self.name) or self.datatype.is_predefined

    @property
    def dense(self) -> bool:
        """Whether the elements have no gaps, so that memory and message are the same bytes."""
        return self.predefined and self.size == self.extent

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last."""
        return self.count * self.extent

    def describe(self) -> str:
        """Return a text such as ``16 x float64``."""
        name = self.name or (self.datatype.name if self.datatype else "") or "derived datatype"
        return f"{self.count} x {name}"


def parse(spec: object, what: str, blocks: int = 1) -> Buffer:
    """Return the Buffer of an argument; `what` names it in messages.

    `spec` is an array, another object with a buffer, ``[data, type]``, ``[data, count]``,
    ``[data, count, type]``, ``[data, (count, displacement), type]`` or
    ``[data, count, displacement, type]``. A type is an ``MPI.Datatype`` or a type code. `data` may
    be None if there is a type and no elements.

    `blocks`: the buffer holds so many blocks, and a count is that of one block, as in MPI.

    Raises ArgumentError.
    """
    data, count, displacement, datatype = _unpack(spec, what)
    if count is not None:
        count *= blocks
    if data is MPI.BOTTOM:
        return _absolute(count, displacement, datatype, what)
    if data is None and datatype is not None:
        return _empty(count, displacement, datatype, what)
    memory = _memory_of(data, what)
    number = memory.dtype.num if memory.plain and data is spec else None
    if datatype is None:
        datatype, name = mpi_type(memory.dtype), numpy_name(memory.dtype)
        lower, size = 0, memory.dtype.itemsize
        extent = size
    else:
        name, size, lower, extent = _type_facts(datatype)
    count = _count(memory, count, displacement, lower, extent, what)
    address = memory.address + displacement * extent
    return Buffer(
        what, memory.owner, address, count, datatype, name, size, extent, memory.readonly, number,
        lower,
    )  # fmt: skip


def _unpack(spec: Any, what: str) -> tuple[Any, int | None, int, MPI.Datatype | None]:
    if not isinstance(spec, (list, tuple)):
        return spec, None, 0, None
    data: Any = None
    count: Any = None
    displacement: Any = 0
    datatype: Any = None
    match list(spec):
        case [data]:
            pass
        case [data, (MPI.Datatype() | str()) as datatype]:
            pass
        case [data, count]:
            pass
        case [data, count, datatype]:
            pass
        case [data, count, displacement, datatype]:
            pass
        case _:
            raise ArgumentTypeError(
                f"{what}: a list of {len(spec)} items is no buffer; expected [data], [data, type], "
                "[data, count], [data, count, type] or [data, count, displacement, type]"
            )
    if isinstance(count, Sequence) and not isinstance(count, str):
        count, displacement = _pair(count, what)
    return data, _whole(count, what), displacement or 0, _datatype(datatype, what)


def _pair(counts: Sequence[Any], what: str) -> tuple[Any, int]:
    if len(counts) != 2:
        raise ArgumentTypeError(
            f"{what}: one count, or (count, displacement), expected, not {len(counts)} values"
        )
    return counts[0], counts[1] or 0


def _whole(count: Any, what: str) -> int | None:
    if count is None:
        return None
    try:
        number = int(count.__index__())
    except AttributeError:
        raise ArgumentTypeError(f"{what}: count {count!r} is not a whole number") from None
    if number < 0:
        raise ArgumentError(f"{what}: count {number} is negative")
    return number


def _datatype(datatype: Any, what: str) -> MPI.Datatype | None:
    if datatype is None or isinstance(datatype, MPI.Datatype):
        if datatype == MPI.DATATYPE_NULL and datatype is not None:
            raise ArgumentError(f"{what}: MPI.DATATYPE_NULL is not a data type")
        return datatype
    try:
        return MPI.Datatype.fromcode(datatype)
    except (TypeError, ValueError, KeyError):
        raise ArgumentTypeError(
            f"{what}: {datatype!r} is neither an MPI.Datatype nor a type code such as 'd' or 'f8'"
        ) from None


def _type_facts(datatype: MPI.Datatype) -> tuple[str, int, int, int]:
    """Return the name, the size of the data, the lower bound and the extent of a type."""
    lower, extent = datatype.Get_extent()
    name = type_name(datatype) if datatype.is_predefined else ""
    return name, datatype.Get_size(), lower, extent


def _absolute(
    count: int | None, displacement: int, datatype: MPI.Datatype | None, what: str
) -> Buffer:
    if datatype is None or count is None:
        raise ArgumentError(f"{what}: MPI.BOTTOM needs a count and a datatype")
    name, size, lower, extent = _type_facts(datatype)
    return Buffer(
        what, None, displacement * extent, count, datatype, name, size, extent, False, None, lower
    )


def _empty(count: int | None, displacement: int, datatype: MPI.Datatype, what: str) -> Buffer:
    """Return a buffer without elements, for None as data."""
    if count:
        raise ArgumentError(f"{what}: None holds no elements, {count} expected")
    if displacement:
        raise ArgumentError(f"{what}: None holds no elements, displacement is {displacement}")
    return _absolute(0, 0, datatype, what)


def _memory_of(data: Any, what: str) -> Memory:
    _refuse(data, what)
    if isinstance(data, np.ndarray):
        return _array_memory(data, what)
    try:
        view = memoryview(data)
    except TypeError:
        return _array_memory(_by_dlpack(data, what), what)
    if not view.contiguous:
        raise ArgumentError(f"{what}: the memory is not contiguous (strides {view.strides})")
    try:
        dtype = np.dtype(view.format)
    except TypeError:
        raise ArgumentTypeError(
            f"{what}: elements of format {view.format!r} have no MPI type"
        ) from None
    raw = MPI.memory.frombuffer(data, readonly=view.readonly)
    return Memory(view, raw.address, view.nbytes, dtype, view.readonly, False)


def _refuse(data: Any, what: str) -> None:
    """Raise ArgumentTypeError for common objects that cannot be buffers."""
    if data is None:
        raise ArgumentTypeError(f"{what} is None: expected a buffer, or MPI.IN_PLACE")
    if isinstance(data, str):
        raise ArgumentTypeError(
            f"{what}: a str has no buffer; encode it, or use the lower-case method"
        )
    if hasattr(data, "__cuda_array_interface__"):
        raise ArgumentTypeError(
            f"{what}: {type(data).__name__} is in device memory; copy it to the host first"
        )
    device = getattr(data, "__dlpack_device__", None)
    if device is not None and device()[0] != CPU:
        raise ArgumentTypeError(
            f"{what}: {type(data).__name__} is on a device (DLPack type {device()[0]}); "
            "copy it to the host first"
        )


def _by_dlpack(data: Any, what: str) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        array: np.ndarray[Any, np.dtype[Any]] = np.from_dlpack(data)
    except (AttributeError, TypeError, BufferError):
        raise ArgumentTypeError(
            f"{what}: {type(data).__name__} has no buffer; pass a NumPy array or anything with "
            "the buffer protocol, or use the lower-case method for Python objects"
        ) from None
    return array


def _array_memory(array: np.ndarray[Any, np.dtype[Any]], what: str) -> Memory:
    dtype = array.dtype
    if dtype.hasobject:
        raise ArgumentTypeError(
            f"{what}: the array holds Python objects; use the lower-case method for those"
        )
    if dtype.kind in "US":
        raise ArgumentTypeError(f"{what}: strings ({dtype}) are not numbers; view them as bytes")
    if not dtype.isnative:
        raise ArgumentError(
            f"{what}: {dtype} is not in this machine's byte order; "
            "convert it with astype(dtype.newbyteorder('='))"
        )
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ArgumentError(
            f"{what}: the array of shape {array.shape} is not contiguous (strides "
            f"{array.strides} bytes); pass numpy.ascontiguousarray(...), or describe the layout "
            "with an MPI datatype"
        )
    address = int(array.__array_interface__["data"][0])
    plain = type(array) is np.ndarray and dtype.kind in "biufc"
    return Memory(array, address, array.nbytes, dtype, not array.flags.writeable, plain)


def _count(
    memory: Memory, count: int | None, displacement: int, lower: int, extent: int, what: str
) -> int:
    start = displacement * extent + lower
    room = memory.nbytes - start
    if displacement < 0 or start < 0 or room < 0:
        raise ArgumentError(
            f"{what}: displacement {displacement} begins at byte {start} of {memory.nbytes}"
        )
    if count is None:
        if extent and room % extent:
            raise ArgumentError(
                f"{what}: {room} bytes are not a whole number of elements of {extent} bytes; "
                "pass a count"
            )
        return room // extent if extent else 0
    if count * extent > room:
        raise ArgumentError(
            f"{what} holds {room} bytes, {count * extent} expected ({count} x {extent} bytes)"
        )
    return count
