"""Calls of MPI that mpi4py makes with the interpreter's lock held, made without it.

Some libraries lock themselves in these calls, and also while they run a reduction operation. One
written in Python needs the interpreter's lock: the two threads would wait for each other.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from functools import cache

from mpi4py import MPI

_Handle = ctypes.c_void_p if MPI._sizeof(MPI.COMM_WORLD) > 4 else ctypes.c_uint


@cache
def _library() -> ctypes.CDLL:
    """Return the library that mpi4py loaded, by way of mpi4py's own module."""
    return ctypes.CDLL(MPI.__file__)


def _call(name: str, *arguments: object) -> None:
    error = getattr(_library(), name)(*arguments)
    if error:
        raise MPI.Exception(error)


def is_commutative(op: MPI.Op) -> bool:
    """Tell whether operands of a reduction may change places."""
    flag = ctypes.c_int()
    _call("MPI_Op_commutative", _Handle(MPI._handleof(op)), ctypes.byref(flag))
    return bool(flag.value)


@contextlib.contextmanager
def group_of(comm: MPI.Intracomm, ranks: Sequence[int]) -> Iterator[MPI.Group]:
    """Make a group of some ranks of a communicator, and free it at the end."""
    everyone, some = comm.Get_group(), _Handle()
    numbers = (ctypes.c_int * len(ranks))(*ranks)
    try:
        whole = _Handle(MPI._handleof(everyone))
        _call("MPI_Group_incl", whole, len(ranks), numbers, ctypes.byref(some))
    finally:
        free(everyone)
    group = MPI.Group.fromhandle(some.value or 0)
    try:
        yield group
    finally:
        free(group)


def ranks_of(group: MPI.Group, comm: MPI.Intracomm) -> list[int]:
    """Return which ranks of a communicator a group's members are; MPI.UNDEFINED: none."""
    everyone = comm.Get_group()
    try:
        return translated(range(group.Get_size()), group, everyone)
    finally:
        free(everyone)


def translated(ranks: Sequence[int], group: MPI.Group, other: MPI.Group) -> list[int]:
    """Return what ranks of a group are in another; MPI.UNDEFINED: none."""
    numbers, found = (ctypes.c_int * len(ranks))(*ranks), (ctypes.c_int * len(ranks))()
    one, two = _Handle(MPI._handleof(group)), _Handle(MPI._handleof(other))
    _call("MPI_Group_translate_ranks", one, len(ranks), numbers, two, found)
    return list(found)


def return_errors(comm: MPI.Comm) -> None:
    """Let a communicator's errors be exceptions."""
    handler = _Handle(MPI._handleof(MPI.ERRORS_RETURN))
    _call("MPI_Comm_set_errhandler", _Handle(MPI._handleof(comm)), handler)


def free(group: MPI.Group) -> None:
    """Free a group; its Python object is not to be used again."""
    _call("MPI_Group_free", ctypes.byref(_Handle(MPI._handleof(group))))
