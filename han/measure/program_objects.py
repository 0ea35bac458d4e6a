"""Collectives of Python objects, mpi4py's lower-case methods, as programs use them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from han.measure.program_rows import ProgramRow, Work

OBJECTS = "objects"
ELEMENTS = 2048  # numbers of the 16 KiB of an array


class Shown:
    """The last result of a method, as a number for comparison."""

    found: Any = None

    def __array__(self, *how: Any, **more: Any) -> Any:
        return np.array(0.0 if self.found is None else np.sum(self.found))


def _work(make: Callable[[MPI.Intracomm], Any], comm: MPI.Intracomm) -> Work:
    shown = Shown()

    def call() -> None:
        shown.found = make(comm)

    return Work(call, [shown])


def _of_array(make: Callable[[MPI.Intracomm, Any], Any], comm: MPI.Intracomm) -> Work:
    array = np.full(ELEMENTS, comm.Get_rank() + 1.0)
    return _work(lambda comm: make(comm, array), comm)


ROWS = tuple(
    ProgramRow(OBJECTS, name, partial(_work, make))
    for name, make in {
        "allreduce(int)": lambda comm: comm.allreduce(3),
        "allreduce(float, MAX)": lambda comm: comm.allreduce(2.5, MPI.MAX),
        "bcast(tuple)": lambda comm: comm.bcast((1, 2.5)),
        "allgather(int)": lambda comm: comm.allgather(3),
        "gather(float)": lambda comm: comm.gather(2.5),
        "reduce(float)": lambda comm: comm.reduce(2.5),
        "scatter(int)": lambda comm: comm.scatter([*range(comm.size)]),
        "allreduce(NumPy scalar)": lambda comm: comm.allreduce(np.float64(2.5)),
    }.items()
) + tuple(
    ProgramRow(OBJECTS, name, partial(_of_array, make))
    for name, make in {
        "bcast(array of 16KiB)": lambda comm, array: comm.bcast(array),
        "allgather(array of 16KiB)": lambda comm, array: comm.allgather(array),
        "gather(array of 16KiB)": lambda comm, array: comm.gather(array),
        "allreduce(array of 16KiB)": lambda comm, array: comm.allreduce(array),
        "allgather(list of 2048 floats)": lambda comm, array: comm.allgather(array.tolist()),
    }.items()
)
