"""Fake tensors: host memory shown through DLPack or as memory of a device."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

BFLOAT16, FLOAT8 = (4, 16), (12, 8)  # DLPack's type code and bits; FLOAT8 is float8_e5m2
CODES = {"b": 6, "i": 0, "u": 1, "f": 2, "c": 5}
CPU, GPU, PINNED = 1, 2, 3
READ_ONLY = 1

_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
NAMES = b"dltensor", b"dltensor_versioned"


class Plain(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class Legacy(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = [("tensor", Plain), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Plain),
    ]  # fmt: skip


class Tensor:
    """Shows an array through DLPack, and only so.

    `versions` are those of the capsules that it makes: 0 for legacy ones, 1. `kind` is a type code
    with its bits, for types that NumPy lacks. `damage` changes the structure before it is shown.
    """

    def __init__(
        self,
        array: np.ndarray[Any, Any],
        version: int = 1,
        kind: tuple[int, int] | None = None,
        device: int = CPU,
        readonly: bool = False,
        damage: Callable[[Any], None] = lambda shown: None,
        knows_versions: bool | None = None,
    ) -> None:
        self.array, self.version, self.device = array, version, device
        self.readonly, self.damage = readonly, damage
        self.kind = kind or (CODES[array.dtype.kind], 8 * array.itemsize)
        self.knows = bool(version) if knows_versions is None else knows_versions
        self.asked: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **how: Any) -> Any:
        self.asked.append(how)
        if not self.knows and how.keys() - {"stream"}:
            raise TypeError("__dlpack__() got an unexpected keyword argument")
        shown = Versioned(1, 0) if self.version else Legacy()
        if self.version:
            shown.flags = READ_ONLY if self.readonly else 0
        self._fill(shown.tensor)
        self.damage(shown)
        self.shown = shown  # as long as the tensor lives
        return _new(ctypes.addressof(shown), NAMES[self.version], None)

    def _fill(self, tensor: Plain) -> None:
        array, n = self.array, self.array.ndim
        tensor.data, tensor.device_type, tensor.ndim = array.ctypes.data, self.device, n
        tensor.code, tensor.bits = self.kind
        tensor.lanes = 1
        tensor.shape = (ctypes.c_int64 * n)(*array.shape)
        tensor.strides = (ctypes.c_int64 * n)(*(s // array.itemsize for s in array.strides))


EXPORT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Table(ctypes.Structure):
    """``DLPackExchangeAPI`` as far as han reads it."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("export", EXPORT),
    ]  # fmt: skip


class Tabled(Tensor):
    """Shows an array also through a function of its class, which fails if `damage` raises.

    `alive` counts the tensors that were shown so and not given back.
    """

    requires_grad = False
    alive = 0

    @classmethod
    def declare(cls, major: int = 1, previous: Table | None = None) -> Table:
        """Give the class its table; return it."""
        at = ctypes.addressof(previous) if previous else None
        cls.table = Table(major, 3, at, None, EXPORT(cls.export))
        cls.before = previous
        shown = _new(ctypes.addressof(cls.table), b"dlpack_exchange_api", None)
        cls.__dlpack_c_exchange_api__ = shown
        return cls.table

    def export(self, out: Any) -> int:
        shown = Versioned(1, 3, flags=READ_ONLY if self.readonly else 0)
        self._fill(shown.tensor)
        try:
            self.damage(shown)
        except ValueError:
            return -1

        def give_back(_: int) -> None:
            Tabled.alive -= 1

        shown.keep = DELETE(give_back)
        shown.deleter = ctypes.cast(shown.keep, ctypes.c_void_p).value
        Tabled.alive += 1
        self.shown = shown
        out[0] = ctypes.addressof(shown)
        return 0


class OnDevice:
    """Shows an array as if it were memory of a GPU, through ``__cuda_array_interface__``."""

    def __init__(self, array: np.ndarray[Any, Any], readonly: bool = False) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, readonly),
            "version": 3,
        }
