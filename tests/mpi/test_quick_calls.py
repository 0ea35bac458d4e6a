"""Calls that the look-up in C serves: many kinds of them, other objects of an operation, pairs."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from _support import WORLD, comms, in_python, known, new_comm, opened, run
from mpi4py import MPI

import han
from han.message.dtypes import PAIR_TYPES

D = MPI.DOUBLE
usual = pytest.mark.mpi(ranks=[1, 2, 3], timeout=120, unit="s")
FIELDS = {"DOUBLE": "f8", "FLOAT": "f4", "LONG": "i8", "SHORT": "i2", "LONG_DOUBLE": "g"}
UNTOUCHED = 0xAA


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_the_second_call_is_found(mpi_ranks):
    """Whatever else a class of calls may run, it is decided in the first call."""
    for nbytes in (8, 128 << 10, 16 << 20):
        send, recv = np.zeros(nbytes // 8), np.zeros(nbytes // 8)
        calls = {"Bcast": (send,), "Reduce": (send, recv), "Allreduce": (send, recv)}
        for name, arguments in calls.items():
            with opened(new_comm()) as comm:
                getattr(comm, name)(*arguments)
                found = comm._han.calls.hits
                getattr(comm, name)(*arguments)
                getattr(comm, f"I{name.lower()}")(*arguments).Wait()
                assert comm._han.calls.hits == found + 2, (name, nbytes)


def test_hundreds_of_kinds_of_calls_are_found(mpi_ranks, comm):
    buffers = [
        (np.full(n, WORLD.rank, t), np.empty(n, t), op)
        for t in "bhilqBHILQ"
        for op in (MPI.SUM, MPI.MAX, MPI.MIN, MPI.BAND)
        for n in (6, 40, 300, 1100, 3000, 6000, 10000)
    ]
    for _ in range(3):
        before = comm._han.calls.hits
        for send, recv, op in buffers:
            comm.Allreduce(send, recv, op)
    assert comm._han.calls.hits == before + len(buffers)
    for op in (MPI.SUM, MPI.MAX, MPI.MIN, MPI.BAND):
        wanted = WORLD.allreduce(WORLD.rank, op)
        assert all((recv == wanted).all() for _, recv, this in buffers if this is op)


def test_other_objects_of_an_operation_are_that_operation(mpi_ranks, comm):
    send, recv = np.full(4, 2.0), np.zeros(4)
    others = [MPI.Op(MPI.SUM), MPI.Op.fromhandle(MPI.SUM.handle)]
    for op in (*others, MPI.SUM, *others):
        comm.Allreduce(send, recv, op)
        assert recv.tolist() == [2.0 * comm.size] * 4
    assert comm.cache_info().misses == 1


def test_a_freed_operation_is_an_error(mpi_ranks, comm):
    send, recv = np.ones(4), np.zeros(4)
    op = MPI.Op.Create(in_python(np.add, "f8"), commute=True)
    for name in ("Allreduce", "Allreduce_init"):
        known(comm, name, send, recv, op)
    op.Free()
    for method in (comm.Allreduce, comm.Allreduce_init):
        with pytest.raises(ValueError, match="OP_NULL"):
            method(send, recv, op)


def test_entries_of_freed_operations_leave_the_look_up(mpi_ranks, comm):
    def first(one: MPI.buffer, two: MPI.buffer, _datatype: MPI.Datatype) -> None:
        two[:] = one

    send, recv = np.full(4, float(WORLD.rank)), np.zeros(4)
    known(comm, "Allreduce", send, recv, MPI.MAX)
    for _ in range(300):
        op = MPI.Op.Create(first, commute=False)
        for _ in range(2):
            comm.Allreduce(send, recv, op)
        assert recv.tolist() == [0.0] * 4
        op.Free()
    assert comm._han.calls.entries < 40
    known(comm, "Allreduce", send, recv, MPI.MAX)
    assert recv.tolist() == [comm.size - 1.0] * 4


def test_codes_and_counts_of_numpy(mpi_ranks, comm):
    a = np.arange(6.0) if WORLD.rank == 0 else np.zeros(6)
    known(comm, "Bcast", [a, "d"])
    known(comm, "Bcast", [a, np.array(6), "d"])
    assert a.tolist() == list(range(6))


def test_a_reduce_scatter_without_counts(mpi_ranks, comm):
    size, rank = WORLD.size, WORLD.rank
    for counts in ([3] * size, [*range(1, size + 1)], [700] * size):
        send, recv = np.arange(sum(counts)) + rank, np.zeros(counts[rank], int)
        first = sum(counts[:rank])
        wanted = size * np.arange(first, first + counts[rank]) + sum(range(size))
        for _ in range(4):
            before = comm._han.calls.hits
            recv[:] = -1
            comm.Reduce_scatter(send, recv)
            assert (recv == wanted).all()
        assert comm._han.calls.hits == before + 2  # the counts, and the call
        for make in (comm.Ireduce_scatter, comm.Reduce_scatter_init):
            for _ in range(3):
                before = comm._han.calls.hits
                recv[:] = -1
                request = make(send, recv)
                found = comm._han.calls.hits - before
                if make == comm.Reduce_scatter_init:
                    request.Start()
                request.Wait()
                assert (recv == wanted).all()
            assert found == 2


def test_a_reduce_scatter_in_place(mpi_ranks, comm):
    size, rank = WORLD.size, WORLD.rank
    for counts in ([3] * size, [*range(1, size + 1)], [0] * (size - 1) + [4], [700] * size):
        whole = np.arange(sum(counts)) + rank
        first = sum(counts[:rank])
        wanted = size * np.arange(first, first + counts[rank]) + sum(range(size))
        for dtype in ("f8", "i4"):
            for _ in range(4):
                data = whole.astype(dtype)
                comm.Reduce_scatter(MPI.IN_PLACE, data, counts)
                assert (data == [*wanted, *whole[counts[rank] :]]).all()
            for _ in range(3):
                data = np.zeros(len(whole), dtype)
                request = comm.Reduce_scatter_init(MPI.IN_PLACE, data, counts)
                for _ in range(2):
                    data[:] = whole
                    run(request)
                    assert (data == [*wanted, *whole[counts[rank] :]]).all()
                request.Free()


# ---- pairs ------------------------------------------------------------------------------------


def pairs(name: str, count: int) -> np.ndarray[Any, Any]:
    value = "i4" if name == "TWOINT" else FIELDS[name.removesuffix("_INT")]
    made = np.zeros(count, np.dtype([("value", value), ("at", "i4")], align=True))
    made["value"] = (np.arange(count) * 7 + WORLD.rank * 3) % 5
    made["at"] = WORLD.rank
    return made


def untouched(one: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return memory for such pairs, whose gaps can be told."""
    return np.full(one.nbytes, UNTOUCHED, np.uint8).view(one.dtype)


@pytest.mark.parametrize("name", PAIR_TYPES)
def test_pairs_are_combined_and_their_gaps_stay(mpi_ranks, name, comm):
    datatype = getattr(MPI, name)
    for count, op in ((1, MPI.MINLOC), (3, MPI.MAXLOC), (700, MPI.MINLOC)):
        one = pairs(name, count)
        send, root = [one, count, datatype], comm.size - 1
        mine, wanted = untouched(one), untouched(one)
        WORLD.Allreduce(send, [wanted, count, datatype], op)

        known(comm, "Allreduce", send, [mine, count, datatype], op)
        same(mine, wanted)
        inside = one.copy()
        comm.Allreduce(MPI.IN_PLACE, [inside, count, datatype], op)
        same(inside, wanted, gaps=False)
        for starts in (False, True):
            mine = untouched(one)
            recv = [mine, count, datatype] if comm.rank == root else None
            reduce = comm.Ireduce if starts else comm.Reduce
            for _ in range(4):
                done = reduce(send, recv, op, root)
                if starts:
                    done.Wait()
            if comm.rank == root:
                same(mine, wanted)
        request = None
        for _ in range(4):
            if request is not None:
                request.Free()
            mine = untouched(one)
            request = comm.Allreduce_init(send, [mine, count, datatype], op)
        run(request, 2)
        same(mine, wanted)
        request.Free()

        mine = one.copy() if comm.rank == root else untouched(one)
        known(comm, "Bcast", [mine, count, datatype], root)
        expected = pairs(name, count)
        expected["value"] = (np.arange(count) * 7 + root * 3) % 5
        expected["at"] = root
        same(mine, expected, gaps=False)


@pytest.mark.mpi(ranks=6, timeout=60, unit="s")
def test_pairs_are_combined_between_nodes(mpi_ranks):
    for comm in comms():
        for name, count, op in product(PAIR_TYPES, (1, 700), (MPI.MINLOC, MPI.MAXLOC)):
            datatype, one = getattr(MPI, name), pairs(name, count)
            mine, wanted = untouched(one), untouched(one)
            WORLD.Allreduce([one, count, datatype], [wanted, count, datatype], op)
            comm.Allreduce([one, count, datatype], [mine, count, datatype], op)
            same(mine, wanted, gaps=False)
            mine, root = untouched(one), count % comm.size
            comm.Reduce([one, count, datatype], [mine, count, datatype], op, root)
            if comm.rank == root:
                same(mine, wanted, gaps=False)


def same(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], gaps: bool = True) -> None:
    assert (found["value"] == wanted["value"]).all()
    assert (found["at"] == wanted["at"]).all()
    if gaps:
        behind = found.dtype.fields["at"][1] + 4
        rows = found.view(np.uint8).reshape(len(found), found.itemsize)
        assert (rows[:, behind:] == UNTOUCHED).all()


# ---- persistent requests ------------------------------------------------------------------------


def requests(comm: MPI.Intracomm) -> dict[str, tuple[Callable[[], Any], Callable[[float], None]]]:
    """Return what makes requests, and what sets this rank's data to a number and back."""
    vector = MPI.DOUBLE.Create_vector(3, 1, 2).Commit()
    wide = np.zeros(6), np.zeros(6, "g"), np.zeros(6, "g"), np.zeros(6), np.zeros(6)
    spread, long, longs, one, two = wide

    op = MPI.Op.Create(in_python(np.add, "f8"), commute=True)

    def check(array: np.ndarray[Any, Any], number: float, step: int = 1) -> None:
        assert (array[::step] == number).all()

    size, rank = comm.size, comm.rank
    at_root = rank == size - 1

    def spread_out(number: float) -> None:
        spread[:] = number if at_root else 0

    return {
        "bcast of a vector": (
            lambda: comm.Bcast_init([spread, 1, vector], size - 1),
            (spread_out, lambda number: check(spread, number, 2)),
        ),
        "long double": (
            lambda: comm.Allreduce_init(long, longs),
            (lambda number: long.fill(number), lambda number: check(longs, number * size)),
        ),
        "operation of the user": (
            lambda: comm.Allreduce_init(one, two, op),
            (lambda number: one.fill(number), lambda number: check(two, number * size)),
        ),
        "allgather of vectors": (
            lambda: comm.Allgather_init([spread, 1, vector], [np.zeros(3 * size), 3, D]),
            (spread_out, lambda number: None),
        ),
    }


def test_requests_of_a_known_class_are_made_in_c_unless_they_pack(mpi_ranks, comm):
    for name, (make, (fill, check)) in requests(comm).items():
        for _ in range(3):
            make().Free()
        before = comm._han.calls.hits
        request = make()
        assert comm._han.calls.hits == before + ("vector" not in name), name
        for number in (1.0, 2.0, 3.0):
            fill(number)
            run(request)
            check(number)
        request.Free()


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_an_error_in_packing_for_a_request_reaches_all_ranks(mpi_ranks):
    comm = new_comm()
    column = MPI.DOUBLE.Create_vector(2, 1, 2)  # MPI packs what has gaps itself within a structure
    vector = MPI.Datatype.Create_struct([1, 1], [0, 32], [column, MPI.DOUBLE]).Commit()
    request = comm.Bcast_init([np.ones(6), 1, vector])
    WORLD.Barrier()  # a rank that is still making a request would hear of the error there
    if comm.rank == 0:
        vector.Free()
    with pytest.raises(MPI.Exception if comm.rank == 0 else han.PeerError):
        run(request)
    with pytest.raises(han.RevokedError):
        comm.Barrier()
    WORLD.Barrier()


class Code(np.str_):
    """A type code that cannot be looked up."""

    __hash__ = None  # type: ignore[assignment]


def test_a_type_code_of_another_class_is_not_looked_up(mpi_ranks, comm):
    with pytest.raises(TypeError):
        comm.Bcast([np.ones(6), Code("d")])
