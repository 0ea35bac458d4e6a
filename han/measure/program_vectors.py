"""Rows of ``han bench --programs``: blocks whose sizes two ranks know, scans, and neighbours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from math import isqrt
from typing import Any

import numpy as np
from mpi4py import MPI

from han.common.units import format_size
from han.measure.bench_calls import Array, restart
from han.measure.program_rows import COUNT, LONGER, ProgramRow, Work, pair

VECTORS = "vectors"  # the group
LENGTHS = range(1, 26)  # numbers in a block, one after the other
GAP = 2  # numbers between blocks


def _whole(comm: MPI.Intracomm, count: int = COUNT) -> tuple[Array, Array]:
    """Return an array with a block to send to each rank, and one to receive as many."""
    return pair(comm, count * comm.Get_size())


def _gatherv(comm: MPI.Intracomm) -> Work:
    (_, recv), (send, _) = _whole(comm), pair(comm)
    counts = [COUNT] * comm.Get_size()
    return Work(partial(comm.Gatherv, send, [recv, counts], 0), [recv])


def _scatterv(comm: MPI.Intracomm) -> Work:
    size, (_, recv) = comm.Get_size(), pair(comm)
    send = np.arange(float((COUNT + GAP) * size))
    places = [(COUNT + GAP) * rank for rank in range(size)]
    given = [send, ([COUNT] * size, places), MPI.DOUBLE]
    return Work(partial(comm.Scatterv, given, recv, 0), [recv])


def _new_sizes(make: Callable[[MPI.Intracomm, int], Work], comm: MPI.Intracomm) -> Work:
    works = [make(comm, count) for count in LENGTHS]

    def call() -> None:
        for work in works:
            work.call()

    return Work(call, [result for work in works for result in work.results], len(works))


def _alltoallv(comm: MPI.Intracomm, count: int) -> Work:
    (send, recv), counts = _whole(comm, count), [count] * comm.Get_size()
    return Work(partial(comm.Alltoallv, [send, counts], [recv, counts]), [recv])


def _scan(comm: MPI.Intracomm, count: int) -> Work:
    send, recv = pair(comm, count)
    return Work(partial(comm.Scan, send, recv), [recv])


def _in_place(comm: MPI.Intracomm) -> Work:
    size, rank = comm.Get_size(), comm.Get_rank()
    both = np.repeat(np.arange(size) + float(rank), COUNT)  # the same after any number of calls
    counts = [COUNT] * size
    return Work(partial(comm.Alltoallv, MPI.IN_PLACE, [both, counts]), [both])


def _reversed(comm: MPI.Intracomm) -> Work:
    (send, recv), size = _whole(comm), comm.Get_size()
    places = [COUNT * rank for rank in reversed(range(size))]
    blocks = [COUNT] * size, places
    return Work(partial(comm.Alltoallv, [send, blocks], [recv, blocks]), [recv])


def _of_columns(comm: MPI.Intracomm) -> Work:
    size = comm.Get_size()
    column = MPI.DOUBLE.Create_vector(COUNT, 1, size).Create_resized(0, 8).Commit()
    send, recv = np.arange(float(COUNT * size)) + comm.Get_rank(), np.zeros(COUNT * size)
    ones = [1] * size
    call = partial(comm.Alltoallv, [send, ones, column], [recv, ones, column])
    return Work(call, [recv], free=column.Free)


def _slabs(name: str, comm: MPI.Intracomm, nbytes: int) -> Work:
    """Turn rows of a matrix on each rank into columns, as a distributed FFT does.

    Each rank has about so many bytes of it.
    """
    size = comm.Get_size()
    side = max(1, isqrt(nbytes // 8 * size) // size) * size
    send = np.arange(float(side * side // size)) + comm.Get_rank()
    recv, part = np.zeros(send.size), side // size
    rows, columns = (part, side), (side, part)
    types = [
        [MPI.DOUBLE.Create_subarray(shape, (part, part), start).Commit() for start in starts]
        for shape, starts in (
            (rows, [(0, k) for k in range(0, side, part)]),
            (columns, [(k, 0) for k in range(0, side, part)]),
        )
    ]
    numbers = [1] * size, [0] * size
    given = [send, numbers, types[0]], [recv, numbers, types[1]]
    method = getattr(comm, name)
    call = (lambda: method(*given).Wait()) if name[0] == "I" else partial(method, *given)

    def free() -> None:
        for kind in chain(*types):
            kind.Free()

    return Work(call, [recv], free=free)


def _from_init_to_free(comm: MPI.Intracomm) -> Work:
    (send, recv), counts = _whole(comm), [COUNT] * comm.Get_size()

    def call() -> None:
        request = comm.Alltoallv_init([send, counts], [recv, counts])
        restart(request.Start, request.Wait)
        request.Free()

    return Work(call, [recv])


def _line(comm: MPI.Intracomm) -> Any:
    return comm.Create_cart([comm.Get_size()], [False])


def _half(comm: MPI.Intracomm) -> Any:
    """Let each rank send to the next half of all ranks."""
    rank, size = comm.Get_rank(), comm.Get_size()
    steps = range(1, size // 2 + 1)
    sources, targets = ([(rank + way * k) % size for k in steps] for way in (-1, 1))
    return comm.Create_dist_graph_adjacent(sources, targets)


def _neighbours(
    shape: Callable[[MPI.Intracomm], Any], name: str, comm: MPI.Intracomm, count: int = COUNT
) -> Work:
    """Call a collective of neighbours, with blocks of so many numbers."""
    shaped = shape(comm)
    shaped.Barrier()  # nonblocking calls do not set a communicator up
    sources, targets = map(len, shaped.inoutedges)
    send, _ = pair(shaped, count * (1 if "allgather" in name else targets))
    recv = np.zeros(count * sources)
    given: list[Any] = [send, recv]
    if name.endswith("v"):
        given = [[send, [count] * targets], [recv, [count] * sources]]
    method = getattr(shaped, name)
    call = (lambda: method(*given).Wait()) if name[0] == "I" else partial(method, *given)
    return Work(call, [recv], free=shaped.Free)


def _halo(side: int, comm: MPI.Intracomm) -> Work:
    """Exchange the outer columns of a matrix on each rank with neighbours, as a stencil does."""
    line = comm.Create_cart([comm.Get_size()], [False])
    line.Barrier()
    whole, column = (side, side), (side, 1)
    matrix = np.arange(float(side * side)).reshape(whole) + comm.Get_rank()
    inner, outer = (
        [MPI.DOUBLE.Create_subarray(whole, column, (0, k)).Commit() for k in places]
        for places in ((1, side - 2), (0, side - 1))
    )
    numbers = [1, 1], [0, 0]
    call = partial(line.Neighbor_alltoallw, [matrix, numbers, inner], [matrix, numbers, outer])

    def free() -> None:
        for kind in chain(inner, outer):
            kind.Free()
        line.Free()

    return Work(call, [matrix], free=free)


def _line_and_call(comm: MPI.Intracomm) -> Work:
    found: list[Any] = [np.zeros(0)]

    def call() -> None:
        work = _neighbours(_line, "Neighbor_alltoall", comm)
        work.call()
        found[:] = work.results
        work.free()

    return Work(call, found)


SLABS = (
    ("Alltoallw", 16 << 10), ("Alltoallw", 256 << 10), ("Ialltoallw", 256 << 10),
    ("Alltoallw", 4 << 20),
)  # fmt: skip
SIDES = 32, 512  # of matrices whose columns neighbours exchange
ON_LINE = "Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_allgather", "Ineighbor_alltoall"
ROWS = (
    ProgramRow(VECTORS, "Gatherv(a, [a, n])", _gatherv),
    ProgramRow(VECTORS, "Scatterv([a, (n, d), type], a)", _scatterv),
    ProgramRow(VECTORS, f"Alltoallv of {len(LENGTHS)} sizes", partial(_new_sizes, _alltoallv)),
    ProgramRow(VECTORS, "Alltoallv(IN_PLACE, [a, n])", _in_place),
    ProgramRow(VECTORS, "Alltoallv of blocks in another order", _reversed),
    ProgramRow(VECTORS, "Alltoallv of columns of a matrix", _of_columns),
    *(
        ProgramRow(
            VECTORS, f"{name} of slabs of {format_size(n)}", partial(_slabs, name, nbytes=n)
        )
        for name, n in SLABS
    ),
    ProgramRow(VECTORS, "Alltoallv_init, Start, Wait, Free", _from_init_to_free),
    ProgramRow(VECTORS, f"Scan of {len(LENGTHS)} sizes", partial(_new_sizes, _scan)),
    *(
        ProgramRow(VECTORS, f"{name} on a line", partial(_neighbours, _line, name))
        for name in ON_LINE
    ),
    ProgramRow(VECTORS, "Neighbor_alltoall of 64KiB on a line",
               partial(_neighbours, _line, "Neighbor_alltoall", count=LONGER)),
    *(
        ProgramRow(VECTORS, f"{name} to half of the ranks", partial(_neighbours, _half, name))
        for name in ("Neighbor_alltoall", "Neighbor_allgather")
    ),
    ProgramRow(VECTORS, "Neighbor_allgather of 64KiB to half of the ranks",
               partial(_neighbours, _half, "Neighbor_allgather", count=LONGER)),
    *(
        ProgramRow(VECTORS, f"Neighbor_alltoallw of columns of {side}", partial(_halo, side))
        for side in SIDES
    ),
    ProgramRow(VECTORS, "Create_cart, Neighbor_alltoall, Free", _line_and_call),
)  # fmt: skip
