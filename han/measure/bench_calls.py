"""The calls of a benchmark: buffers and arguments of each collective, as mpi4py takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentError
from han.common.suggest import expect_known
from han.common.units import format_size
from han.measure.modes import Mode
from han.memory.arena import sharing
from han.model.collectives import ROWS, Collective
from han.model.element_types import OPS, element_type, ops_of

Array = np.ndarray[Any, np.dtype[Any]]
Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One collective of one size. `nbytes` is the size of the message, or of one block."""

    collective: str
    nbytes: int
    dtype: str = "float64"
    op: str = "sum"
    root: int = 0

    @property
    def shape(self) -> Collective:
        """The row of the collective in the table of collectives."""
        return ROWS[self.collective]

    @property
    def count(self) -> int:
        """The number of elements of the message, or of one block."""
        return self.nbytes // element_type(self.dtype).itemsize

    def describe(self) -> str:
        """Return collective and size: ``allreduce of 64KiB``."""
        return f"{self.collective} of {format_size(self.nbytes)}"


def check_case(case: Case, size: int) -> None:
    """Raise ArgumentError for a case that cannot be measured on `size` ranks."""
    expect_known("collective", case.collective, ROWS)
    if not 0 <= case.root < size:
        raise ArgumentError(f"root {case.root} is not in 0..{size - 1}")
    expect_known("operation", case.op, OPS)
    dtype = element_type(case.dtype)
    if case.nbytes % dtype.itemsize:
        raise ArgumentError(
            f"{case.describe()}: not a whole number of {dtype.name} ({dtype.itemsize} bytes each)"
        )
    if case.shape.reduces and case.op not in ops_of(dtype.name):
        raise ArgumentError(
            f"{case.op} is not defined on {dtype.name}; defined: {', '.join(ops_of(dtype.name))}"
        )


class Buffers:
    """One rank's NumPy arrays for a case, the same for han and for the MPI library.

    With `shared`, they are shared arrays.
    """

    def __init__(self, case: Case, rank: int, size: int, shared: bool = False) -> None:
        self.case, self.rank, self.size = case, rank, size
        with sharing() if shared else nullcontext():
            self.send = self._array("send")
            self.recv = self._array("recv")
        if self.send is not None:
            self.send[...] = self._values(self.send)

    def _array(self, which: str) -> Array | None:
        shape = self.case.shape
        amount = getattr(shape, which)
        if not amount or (shape.at_root == which and self.rank != self.case.root):
            return None
        blocks = self.size if amount == "each" else 1
        return np.zeros(self.case.count * blocks, element_type(self.case.dtype))

    def _values(self, like: Array) -> Array:
        """Return small whole numbers, so that every order of summation gives the same bits."""
        mixed = np.arange(like.size, dtype=np.int64) * 40503 + 30011 * self.rank
        return np.asarray((mixed >> 5) % 2 + 1, like.dtype)

    def reset(self) -> None:
        """Set the receive buffer to its state before a call."""
        if self.recv is None:
            return
        at_source = self.case.collective == "bcast" and self.rank == self.case.root
        self.recv[...] = self._values(self.recv) if at_source else 0

    def write(self) -> None:
        """Write the data that this rank sends, as a program does that computes it."""
        at_source = self.case.collective == "bcast" and self.rank == self.case.root
        mine = self.recv if at_source else self.send
        if mine is not None:
            mine.fill(1)

    def result(self) -> Array:
        """Return a copy of the receive buffer as bytes; empty on a rank without one."""
        kept = self.recv if self.recv is not None else np.zeros(0)
        return np.frombuffer(kept.tobytes(), np.uint8)

    def arguments(self) -> tuple[object, ...]:
        """Return the arguments of the call, in mpi4py's order."""
        case, shape = self.case, self.case.shape
        send: tuple[object, ...] = (self._blocks("send"),) if shape.send else ()
        recv: tuple[object, ...] = (self._blocks("recv"),) if shape.recv else ()
        op: tuple[object, ...] = (getattr(MPI, case.op.upper()),) if shape.reduces else ()
        return (*send, *recv, *op, *((case.root,) if shape.rooted else ()))

    def _blocks(self, which: str) -> object:
        """Return a buffer, with the sizes of its blocks if the call takes them."""
        array, shape = self.send if which == "send" else self.recv, self.case.shape
        if array is None or not shape.own or getattr(shape, which) != "each":
            return array
        return [array, [array.size // self.size] * self.size]


@dataclass
class Prepared:
    """A call to time, its persistent request, and a note if it is not of the requested mode."""

    call: Call
    request: Any = None
    note: str = ""

    def free(self) -> None:
        """Release a persistent request."""
        if self.request is not None:
            self.request.Free()


def prepare(comm: MPI.Intracomm, buffers: Buffers, mode: Mode) -> Prepared:
    """Return the call of a case on `comm`, a communicator of MPI or of han; collective."""
    case, arguments = buffers.case, buffers.arguments()
    try:
        return prepared(comm, case.shape.method, arguments, mode)
    except (NotImplementedError, MPI.Exception):
        if mode is not Mode.PERSISTENT:
            raise
    blocking = prepared(comm, case.shape.method, arguments, Mode.BLOCKING)
    blocking.note = f"the MPI library has no persistent {case.collective}: blocking instead"
    return blocking


def prepared(comm: MPI.Intracomm, method: str, arguments: Sequence[Any], mode: Mode) -> Prepared:
    """Return a call of a method of `comm` with some arguments; collective."""
    if mode is Mode.BLOCKING:
        return Prepared(partial(getattr(comm, method), *arguments))
    if mode is Mode.NONBLOCKING:
        start = partial(getattr(comm, "I" + method.lower()), *arguments)
        return Prepared(lambda: start().Wait())
    request = getattr(comm, method + "_init")(*arguments)
    return Prepared(partial(restart, request.Start, request.Wait), request)


def restart(start: Call, wait: Call) -> None:
    """Start a persistent request, and wait for it."""
    start()
    wait()
