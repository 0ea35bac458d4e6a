"""User operations on derived types: each rank's type may have a layout of its own."""

import ctypes
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from _support import FORMS, WORLD, comms, finish, in_python, method_of
from mpi4py import MPI

import han

COUNT = 3  # elements of a block
BASE, ROOM = 64, 128  # bytes in front of element 0; words of a buffer
PERMUTED = [((0, 4), 0, 8), ((4, 0), 0, 8), ((0, 12), 0, 16), ((8, 4), 0, 12)]
OUTSIDE = [((-8, 0), -8, 16), ((8, 12), 8, 8), ((0, 12), 0, 20)]
usual = pytest.mark.mpi(ranks=[1, 2, 3, 4], timeout=120, unit="s")


class Layout:
    """A type of two int32 at displacements from an element, and an operation that adds them."""

    def __init__(self, places: Sequence[int], lower: int, extent: int) -> None:
        plain = MPI.INT32_T.Create_hindexed([1, 1], places)
        self.kind = plain.Create_resized(lower, extent).Commit()
        plain.Free()
        self.places, self.extent = places, extent
        self.op = MPI.Op.Create(self._add, commute=True)

    def _add(self, x: MPI.buffer, y: MPI.buffer, kind: MPI.Datatype) -> None:
        for at in self.at(self._count(x)):
            a, b = (ctypes.c_int32.from_address(m.address + int(at)) for m in (x, y))
            b.value += a.value

    def _count(self, memory: MPI.buffer) -> int:
        return max(1, memory.nbytes // max(abs(self.extent), 1))

    def at(self, count: int) -> np.ndarray:
        return np.add.outer(np.arange(count) * self.extent, self.places).ravel()

    def buffer(self, count: int, values: Sequence[int] = ()) -> tuple[np.ndarray, list]:
        memory = np.full(ROOM, -1, np.int32)
        if len(values):
            memory[self.words(count)] = values
        return memory, [memory[BASE // 4 :], count, self.kind]

    def words(self, count: int) -> np.ndarray:
        return (BASE + self.at(count)) // 4

    def free(self) -> None:
        self.op.Free()
        self.kind.Free()


def layouts(rank: int) -> Iterator[Layout]:
    """Yield the layouts of a rank: alike on all ranks, then another one on each."""
    for case in (*PERMUTED, *OUTSIDE):
        yield Layout(*case)
    for shift in range(2):
        yield Layout(*PERMUTED[(rank + shift) % 4])
        yield Layout(*(PERMUTED + OUTSIDE)[(rank * 3 + shift) % 7])


def call(comm: han.Comm, name: str, send: list, recv: list, one: Layout) -> None:
    """Make a call in its blocking, nonblocking and persistent form, one after the other."""
    more = {"Reduce": (0,)}.get(name, ())
    for form in FORMS:
        finish(method_of(comm, form, name)(send, recv, one.op, *more))


def test_sums_are_right_whatever_the_layouts(mpi_ranks):
    size, rank = WORLD.size, WORLD.rank
    scale = size * (size + 1) // 2
    for comm in comms():
        for one in layouts(rank):
            for name in ("Allreduce", "Reduce", "Reduce_scatter_block"):
                blocks = size if name == "Reduce_scatter_block" else 1
                values = np.arange(1, 2 * COUNT * blocks + 1)
                _, send = one.buffer(COUNT * blocks, values * (rank + 1))
                memory, recv = one.buffer(COUNT)
                send[1] = COUNT  # of a block
                call(comm, name, send, recv, one)
                expected = np.full(ROOM, -1, np.int32)
                if name != "Reduce" or rank == 0:
                    part = values.reshape(blocks, -1)[rank if blocks > 1 else 0]
                    expected[one.words(COUNT)] = part * scale
                assert memory.tolist() == expected.tolist(), (name, one.places, one.extent)
            one.free()


def test_elements_in_place(mpi_ranks):
    size, rank = WORLD.size, WORLD.rank
    for comm in comms():
        for one in layouts(rank):
            values = np.arange(1, 2 * COUNT + 1)
            memory, recv = one.buffer(COUNT, values * (rank + 1))
            comm.Allreduce(MPI.IN_PLACE, recv, one.op)
            expected, _ = one.buffer(COUNT, values * (size * (size + 1) // 2))
            assert memory.tolist() == expected.tolist(), (one.places, one.extent)
            one.free()


def test_two_derived_types_are_refused_as_by_mpi4py(mpi_ranks):
    one, other = Layout(*PERMUTED[0]), Layout(*PERMUTED[1])
    _, send = one.buffer(COUNT)
    _, recv = other.buffer(COUNT)
    for comm in itertools.chain([WORLD], comms()):
        with pytest.raises(ValueError, match=r"must be the same|mismatch"):
            comm.Allreduce(send, recv, one.op)
    one.free()
    other.free()


def test_types_without_data(mpi_ranks):
    size = WORLD.size
    empty = MPI.DOUBLE.Create_contiguous(0).Commit()
    nothing = MPI.Op.Create(lambda x, y, kind: None)
    a, r = np.arange(4.0), np.full(4, 7.0)
    for comm in comms():
        comm.Allgatherv([a, 3, empty], [r, [3] * size, [0] * size, empty])
        comm.Allreduce([a, 3, empty], [r, 3, empty], op=nothing)
        comm.Reduce_scatter([a, size * 3, empty], [r, 3, empty], [3] * size, op=nothing)
        comm.Reduce_scatter(
            [a, 3 * size - 3, empty], [r, 3 * (comm.rank > 0), empty],
            [3 * (k > 0) for k in range(size)], op=nothing,
        )  # fmt: skip
        assert r.tolist() == [7.0] * 4
    nothing.Free()
    empty.Free()


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_many_and_large_elements(mpi_ranks):
    """Elements of more than a step are combined one by one, small ones in several steps."""
    size, op = WORLD.size, MPI.Op.Create(in_python(np.add), commute=True)
    for length, count in ((2, 200_000), (200_000, 3)):  # words of an element, elements
        kind = MPI.INT64_T.Create_vector(length // 2, 1, 1).Commit()
        whole = kind.Create_contiguous(2).Commit()
        for comm in comms():
            mine = np.arange(length * count) * (comm.rank + 1)
            total = np.zeros(length * count, np.int64)
            comm.Allreduce([mine, count, whole], [total, count, whole], op)
            assert (total == np.arange(length * count) * size * (size + 1) // 2).all()
        whole.Free()
        kind.Free()
    op.Free()
