"""Buffer arguments, in every spelling of mpi4py, as records of one form."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Number
from typing import Any, NamedTuple

from mpi4py import MPI

from han.common.errors import ArgumentError, ArgumentTypeError, TypeCodeError
from han.message.dtypes import type_name
from han.message.memory import Memory, memory_of
from han.message.reader import BY_CODE, BY_HANDLE, READER, WITH_GAPS, facts, learn_text

LISTS = (
    "; a list is [array, count, type], as in mpi4py: for numbers write np.array([...]), or use the "
    "call in lower case"
)


class Extents(NamedTuple):
    """Where the elements of a type are: `extent` bytes apart, each with `size` bytes of data.

    The data of an element is between the bytes `first` and `behind` after its address.
    """

    size: int
    extent: int
    first: int
    behind: int

    @classmethod
    @cache
    def plain(cls, size: int) -> Extents:
        """Return the extents of elements without gaps."""
        return cls(size, size, 0, size)

    @classmethod
    def of(cls, datatype: MPI.Datatype) -> Extents:
        """Return the extents of an MPI type, from its true extent."""
        first, true = datatype.Get_true_extent()
        return cls(datatype.Get_size(), datatype.Get_extent()[1], first, first + true)

    def bounds(self, address: int, count: int) -> tuple[int, int]:
        """Return the address of the first byte of data, and the one behind the last byte."""
        if not count or not self.size:
            return address, address
        last = (count - 1) * self.extent
        return address + self.first + min(0, last), address + self.behind + max(0, last)


@dataclass(frozen=True)
class Buffer:
    """One buffer argument: `count` elements of `datatype` from `address` on.

    `what` names the argument in messages. `name` is the NumPy name of the element type, or ``""``
    for user-defined types.
    `device`: the address is not one of this process's memory.
    """

    what: str
    owner: object
    address: int
    count: int
    datatype: MPI.Datatype
    name: str
    extents: Extents
    readonly: bool = False
    device: bool = False

    @property
    def size(self) -> int:
        """Bytes of data of an element."""
        return self.extents.size

    @property
    def extent(self) -> int:
        """Bytes from an element to the next one."""
        return self.extents.extent

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
        """Bytes from the first element to where an element behind the last would begin."""
        return self.count * self.extent

    @property
    def bounds(self) -> tuple[int, int]:
        """The address of the first byte of data, and the one behind the last byte."""
        return self.extents.bounds(self.address, self.count)

    def describe(self) -> str:
        """Return a text such as ``16 x float64``."""
        name = self.name or (self.datatype.name if self.datatype else "") or "derived datatype"
        return f"{self.count} x {name}"


def parse(spec: object, what: str, blocks: int = 1, before: int = 0) -> Buffer:
    """Return the Buffer of an argument; `what` names it in messages.

    `spec` is an array, another object with a buffer, ``[data, type]``, ``[data, count]``,
    ``[data, count, type]``, ``[data, (count, displacement), type]`` or
    ``[data, count, displacement, type]``. A type is an ``MPI.Datatype`` or a type code. `data` may
    be None if there is a type and no elements.

    `blocks`: the buffer holds so many blocks, and a count is that of one block, as in MPI.
    `before`: so many elements before the first one are used too.

    Raises ArgumentError.
    """
    data, count, start, datatype = parts_of(spec, what, WRONG)
    if isinstance(count, Sequence) and not isinstance(count, str):
        count, start = _pair(count, what)
    count, start = _whole(count, f"{what}: count"), _whole(start, f"{what}: displacement")
    return _described(data, count and count * blocks, start or 0, datatype, what, before)


WRONG = (
    "a list of {} items is no buffer; expected [data], [data, type], [data, count], "
    "[data, count, type] or [data, count, displacement, type]"
)


def _described(
    data: Any, count: int | None, displacement: int, kind: Any, what: str, before: int
) -> Buffer:
    datatype = _datatype(kind, what)
    if data is MPI.BOTTOM:
        return _absolute(count, displacement, datatype, what)
    if data is None and datatype is not None:
        return _empty(count, displacement, datatype, what)
    memory = memory_of(data, what, datatype is not None)
    if datatype is None:
        datatype, name, extents = memory.datatype, memory.name, Extents.plain(memory.itemsize)
    else:
        name, extents = _facts(datatype)
    count = _count(memory, count, displacement, extents, what, before)
    return Buffer(
        what,
        memory.owner,
        memory.address + displacement * extents.extent,
        count,
        datatype,
        name,
        extents,
        memory.readonly,
        memory.device,
    )


def placed(data: Any, count: int, place: int, kind: Any, what: str) -> Buffer:
    """Return the Buffer of elements of a type, from a byte of the data on.

    Without elements the type may be any, as in MPI. Raises ArgumentError.
    """
    datatype = _datatype(kind if count else MPI.BYTE, what)
    if datatype is None:
        raise ArgumentTypeError(f"{what}: None is not a data type")
    name, extents = _facts(datatype)
    if data is MPI.BOTTOM or (data is None and not count):
        return Buffer(what, None, place, count, datatype, name, extents)
    memory = memory_of(data, what, True)
    at, (low, high) = memory.address + place, memory.bounds
    first, behind = extents.bounds(at, count)
    fits = memory.bare and place >= 0 and place + count * extents.size <= memory.nbytes
    if first < behind and not (fits or (low <= first and behind <= high)):
        raise ArgumentError(
            f"{what}: {count} elements of the datatype have data in bytes {first - memory.address} "
            f"to {behind - memory.address} of a buffer of {memory.nbytes} bytes"
        )
    more = memory.readonly, memory.device
    return Buffer(what, memory.owner, at, count, datatype, name, extents, *more)


def parts_of(spec: Any, what: str, wrong: str) -> tuple[Any, Any, Any, Any]:
    """Return data, counts, displacements and type of an argument; None for what is not there.

    `wrong` is what is said about a list of another form, with its length.
    """
    data: Any = None
    counts: Any = None
    starts: Any = None
    datatype: Any = None
    if not isinstance(spec, list | tuple):
        return spec, None, None, None
    match list(spec):
        case [data]:
            pass
        case [data, (MPI.Datatype() | str()) as datatype]:
            pass
        case [data, counts]:
            pass
        case [data, counts, datatype]:
            pass
        case [data, counts, starts, datatype]:
            pass
        case _:
            raise ArgumentTypeError(f"{what}: {wrong.format(len(spec))}")
    return data, counts, starts, datatype


def _pair(counts: Sequence[Any], what: str) -> tuple[Any, Any]:
    if len(counts) != 2:
        raise ArgumentTypeError(
            f"{what}: one count, or (count, displacement), expected, not {len(counts)} values"
        )
    return counts[0], counts[1]


def _whole(given: Any, what: str) -> int | None:
    if given is None:
        return None
    try:
        number = operator.index(given)
    except TypeError:
        raise ArgumentTypeError(f"{what} {given!r} is not a whole number") from None
    if number < 0:
        raise ArgumentError(f"{what} {number} is negative")
    return number


def _datatype(datatype: Any, what: str) -> MPI.Datatype | None:
    if datatype is None or isinstance(datatype, MPI.Datatype):
        if datatype == MPI.DATATYPE_NULL and datatype is not None:
            raise ArgumentError(f"{what}: MPI.DATATYPE_NULL is not a data type")
        return datatype
    try:
        found = MPI.Datatype.fromcode(datatype)
    except (TypeError, ValueError, KeyError):
        kind = TypeCodeError if isinstance(datatype, str) else ArgumentTypeError
        hint = LISTS if isinstance(datatype, Number) else ""
        raise kind(
            f"{what}: {datatype!r} is neither an MPI.Datatype nor a type code such as 'd' or 'f8'"
            f"{hint}"
        ) from None
    extents = _facts(found)[1]
    learn_text(BY_CODE, datatype, 1, facts(extents.extent, found, type_name(found)))
    return found


_predefined: dict[int, tuple[str, Extents]] = {}  # by handle; no other type ever has the same


def _facts(datatype: MPI.Datatype) -> tuple[str, Extents]:
    """Return the NumPy name of a type, ``""`` if it is user-defined, and its extents."""
    handle = datatype.handle
    if handle in _predefined:
        return _predefined[handle]
    if not datatype.is_predefined:
        return "", Extents.of(datatype)
    name, extents = type_name(datatype), Extents.of(datatype)
    source = BY_HANDLE if extents.size == extents.extent else WITH_GAPS
    READER.learn(source, handle, facts(extents.extent, datatype, name))
    return _predefined.setdefault(handle, (name, extents))


def _absolute(
    count: int | None, displacement: int, datatype: MPI.Datatype | None, what: str
) -> Buffer:
    """Return the buffer of a type with addresses. Without a count it has no elements."""
    if datatype is None:
        raise ArgumentError(f"{what}: MPI.BOTTOM needs a datatype, and a count")
    name, extents = _facts(datatype)
    at = displacement * extents.extent
    return Buffer(what, None, at, count or 0, datatype, name, extents)


def _empty(count: int | None, displacement: int, datatype: MPI.Datatype, what: str) -> Buffer:
    """Return a buffer without elements, for None as data."""
    if count:
        raise ArgumentError(f"{what}: None holds no elements, {count} expected")
    if displacement:
        raise ArgumentError(f"{what}: None holds no elements, displacement is {displacement}")
    return _absolute(0, 0, datatype, what)


def _count(
    memory: Memory, count: int | None, displacement: int, extents: Extents, what: str, before: int
) -> int:
    """Return the number of elements. The caller's is trusted if the memory holds all their data.

    Programs make memory from an address with as many bytes as there are data, whatever the gaps.
    """
    start, extent = displacement * extents.extent, extents.extent
    room = memory.nbytes - start
    if start < 0 or room < 0:
        raise ArgumentError(
            f"{what}: displacement {displacement} begins at byte {start} of {memory.nbytes}"
        )
    if count is None:
        count = _fitting(room, extent, what)
    first, behind = extents.bounds(memory.address + start - before * extent, before + count)
    if memory.address <= first and behind <= memory.address + memory.nbytes:
        return count
    low, high = memory.bounds
    if low <= first and behind <= high:
        return count
    if memory.bare and count * extents.size <= room:
        return count
    if first >= memory.address and extents.first == 0:
        raise ArgumentError(
            f"{what} holds {room} bytes, {behind - first} expected "
            f"({count} x {extent} bytes{'' if extents.behind == extent else ', less the last gap'})"
        )
    raise ArgumentError(
        f"{what}: {count} elements of the datatype have data in bytes {first - memory.address} to "
        f"{behind - memory.address} of a buffer of {memory.nbytes} bytes"
    )


def _fitting(room: int, extent: int, what: str) -> int:
    """Return how many elements fill the memory."""
    if not room:
        return 0
    if extent <= 0:
        raise ArgumentError(f"{what}: elements with an extent of {extent} bytes need a count")
    if room % extent:
        raise ArgumentError(
            f"{what}: {room} bytes are not a whole number of elements of {extent} bytes; "
            "pass a count"
        )
    return room // extent
