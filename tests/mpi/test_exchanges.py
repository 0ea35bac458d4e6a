"""Exchanges through shared memory, on 1 to 9 ranks of even, uneven and interleaved machines."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from _support import Call, Checker, Reference, comm_with, comms_of, interleaved, opened
from mpi4py import MPI

WRITING = [
    {"algorithm": algorithm, "chunk": chunk, "writes": True}
    for algorithm in ("recursive", "cyclic", "copyin")
    for chunk in ("2KiB", "1MiB")
]
COUNTS = (0, 1, 6, 513, 1000, 9001)


def calls_of(size: int) -> Iterator[Call]:
    """Yield allreduces of several sizes, types and operations, in place and not, and barriers."""
    for k, count in enumerate(COUNTS):
        yield Call("allreduce", count, "float64", "sum", 0, k % 2 == 0)
        yield Call("allreduce", count, "int32", "max", 0, k % 2 == 1)
        yield Call("barrier")
    yield from (Call("allreduce", 3000, "int64", "prod") for _ in range(6))


def shapes_of(size: int) -> list[list[int]]:
    """Return the sockets of the ranks: one, uneven ones, and interleaved ones."""
    return [[0] * size, [r // 3 for r in range(size)], interleaved(size)[0], [*range(size)]]


# So many ranks at a time; libraries take turns at these variants of a test, as at all others.
on_sizes = pytest.mark.parametrize(
    "sizes", [(1, 4, 7), (2, 5, 8), (3, 6, 9)], ids=["147", "258", "369"]
)


@pytest.mark.mpi(ranks=9, timeout=300, unit="s")
@on_sizes
def test_exchanges_that_write(mpi_ranks, sizes):
    for comm in comms_of(sizes):
        reference = Reference(comm.Dup())
        shapes = itertools.cycle(shapes_of(comm.size))
        for use, nodes in zip(WRITING, itertools.islice(shapes, comm.size, None), strict=False):
            levels = [nodes, [0] * comm.size]
            force = {"levels": {"network": {"submodule": "exchange", **use}}}
            with opened(comm_with(comm, levels, force, shared_to=1)) as ours:
                Checker(ours, reference).every(calls_of(comm.size), (comm.size, use, nodes))
                if comm.size > 1 and len(set(nodes)) > 1:
                    assert "writes True" in str(ours.explain("allreduce", nbytes=80_000))


@pytest.mark.mpi(ranks=9, timeout=120, unit="s")
@on_sizes
def test_first_members_of_trees_combine_alone(mpi_ranks, sizes):
    """Reductions on both sides of `whole`, in two levels that share memory."""
    for comm in comms_of(sizes):
        reference = Reference(comm.Dup())
        tree = {"submodule": "exchange", "algorithm": "tree", "whole": "40KiB"}
        for nodes in shapes_of(comm.size):
            force = {"levels": {"level0": tree, "network": tree}}
            with opened(comm_with(comm, [nodes, [0] * comm.size], force, shared_to=1)) as ours:
                check = Checker(ours, reference)
                for count, root in itertools.product((1, 600, 5000, 6001), {0, comm.size - 1}):
                    for turn in range(3):
                        check(Call("reduce", count, "int64", "sum", root, turn == 1), nodes)
                    check(Call("allreduce", count, "float64", "sum"), nodes)
                check.agree()


READING = ("recursive", "cyclic", "tree")


@pytest.mark.mpi(ranks=9, timeout=120, unit="s")
@on_sizes
def test_shared_arrays_are_read_where_they_are(mpi_ranks, sizes):
    for comm in comms_of(sizes):
        for algorithm, chunk in itertools.product(READING, ("4KiB", "1MiB")):
            level = {"submodule": "exchange", "algorithm": algorithm, "chunk": chunk}
            force = {"levels": {"network": level}}
            with opened(comm_with(comm, [[0] * comm.size], force, shared_to=0)) as ours:
                read, large = run_on_shared_arrays(ours, reduces=algorithm == "tree")
                assert read == (large if comm.size > 1 else 0), (comm.size, algorithm, chunk)


def run_on_shared_arrays(comm, reduces):
    """Make calls on shared arrays, in place and not.

    Returns how often ranks read those of peers, and the number of calls of more than a page.
    """
    before, large = comm._han.parts.engines.own.alternatives, 0
    for turn, count in enumerate((100, 40_001, 9000, 40_001)):
        send, recv = comm.empty(count, "i8"), comm.empty(count, "i8")
        own = np.arange(count) * (comm.rank + turn)
        total = np.arange(count) * sum(r + turn for r in range(comm.size))
        roots = {0, comm.size - 1} if reduces else set()
        large += (4 + len(roots)) * (count * 8 > 4096)
        for in_place in (False, True, True, False):
            send[:], recv[:] = own, own if in_place else 0
            comm.Allreduce(MPI.IN_PLACE if in_place else send, recv)
            np.testing.assert_array_equal(recv, total)
            np.testing.assert_array_equal(send, own)
            send[:] = 0  # peers have read it
        for root in roots:
            send[:], recv[:] = own, 0
            comm.Reduce(send, recv if comm.rank == root else None, root=root)
            send[:] = 0
            np.testing.assert_array_equal(recv, total if comm.rank == root else 0 * total)
    return comm._han.parts.engines.own.alternatives - before, large


@pytest.mark.mpi(ranks=9, timeout=120, unit="s")
@on_sizes
def test_exchanges_that_follow_sockets(mpi_ranks, sizes):
    """In cells and in messages; the built-in choice serves where groups do not fit."""
    for comm in comms_of(sizes):
        reference = Reference(comm.Dup())
        for turn, (algorithm, inner) in enumerate(
            itertools.product(("recursive", "cyclic", "tree"), (2, 3))
        ):
            level = {"submodule": "exchange", "algorithm": algorithm, "inner": inner}
            force = {"levels": {"network": level}}
            shared_to = -1 if turn % 2 and algorithm != "tree" else 0
            with opened(comm_with(comm, [[0] * comm.size], force, shared_to=shared_to)) as ours:
                about = comm.size, algorithm, inner, shared_to
                Checker(ours, reference).every(calls_of(comm.size), about)
                explained = str(ours.explain("allreduce", nbytes=80_000))
                fits = comm.size > 1 and (comm.size % inner == 0 or comm.size < inner)
                assert (f"(inner {inner})" in explained) == fits, explained
                assert (f"are not groups of {inner}" in explained) == (comm.size > 1 and not fits)
