"""Where the memory of an object is: arrays, buffers of Python, tensors, memory of a device."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from han import _native
from han.common.errors import ArgumentError, ArgumentTypeError
from han.message.dtypes import mpi_type, type_name
from han.message.reader import BY_FORMAT, BY_TENSOR, READER, facts, learn_text
from han.model.element_types import DTYPES, numpy_name

NATIVE = "@<" if sys.byteorder == "little" else "@>"  # of formats in this byte order
Bounds = tuple[int, int]  # the first address, and the one behind the last byte


class Memory(NamedTuple):
    """The memory of an object. It stays valid as long as `owner` lives.

    `datatype` and `name` are those of the elements, `itemsize` their size. The type is
    DATATYPE_NULL if MPI has none; `name` is "" if NumPy has none. `device` says that it is not
    memory of the host.
    """

    owner: object
    address: int
    nbytes: int
    datatype: MPI.Datatype
    name: str
    itemsize: int
    readonly: bool
    device: bool = False

    @property
    def bare(self) -> bool:
        """Whether it was made from an address: nobody knows what is around it."""
        source = self.owner.obj if isinstance(self.owner, memoryview) else self.owner
        return isinstance(source, MPI.buffer) and source.obj is None

    @property
    def bounds(self) -> Bounds:
        """The addresses of the memory that is known to belong to the owner.

        A view of an array may be used with elements of the whole array, as in MPI.
        """
        found = _bounds(self.owner)
        inside = self.address, self.address + self.nbytes
        return (min(found[0], inside[0]), max(found[1], inside[1])) if found else inside


def memory_of(data: Any, what: str, typed: bool) -> Memory:
    """Return the memory of an object, as mpi4py finds it; `what` names it in messages.

    `typed`: the caller gives the type of the elements, so the object's own may be any.

    Raises ArgumentError, also for what the producer of a tensor raises.
    """
    _refuse(data, what)
    if isinstance(data, np.ndarray):
        return _of_array(data, what, typed)
    try:
        view = memoryview(data)
    except (TypeError, ValueError, BufferError) as error:
        return _of_tensor(data, what, error)
    return _of_view(data, view, what, typed)


def _refuse(data: Any, what: str) -> None:
    """Raise ArgumentTypeError for common objects that cannot be buffers."""
    if data is None:
        raise ArgumentTypeError(f"{what} is None: expected a buffer, or MPI.IN_PLACE")
    if isinstance(data, str):
        raise ArgumentTypeError(
            f"{what}: a str has no buffer; encode it, or use the lower-case method"
        )


# ---- arrays -------------------------------------------------------------------------------------


def _of_array(array: np.ndarray[Any, Any], what: str, typed: bool) -> Memory:
    dtype = array.dtype
    if dtype.hasobject:
        raise ArgumentTypeError(
            f"{what}: the array holds Python objects; use the lower-case method for those"
        )
    if not typed:
        _check_type(dtype, what)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ArgumentError(
            f"{what}: the array of shape {array.shape} is not contiguous (strides "
            f"{array.strides} bytes); pass numpy.ascontiguousarray(...), or describe the layout "
            "with an MPI datatype"
        )
    return Memory(
        array,
        int(array.__array_interface__["data"][0]),
        array.nbytes,
        mpi_type(dtype),
        "" if dtype.kind in "US" else numpy_name(dtype),
        dtype.itemsize,
        not array.flags.writeable,
    )


def _check_type(dtype: np.dtype[Any], what: str) -> None:
    if dtype.kind in "US" and mpi_type(dtype) == MPI.DATATYPE_NULL:
        raise ArgumentTypeError(f"{what}: strings ({dtype}) are not numbers; view them as bytes")
    if not dtype.isnative:
        raise ArgumentError(
            f"{what}: {dtype} is not in this machine's byte order; "
            "convert it with astype(dtype.newbyteorder('='))"
        )


# ---- buffers of Python --------------------------------------------------------------------------


def _of_view(data: Any, view: memoryview, what: str, typed: bool) -> Memory:
    if not view.contiguous:
        raise ArgumentError(f"{what}: the memory is not contiguous (strides {view.strides})")
    datatype, name = MPI.BYTE, ""
    if not typed:
        datatype, name = _format(view, what)
    address = MPI.Get_address(view)
    return Memory(
        view, address, view.nbytes, datatype, name, view.itemsize, view.readonly,
        device=isinstance(data, MPI.buffer) and _on_device(data),
    )  # fmt: skip


def _format(view: memoryview, what: str) -> tuple[MPI.Datatype, str]:
    """Return the type of a view's elements and its NumPy name."""
    code = view.format
    try:
        datatype = MPI.Datatype.fromcode(code[1:] if code[0] in NATIVE else code)
    except ValueError:
        return _record(view, what)
    name = type_name(datatype)
    learn_text(BY_FORMAT, code, view.itemsize, facts(view.itemsize, datatype, name))
    return datatype, name


def _record(view: memoryview, what: str) -> tuple[MPI.Datatype, str]:
    """Return the type of elements that only NumPy knows, and its NumPy name."""
    try:
        dtype = np.asarray(view).dtype
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentTypeError(
            f"{what}: elements of format {view.format!r} have no MPI type"
        ) from None
    if not dtype.isnative:
        raise ArgumentError(f"{what}: format {view.format!r} is not in this machine's byte order")
    return mpi_type(dtype), numpy_name(dtype)


def _on_device(memory: MPI.buffer) -> bool:
    """Return whether a buffer object of mpi4py stands for memory of a device."""
    try:
        memory[:0]
    except BufferError:
        return True
    return False


# ---- tensors ------------------------------------------------------------------------------------


def _of_tensor(data: Any, what: str, refusal: Exception) -> Memory:
    """Return the memory of an object that has no buffer of Python, which raised `refusal`."""
    kind = type(data).__name__
    try:
        device = device_of(data)
        if device is not None:
            return _of_dlpack(data, what, device in HOSTS)
        if hasattr(data, "__cuda_array_interface__"):
            return _of_cuda(data)
    except ArgumentError:
        raise
    except Exception as error:  # the producer's own words are kept
        raise ArgumentError(f"{what}: {kind} does not show its memory: {error}") from error
    if not isinstance(refusal, TypeError):
        raise ArgumentError(f"{what}: {kind} does not show its memory: {refusal}") from refusal
    raise ArgumentTypeError(
        f"{what}: {kind} has no buffer; pass a NumPy array or anything with "
        "the buffer protocol, or use the lower-case method for Python objects"
    ) from None


def _of_dlpack(data: Any, what: str, on_host: bool) -> Memory:
    """Return the memory of an object with DLPack; raises BufferError for a damaged capsule."""
    more = {} if on_host else {"stream": NO_SYNCHRONISATION}
    try:
        capsule = data.__dlpack__(max_version=LATEST, copy=False, **more)
    except TypeError:  # a producer of DLPack before 1.0
        capsule = data.__dlpack__(**more)
    address, nbytes, code, bits, lanes, readonly, contiguous = _native.read_dlpack(capsule)
    if not contiguous:
        raise ArgumentError(f"{what}: the {type(data).__name__} is not contiguous")
    name, itemsize = _element(code, bits, lanes)
    datatype = MPI.BYTE if name == "byte" else _type_of(name)
    READER.learn(BY_TENSOR, code | bits << 8 | lanes << 16, facts(itemsize, datatype, name))
    return Memory(capsule, address, nbytes, datatype, name, itemsize, readonly, device=not on_host)


def _of_cuda(data: Any) -> Memory:
    """Return the memory of an object with ``__cuda_array_interface__``; mpi4py reads it."""
    memory = MPI.buffer.frombuffer(data, readonly=True)
    facts = data.__cuda_array_interface__
    dtype = np.dtype(facts["typestr"])
    return Memory(
        (data, memory), memory.address, memory.nbytes, mpi_type(dtype), numpy_name(dtype),
        dtype.itemsize, bool(facts["data"][1]), device=True,
    )  # fmt: skip


# ---- the memory around a view -------------------------------------------------------------------


def _bounds(owner: Any) -> Bounds | None:
    """Return the bounds of the memory that a view was made of; None if nothing is known."""
    while True:
        if isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray | memoryview):
            owner = owner.base
        elif isinstance(owner, memoryview | MPI.buffer) and owner.obj is not None:
            owner = owner.obj
        else:
            break
    if isinstance(owner, np.ndarray):
        return _span(owner)
    try:
        whole = memoryview(owner)
    except (TypeError, ValueError, BufferError):
        return None
    start = MPI.Get_address(whole) if whole.contiguous else 0
    return (start, start + whole.nbytes) if start else None


def _span(array: np.ndarray[Any, Any]) -> Bounds:
    """Return the first address of an array's elements, and the one behind the last byte."""
    low = high = int(array.__array_interface__["data"][0])
    for length, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (length - 1) * stride)
        high += max(0, (length - 1) * stride)
    return low, high + (array.itemsize if array.size else 0)


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


def device_of(producer: Any) -> int | None:
    """Return the DLPack device type of an object; None if it has no DLPack."""
    if not hasattr(producer, "__dlpack__") or not hasattr(producer, "__dlpack_device__"):
        return None
    return int(producer.__dlpack_device__()[0])


def _element(code: int, bits: int, lanes: int) -> tuple[str, int]:
    """Return the name and the size of an element; packed elements of no known type are bytes.

    The name is that of NumPy or of ml_dtypes (``bfloat16``).
    """
    itemsize = (bits * lanes + 7) // 8
    if lanes == 2 and code == 2 and bits in _COMPLEX:
        return _COMPLEX[bits], itemsize
    known = _NAMES.get((code, bits)) or _WIDE.get((code, bits))
    name = known or f"{_KINDS.get(code)}{bits}"
    return (name, itemsize) if lanes == 1 and (known or name in DTYPES) else ("byte", 1)


def _type_of(name: str) -> MPI.Datatype:
    """Return the MPI type of an element; DATATYPE_NULL if it has none."""
    try:
        return mpi_type(np.dtype(name))
    except TypeError:  # NumPy has none
        return MPI.DATATYPE_NULL
