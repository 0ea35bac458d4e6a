"""The rows of ``han bench --left``: every collective in every form, whoever carries it out.

They show calls beside mpi4py's that other rows do not: nonblocking and persistent ones of every
collective, and objects, which are the MPI library's between nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from mpi4py import MPI

from han.common.units import format_size
from han.measure.bench_calls import Buffers, Case, prepared
from han.measure.modes import Mode
from han.measure.program_rows import ProgramRow, Work
from han.model.collectives import ROWS as COLLECTIVES

LEFT = "left"  # the group
BYTES = (8, 4 << 10, 256 << 10)  # of a message, or of a block
MIDDLE = 4 << 10  # of nonblocking and persistent calls
IN_OBJECTS = (8, 1 << 10, 4 << 10, 16 << 10, 64 << 10)
OBJECTS = (
    "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan", "exscan",
)  # fmt: skip
REDUCING = ("reduce", "allreduce", "scan", "exscan")


def _buffers(mode: Mode, comm: MPI.Intracomm, name: str, nbytes: int) -> Work:
    if (name, mode) == ("scatter", Mode.PERSISTENT) and MPI.get_vendor()[0] == "Intel MPI":
        raise NotImplementedError("Intel MPI's own fails between nodes: Invalid communicator")
    case = Case(name, nbytes)
    buffers = Buffers(case, comm.Get_rank(), comm.Get_size())
    buffers.reset()
    arguments = buffers.arguments()
    if name == "reduce_scatter":  # han's row is Reduce_scatter_block, which takes no counts
        counts = [case.count] * comm.Get_size()
        arguments = (*arguments[:2], counts, *arguments[2:])
    made = prepared(comm, name.capitalize(), arguments, mode)
    results = [] if buffers.recv is None else [buffers.recv]
    return Work(made.call, results, free=made.free, kept=[buffers])


def _object(comm: MPI.Intracomm, name: str, nbytes: int) -> Work:
    item: Any = np.zeros(nbytes, np.uint8).tobytes()
    if name in ("scatter", "alltoall"):
        item = [item] * comm.Get_size()
    elif name in REDUCING:
        item = np.zeros(nbytes // 8)
    return Work(partial(getattr(comm, name), item))


def _rows(names: Sequence[str], form: str, mode: Mode, nbytes: int) -> Iterator[ProgramRow]:
    for name in names:
        size = f" of {format_size(nbytes)}" if COLLECTIVES[name].recv else ""
        text = form.format(name.capitalize() if form != "I{}" else name)
        yield ProgramRow(LEFT, f"{text}{size}", partial(_buffers, mode, name=name, nbytes=nbytes))


def _all_rows() -> Iterator[ProgramRow]:
    names = [*COLLECTIVES]
    for nbytes in BYTES:
        some = [n for n in names if COLLECTIVES[n].recv or nbytes == BYTES[0]]
        yield from _rows(some, "{}", Mode.BLOCKING, nbytes)
    yield from _rows(names, "I{}", Mode.NONBLOCKING, MIDDLE)
    yield from _rows(names, "{}_init", Mode.PERSISTENT, MIDDLE)
    for nbytes, name in product(IN_OBJECTS, OBJECTS):
        text = f"{name} of an object of {format_size(nbytes)}"
        yield ProgramRow(LEFT, text, partial(_object, name=name, nbytes=nbytes))


ROWS = tuple(_all_rows())
