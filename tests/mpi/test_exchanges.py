"""Exchanges through shared memory, on 1 to 9 ranks of even, uneven and interleaved machines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from _support import WORLD, Call, Checker, Reference, comm_with, interleaved, opened
from mpi4py import MPI

WRITING = [
    {"algorithm": algorithm, "chunk": chunk, "writes": True}
    for algorithm in ("recursive", "cyclic", "copyin")
    for chunk in ("2KiB", "1MiB")
]
COUNTS = (0, 1, 6, 513, 1000, 9001)


def calls_of(size: int) -> Iterator[Call]:
    """Yield allreduces of several sizes, types and operations, in place and not, and barriers."""
    for count, in_place in itertools.product(COUNTS, (False, True)):
        yield Call("allreduce", count, "float64", "sum", 0, in_place)
        yield Call("allreduce", count, "int32", "max", 0, not in_place)
        yield Call("barrier")
    yield from (Call("allreduce", 3000, "int64", "prod") for _ in range(6))


def shapes_of(size: int) -> list[list[int]]:
    """Return the sockets of the ranks: one, uneven ones, and interleaved ones."""
    return [[0] * size, [r // 3 for r in range(size)], interleaved(size)[0], [*range(size)]]


def comms_of_all_sizes() -> Iterator[MPI.Intracomm]:
    """Yield communicators of 1 to 9 ranks to those who are in them."""
    for size in range(1, WORLD.size + 1):
        comm = WORLD.Split(0 if WORLD.rank < size else MPI.UNDEFINED, WORLD.rank)
        if comm != MPI.COMM_NULL:
            yield comm
            comm.Free()
    WORLD.Barrier()


@pytest.mark.mpi(ranks=9, timeout=300, unit="s")
def test_exchanges_that_write_on_one_to_nine_ranks(mpi_ranks):
    for comm in comms_of_all_sizes():
        reference = Reference(comm.Dup())
        shapes = itertools.cycle(shapes_of(comm.size))
        for use, nodes in zip(WRITING, itertools.islice(shapes, comm.size, None), strict=False):
            levels = [nodes, [0] * comm.size]
            force = {"levels": {"network": {"submodule": "exchange", **use}}}
            with opened(comm_with(comm, levels, force, shared_to=1)) as ours:
                check = Checker(ours, reference)
                for call in calls_of(comm.size):
                    check(call, (comm.size, use, nodes))
                check.agree()
                if comm.size > 1 and len(set(nodes)) > 1:
                    assert "writes True" in str(ours.explain("allreduce", nbytes=80_000))
