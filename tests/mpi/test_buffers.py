"""Buffers in every spelling, elements of every kind, and user-defined operations."""

import array
import itertools

import numpy as np
import pytest
from _support import WORLD, comm_with, in_python, interleaved, opened, run
from mpi4py import MPI

import han
from han.message import message
from han.message.buffers import parse

usual = pytest.mark.mpi(ranks=[1, 4], timeout=60, unit="s")
on_six = pytest.mark.mpi(ranks=6, timeout=60, unit="s")
TOPOLOGIES = {
    "interleaved": interleaved,
    "one node": lambda n: [[0] * n] * 2,
    "uneven": lambda n: [[min(1, r // max(1, n - 2)) for r in range(n)], [0] * n],
    "one rank a node": lambda n: [list(range(n)), [0] * n],
}


def each_topology():
    for name, domains in TOPOLOGIES.items():
        with opened(comm_with(WORLD, domains(WORLD.size))) as comm:
            yield name, comm


def test_absolute_addresses_and_empty_buffers(mpi_ranks):
    with opened(comm_with(WORLD, interleaved(WORLD.size))) as comm:
        size, rank = comm.Get_size(), comm.Get_rank()
        data = np.full(4, float(rank))
        there = MPI.DOUBLE.Create_hindexed([4], [MPI.Get_address(data)]).Commit()
        comm.Bcast([MPI.BOTTOM, 1, there], size - 1)
        assert set(data) == {size - 1.0}
        there.Free()
        for empty in (np.empty(0), [np.ones(3), 0, MPI.DOUBLE], bytearray(), np.empty((0, 5))):
            comm.Bcast(empty)
        comm.Allreduce(np.empty(0), np.empty(0))
        comm.Reduce(np.empty(0), np.empty(0) if rank == 0 else None)
        comm.Allreduce(MPI.IN_PLACE, np.empty(0))
        number = np.array(5.0 + rank)  # an array without dimensions
        comm.Allreduce(MPI.IN_PLACE, number, MPI.MIN)
        assert number == 5.0


def test_memory_from_an_address_has_as_many_bytes_as_there_are_data(mpi_ranks):
    """A column of a matrix: the type spans more bytes than the memory says it has."""
    column = MPI.INT.Create_vector(3, 1, 10).Commit()
    for _, comm in each_topology():
        for turn in range(3):
            a = np.arange(30, dtype="i4").reshape(3, 10) + 100 * (comm.rank + turn)
            memory = MPI.buffer.fromaddress(a.ctypes.data + 4, 3 * 4)
            got = np.empty((comm.size, 3), "i4")
            comm.Allgather([memory, 1, column], got)
            first = a[:, 1] - 100 * comm.rank
            assert (got == first + 100 * np.arange(comm.size)[:, None]).all()
            comm.Bcast([memory, 1, column], root=0)
            assert (a[:, 1] == first).all()
        short = MPI.buffer.fromaddress(a.ctypes.data, 11)
        with pytest.raises(han.ArgumentError, match="11 bytes, 84 expected"):
            parse([short, 1, column], "sendbuf")
    column.Free()


def test_none_is_a_buffer_without_elements(mpi_ranks):
    with opened(comm_with(WORLD, interleaved(WORLD.size))) as comm:
        gap = MPI.INT.Create_resized(0, 24).Commit()
        for nothing in (
            [None, 0, MPI.INT], [None, None, MPI.INT], [None, MPI.INT], [None, (0, 0), MPI.INT],
            [None, (0, None), "i"], [None, 0, 0, MPI.INT], [None, 0, gap],
        ):  # fmt: skip
            comm.Bcast(nothing if comm.rank else [np.empty(3, "i"), 0, MPI.INT])
            comm.Ibcast(nothing).Wait()
            op = MPI.SUM if gap not in nothing else MPI.Op.Create(larger, commute=True)
            comm.Allreduce(nothing, nothing, op)
            comm.Allreduce(MPI.IN_PLACE, nothing, op)
            comm.Reduce(nothing, nothing if comm.rank == 0 else None, op)
        gap.Free()


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (None, TypeError, "buf is None: expected a buffer"),
        ([None], TypeError, "buf is None: expected a buffer"),
        ([None, 0], TypeError, "buf is None: expected a buffer"),
        ([None, 3, MPI.INT], ValueError, "buf: None holds no elements, 3 expected"),
        ([None, 0, 5, MPI.INT], ValueError, "buf: None holds no elements, displacement is 5"),
    ],
)
def test_none_that_is_no_buffer(spec, error, message):
    with pytest.raises(error, match=f"^{message}"):
        parse(spec, "buf")


def test_memory_stays_where_it_is_while_a_call_is_outstanding(mpi_ranks):
    with opened(comm_with(WORLD, interleaved(WORLD.size))) as comm:
        for kind, more in ((bytearray, b"x"), (lambda n: array.array("b", bytes(n)), [1])):
            data = kind(1 << 20)
            for wrap in (lambda x: x, lambda x: [x, MPI.BYTE], memoryview):
                spec = wrap(data)
                request = comm.Ibcast(spec)
                del spec
                with pytest.raises(BufferError):
                    data.extend(more)
                request.Wait()
                data.extend(more)
                comm.Bcast(wrap(data))
                data.extend(more)


@on_six
def test_long_doubles(mpi_ranks):
    for topology, comm in each_topology():
        size, rank = comm.Get_size(), comm.Get_rank()
        for n in (1, 900):
            send, recv = np.full(n, rank, "g"), np.empty(n, "g")
            comm.Allreduce(send, recv)
            assert set(recv) == {size * (size - 1) / 2}, topology
            comm.Allreduce(send, recv, MPI.MAX)
            assert set(recv) == {size - 1}
            wide, out = np.full(n, 1 + rank * 1j, "G"), np.empty(n, "G")
            comm.Allreduce(wide, out)
            assert set(out) == {size + 1j * (size * (size - 1) / 2)}


# ---- user-defined operations --------------------------------------------------------------------


def matrix_product(left, right):
    """Multiply 2 x 2 matrices: the left operand times the right one."""
    return (left.reshape(-1, 2, 2) @ right.reshape(-1, 2, 2)).ravel()


multiply = in_python(matrix_product, np.uint64)
larger, smaller, add_wide = map(in_python, (np.maximum, np.minimum, np.add))


def matrices(rank, n):
    return np.random.default_rng([rank, n]).integers(0, 1 << 60, (n, 2, 2), np.uint64)


def product(size, n):
    result = matrices(0, n)
    for rank in range(1, size):
        result = result @ matrices(rank, n)
    return result


@on_six
def test_matrix_products_keep_the_order_of_ranks(mpi_ranks):
    matrix = MPI.UINT64_T.Create_contiguous(4).Commit()
    op = MPI.Op.Create(multiply, commute=False)
    for topology, comm in each_topology():
        size, rank = comm.Get_size(), comm.Get_rank()
        for n in (1, 40, 3000):
            mine, out = matrices(rank, n), np.empty((n, 2, 2), np.uint64)
            comm.Allreduce([mine, n, matrix], [out, n, matrix], op)
            np.testing.assert_array_equal(out, product(size, n), f"{topology} {n}")
            again = mine.copy()
            comm.Allreduce(MPI.IN_PLACE, [again, n, matrix], op)
            np.testing.assert_array_equal(again, out, f"{topology} {n} in place")
            for root, in_place in itertools.product(range(size), (False, True)):
                out[:] = mine if in_place else 0
                send = MPI.IN_PLACE if in_place and rank == root else [mine, n, matrix]
                comm.Reduce(send, [out, n, matrix] if rank == root else None, op, root)
                if rank == root:
                    np.testing.assert_array_equal(out, product(size, n), f"{topology} {n} {root}")
                np.testing.assert_array_equal(mine, matrices(rank, n), "operand")
    op.Free()
    matrix.Free()


@on_six
def test_a_commutative_operation_of_the_users(mpi_ranks):
    op = MPI.Op.Create(larger, commute=True)
    for topology, comm in each_topology():
        size, rank = comm.Get_size(), comm.Get_rank()
        for n in (1, 5000):
            mine, out = (np.arange(n) * 7 + rank * 5) % 11, np.empty(n, int)
            wanted = np.max([(np.arange(n) * 7 + r * 5) % 11 for r in range(size)], axis=0)
            comm.Allreduce(mine, out, op)
            np.testing.assert_array_equal(out, wanted, topology)
            for root in range(size):
                comm.Reduce(mine, out if rank == root else None, op, root)
                np.testing.assert_array_equal(out, wanted, topology)
    op.Free()


def test_users_operations_are_the_same_call_on_all_ranks(mpi_ranks):
    extra = [
        MPI.Op.Create(larger) for _ in range(WORLD.rank)
    ]  # so that handles of operations differ between ranks
    ops = [MPI.Op.Create(f, commute=True) for f in (larger, smaller)]
    with opened(comm_with(WORLD, interleaved(WORLD.size))) as comm:
        mine, out = np.full(5, comm.rank), np.empty(5, int)
        for op, wanted in zip(ops * 2, [comm.size - 1, 0] * 2, strict=True):
            comm.Allreduce(mine, out, op)
            assert set(out) == {wanted}
            said = comm.allgather(message.allreduce(comm, mine, out, op).signature)
            assert len(set(said)) == 1
            assert said[0].op == "user-defined"
    for op in (*ops, *extra):
        op.Free()


@pytest.mark.mpi(ranks=[1, 3, 4], timeout=60, unit="s")
@pytest.mark.parametrize("levels", ["one node", "interleaved", "one level"])
def test_elements_larger_than_a_page(mpi_ranks, levels):
    domains = {**TOPOLOGIES, "one level": lambda n: [[0] * n]}[levels](WORLD.size)
    with opened(comm_with(WORLD, domains)) as comm:
        size, rank = comm.Get_size(), comm.Get_rank()
        for each, function in (
            (1250, add_wide),
            (4 * 313, multiply),
        ):  # elements of 10000 and 10016 bytes
            wide = MPI.INT64_T.Create_contiguous(each).Commit()
            op = MPI.Op.Create(function, commute=function is add_wide)
            for n in (1, 30):
                mine = matrices(rank, n * each // 4 + 1).view(np.int64).ravel()[: n * each]
                every = comm.allgather(mine.tobytes())
                wanted = np.frombuffer(every[0], np.int64)
                for later in every[1:]:
                    right = np.frombuffer(later, np.int64).copy()
                    function(wanted.tobytes(), right, wide)
                    wanted = right
                out = np.zeros_like(mine)
                comm.Allreduce([mine, n, wide], [out, n, wide], op)
                np.testing.assert_array_equal(out, wanted)
                out[:] = mine
                comm.Allreduce(MPI.IN_PLACE, [out, n, wide], op)
                np.testing.assert_array_equal(out, wanted)
                for root in range(size):
                    out[:] = 0
                    comm.Ireduce([mine, n, wide], [out, n, wide], op, root).Wait()
                    np.testing.assert_array_equal(out, wanted if rank == root else 0)
            op.Free()
            wide.Free()


# ---- derived datatypes --------------------------------------------------------------------------


def layouts(n):
    """Yield datatypes that select 2 n of 6 n int32, with their positions and the count."""
    places = np.arange(6 * n)
    yield MPI.INT32_T.Create_vector(n, 2, 6), places.reshape(n, 6)[:, :2].ravel(), 1
    yield MPI.INT32_T.Create_indexed([n, n], [n, 4 * n]), np.r_[n : 2 * n, 4 * n : 5 * n], 1
    gap = MPI.INT32_T.Create_contiguous(2).Create_resized(0, 24)
    yield gap, places.reshape(n, 6)[:, :2].ravel(), n
    pair = MPI.Datatype.Create_struct([1, 1], [0, 12], [MPI.INT32_T, MPI.INT32_T])
    yield pair.Create_resized(0, 24), places.reshape(n, 6)[:, [0, 3]].ravel(), n
    yield MPI.INT32_T.Create_contiguous(2 * n), places[: 2 * n], 1


@on_six
def test_broadcasts_between_different_layouts(mpi_ranks):
    with opened(comm_with(WORLD, interleaved(WORLD.size), {"segment": 4000})) as comm:
        size, rank = comm.Get_size(), comm.Get_rank()
        for n, root, turn in itertools.product((1, 50, 3000), range(size), (0, 1)):
            for k, (datatype, where, count) in enumerate(layouts(n)):
                datatype.Commit()
                if k != (rank + turn) % 5:
                    continue
                data = np.full(6 * n, -1, np.int32)
                request = comm.Bcast_init([data, count, datatype], root)
                for start in (0, 5):
                    values = np.arange(start, start + 2 * n)
                    data[where] = values if rank == root else -1
                    if start:
                        run(request)
                    else:
                        comm.Bcast([data, count, datatype], root)
                    assert data[where].tolist() == values.tolist(), (n, root, k)
                    assert np.all(np.delete(data, where) == -1), "written into a gap"
                request.Free()
                datatype.Free()


def add_with_gaps(a, b, datatype):
    """Add the first two of every six int32; the rest are gaps."""
    x, y = (np.frombuffer(m, np.uint8) for m in (a, b))
    for start in range(0, y.size, 24):
        part = slice(start, start + 8)
        y[part].view(np.int32)[:] += x[part].view(np.int32)


def check_scatters_with_gaps(comm, n, gap, op):
    """Each block of the operands differs, and so does its result."""
    size, rank = comm.Get_size(), comm.Get_rank()
    send = np.full((size, n, 6), -3, np.int32)
    send[:, :, :2] = 10 * np.arange(size)[:, None, None] + rank
    expected = 10 * size * rank + size * (size - 1) // 2
    for scatter in (
        lambda recv: comm.Reduce_scatter_block([send, n, gap], [recv, n, gap], op),
        lambda recv: comm.Reduce_scatter([send, size * n, gap], [recv, n, gap], [n] * size, op),
    ):
        recv = np.full((n, 6), -7, np.int32)
        scatter(recv)
        assert np.all(recv[:, :2] == expected)
        assert np.all(recv[:, 2:] == -7), "written into a gap"
    counts = [n + r for r in range(size)]
    send = np.full((sum(counts), 6), rank, np.int32)
    recv = np.full((counts[rank], 6), -7, np.int32)
    comm.Reduce_scatter([send, sum(counts), gap], [recv, counts[rank], gap], counts, op)
    assert np.all(recv[:, :2] == size * (size - 1) // 2)
    assert np.all(recv[:, 2:] == -7)


@on_six
def test_reductions_of_elements_with_gaps(mpi_ranks):
    op = MPI.Op.Create(add_with_gaps, commute=True)
    gap = MPI.INT32_T.Create_contiguous(2).Create_resized(0, 24).Commit()
    for topology, comm in each_topology():
        size, rank = comm.Get_size(), comm.Get_rank()
        for n, in_place in itertools.product((1, 300), (False, True)):
            send = np.full((n, 6), rank, np.int32)
            recv = np.full((n, 6), -7, np.int32)
            if in_place:
                recv[:, :2] = rank
            comm.Allreduce(MPI.IN_PLACE if in_place else [send, n, gap], [recv, n, gap], op)
            assert np.all(recv[:, :2] == size * (size - 1) // 2), topology
            assert np.all(recv[:, 2:] == -7), f"{topology}: written into a gap"
            for root in range(size):
                recv[:, :2] = rank
                at_root = rank == root
                source = MPI.IN_PLACE if in_place and at_root else [send, n, gap]
                comm.Reduce(source, [recv, n, gap] if at_root else None, op, root)
                assert not at_root or np.all(recv[:, :2] == size * (size - 1) // 2)
                assert np.all(recv[:, 2:] == -7)
            check_scatters_with_gaps(comm, n, gap, op)
    op.Free()
    gap.Free()
