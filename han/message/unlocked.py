"""MPI functions, called without the interpreter's lock; mpi4py would call them with it.

Some MPI libraries take a lock of their own in these functions, and also while they run a reduction
operation. An operation written in Python needs the interpreter's lock. So a thread that held one
lock and waited for the other could deadlock with it.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import mpi4py
from mpi4py import MPI

if not hasattr(MPI.Comm, "handle"):
    raise ImportError(f"han needs mpi4py 4.0 or newer, and here it is {mpi4py.__version__}")
WIDE_HANDLES = MPI._sizeof(MPI.COMM_WORLD) > 4  # handles are pointers, not ints


def offset_of(one: Any) -> int:
    """Return where the handle is in an object, in bytes from its address."""
    return MPI._addressof(one) - id(one)


def set_handle(comm: MPI.Comm, source: MPI.Comm) -> None:
    """Give a communicator the handle of another one."""
    ctypes.memmove(MPI._addressof(comm), MPI._addressof(source), MPI._sizeof(comm))


def bytes_of(status: MPI.Status) -> bytes:
    """Return the memory of a status."""
    memory = MPI.memory.fromaddress(MPI._addressof(status), MPI._sizeof(status))
    return memory.tobytes()


_Handle = ctypes.c_void_p if WIDE_HANDLES else ctypes.c_uint


@cache
def _library() -> ctypes.CDLL:
    """Return the MPI library that mpi4py has loaded, through mpi4py's own module."""
    return ctypes.CDLL(MPI.__file__)


def _call(name: str, *arguments: object) -> None:
    error = getattr(_library(), name)(*arguments)
    if error:
        raise MPI.Exception(error)


def is_commutative(op: MPI.Op) -> bool:
    """Return whether a reduction operation commutes."""
    flag = ctypes.c_int()
    _call("MPI_Op_commutative", _Handle(op.handle), ctypes.byref(flag))
    return bool(flag.value)


@contextlib.contextmanager
def group_of(comm: MPI.Intracomm, ranks: Sequence[int]) -> Iterator[MPI.Group]:
    """Yield the group of some ranks of a communicator; free it at the end."""
    everyone, some = comm.Get_group(), _Handle()
    numbers = (ctypes.c_int * len(ranks))(*ranks)
    try:
        whole = _Handle(everyone.handle)
        _call("MPI_Group_incl", whole, len(ranks), numbers, ctypes.byref(some))
    finally:
        free(everyone)
    group = MPI.Group.fromhandle(some.value or 0)
    try:
        yield group
    finally:
        free(group)


def ranks_of(group: MPI.Group, comm: MPI.Intracomm) -> list[int]:
    """Return the ranks in `comm` of a group's members; MPI.UNDEFINED for those outside of it."""
    everyone = comm.Get_group()
    try:
        return translated(range(group.Get_size()), group, everyone)
    finally:
        free(everyone)


def translated(ranks: Sequence[int], group: MPI.Group, other: MPI.Group) -> list[int]:
    """Return the ranks in `other` of some ranks of `group`; MPI.UNDEFINED for those outside."""
    numbers, found = (ctypes.c_int * len(ranks))(*ranks), (ctypes.c_int * len(ranks))()
    one, two = _Handle(group.handle), _Handle(other.handle)
    _call("MPI_Group_translate_ranks", one, len(ranks), numbers, two, found)
    return list(found)


def return_errors(comm: MPI.Comm) -> None:
    """Set MPI.ERRORS_RETURN on a communicator: its errors become exceptions."""
    handler = _Handle(MPI.ERRORS_RETURN.handle)
    _call("MPI_Comm_set_errhandler", _Handle(comm.handle), handler)


def free(group: MPI.Group) -> None:
    """Free a group; its Python object must not be used again."""
    _call("MPI_Group_free", ctypes.byref(_Handle(group.handle)))
