"""Calls in usual spellings are served by the look-up in C; all have the results of plain arrays."""

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _support import WORLD, Derived, comms, derived_types, known
from mpi4py import MPI
from tensors import Tensor

D = MPI.DOUBLE
N = 6  # numbers in a block
usual = pytest.mark.mpi(ranks=[2, 3], timeout=120, unit="s")

Spelling = Callable[[np.ndarray[Any, Any], int], Any]  # of an array that holds some blocks


SHARING: dict[str, Spelling] = {  # these show the memory of the array itself
    "array": lambda a, n: a,
    "subclass": lambda a, n: a.view(Derived),
    "memoryview": lambda a, n: memoryview(a),
    "tensor": lambda a, n: Tensor(a),
    "[a]": lambda a, n: [a],
    "[a, type]": lambda a, n: [a, D],
    "(a, code)": lambda a, n: (a, "d"),
    "[a, count]": lambda a, n: [a, a.size // n],
    "[a, count, type]": lambda a, n: [a, a.size // n, D],
    "(a, count, code)": lambda a, n: (a, np.int32(a.size // n), "f8"),
    "[a, (count, displacement), type]": lambda a, n: [a, (a.size // n, 0), D],
    "[tensor, type]": lambda a, n: [Tensor(a), D],
    "[bytes of a, count, type]": lambda a, n: [a.view("u1"), a.size // n, D],
    "[a, count, displacement, type]": lambda a, n: [a, a.size // n, 0, D],
    "[a, [count, displacement], type]": lambda a, n: [a, [a.size // n, 0], D],
    "[a, code of NumPy]": lambda a, n: [a, np.str_("d")],
    "buffer of mpi4py": lambda a, n: [MPI.buffer.frombuffer(a), D],
}
RARE = list(SHARING)[-3:]  # these are parsed in Python


def filled(blocks: int) -> np.ndarray[Any, Any]:
    return np.arange(float(N * blocks)) + 100 * WORLD.rank


def calls(size: int) -> dict[str, tuple[Any, Any, int, int, tuple[Any, ...]]]:
    """Return the collectives: blocks of both buffers, as how many a count counts them, the rest."""
    root = size - 1
    return {
        "Bcast": (None, 1, 1, 1, (root,)),
        "Reduce": (1, 1, 1, 1, (MPI.SUM, root)),
        "Allreduce": (1, 1, 1, 1, (MPI.MAX,)),
        "Gather": (1, size, 1, size, (root,)),
        "Scatter": (size, 1, size, 1, (np.int64(root),)),
        "Allgather": (1, size, 1, size, ()),
        "Alltoall": (size, size, size, size, ()),
        "Reduce_scatter_block": (size, 1, size, 1, (MPI.SUM,)),
    }


def made(comm: MPI.Intracomm, name: str, spell: Spelling, starts: bool) -> Any:
    """Make a call in a spelling; return what both of its buffers hold then."""
    sent, received, by, into, rest = calls(comm.size)[name]
    recv = filled(received)
    arguments = [spell(recv, into), *rest]
    send = None
    if sent is not None:
        send = filled(sent)
        arguments.insert(0, spell(send, by))
    method = getattr(comm, f"I{name.lower()}" if starts else name)
    request = method(*arguments)
    if request is not None:
        request.Wait()
    return recv.tolist(), None if send is None else send.tolist()


def test_usual_spellings_take_the_quick_way(mpi_ranks):
    for comm in comms():
        for name in calls(comm.size):
            wanted = made(WORLD, name, SHARING["array"], False)
            for how, spell in SHARING.items():
                for starts in (False, True):
                    for _ in range(3):  # the first calls plan, and teach the reader
                        assert made(comm, name, spell, starts) == wanted, (name, how, starts)
                    before = comm._han.calls.hits
                    assert made(comm, name, spell, starts) == wanted
                    quick = how not in RARE
                    assert comm._han.calls.hits == before + quick, (name, how, starts)


def test_all_spellings_of_a_call_share_one_plan(mpi_ranks, comm):
    for spell in SHARING.values():
        made(comm, "Allreduce", spell, False)
    info = comm.cache_info()
    assert (info.misses, info.currsize) == (1, 1)


def test_spellings_of_one_side_only(mpi_ranks, comm):
    size, rank, root = WORLD.size, WORLD.rank, WORLD.size - 1
    at_root = rank == root
    total = np.array(0.0)
    known(comm, "Allreduce", np.float64(rank), total)
    assert total == size * (size - 1) / 2
    known(comm, "Reduce", np.float64(rank), [total, D] if at_root else None, MPI.MAX, root)
    found = np.empty(size)
    known(comm, "Allgather", np.float64(rank), [found, 1, D])
    assert found.tolist() == list(range(size))
    for code in "bBhHiIlLqQfd":
        one, two = array.array(code, [rank, 1]), array.array(code, [0, 0])
        known(comm, "Allreduce", one, two)
        assert two.tolist() == [size * (size - 1) // 2, size]
    words = b"the root's" if at_root else bytearray(10)
    known(comm, "Bcast", words, root)
    assert bytes(words) == b"the root's"
    a = np.full(3, float(rank))
    for place in (MPI.IN_PLACE, None):
        known(comm, "Allreduce", place, [a, 3, D], MPI.MAX)
        assert a.tolist() == [size - 1.0] * 3
    all_blocks = np.full(size, -1.0)
    all_blocks[rank] = rank
    known(comm, "Allgather", MPI.IN_PLACE, [all_blocks, 1, D])
    assert all_blocks.tolist() == list(range(size))
    known(comm, "Scatter", [all_blocks, 1, D] if at_root else None,
          MPI.IN_PLACE if at_root else [a, 1, D], root)  # fmt: skip
    assert a[0] == (size - 1.0 if at_root else rank)
    for _ in range(3):
        comm.Bcast([None, 0, D] if at_root else [a, 0, "d"], root)
    large, small = np.arange(8.0), np.zeros(3)
    known(comm, "Allreduce", [large, (3, 2), D], [small, 3, D], MPI.MAX)
    assert small.tolist() == [2.0, 3.0, 4.0]


def test_blocks_of_derived_types_take_the_quick_way(mpi_ranks, comm):
    size, root = WORLD.size, WORLD.size - 1
    places = [2 * rank + (rank > 0) for rank in range(size)]
    planned = {"Allgatherv"}  # equal blocks have the plan of Allgather
    for how, datatype in derived_types().items():
        one, many = np.zeros(16), np.zeros(16 * size)

        def args(name, one=one, many=many, datatype=datatype):
            part, whole = [one, 2, datatype], [many, (2, 1), datatype]
            return {
                "Bcast": (part, root),
                "Gather": (part, whole if WORLD.rank == root else None, root),
                "Scatter": (whole if WORLD.rank == root else None, part, root),
                "Allgather": ([np.arange(4.0) + WORLD.rank, D], whole),
                "Allgatherv": (part, [many, [2] * size, places, datatype]),
                "Alltoall": (whole, np.zeros(4 * size)),
            }[name]

        for name in ("Bcast", "Gather", "Scatter", "Allgather", "Allgatherv", "Alltoall"):
            results = []
            before = comm._han.calls.hits
            forms = (name, f"I{name.lower()}") * 3
            for made, form in zip((WORLD, *[comm] * 5), forms, strict=True):
                one[:] = np.arange(16) + 100 * WORLD.rank
                many[:] = np.arange(16 * size) + 1000 * WORLD.rank
                given = args(name)
                request = getattr(made, form)(*given)
                if request is not None:
                    request.Wait()
                received = given[1] if name == "Alltoall" else 0
                results.append((one.tolist(), many.tolist(), np.sum(received)))
            assert all(result == results[0] for result in results), (how, name)
            quick = 5 if name in planned else 4  # the first one plans
            planned.add(name)
            assert comm._han.calls.hits == before + quick, (how, name)
        datatype.Free()


def test_a_handle_that_another_type_has_after_free(mpi_ranks, comm):
    a = np.zeros(16)
    for stride in (2, 3, 4, 5, 2):  # the libraries use handles of freed types again
        for _ in range(3):
            datatype = D.Create_vector(3, 1, stride).Commit()
            a[:] = 1.0 if comm.rank == 0 else 0.0
            comm.Bcast([a, 1, datatype])
            datatype.Free()
            wanted = np.ones(16) if comm.rank == 0 else np.zeros(16)
            wanted[[0, stride, 2 * stride]] = 1.0
            assert a.tolist() == wanted.tolist(), stride


def test_derived_buffers_are_held_while_a_call_is_outstanding(mpi_ranks, comm):
    vector = D.Create_vector(3, 1, 2).Commit()
    for _ in range(4):
        numbers = array.array("d", [float(comm.rank)] * 8)
        request = comm.Ibcast([numbers, 1, vector], comm.size - 1)
        if comm.rank < comm.size - 1:  # the root sends a packed copy
            with pytest.raises(BufferError):
                numbers.extend([0.0])
        request.Wait()
        numbers.extend([0.0])
        assert numbers[::2][:3].tolist() == [comm.size - 1.0] * 3
    vector.Free()


def test_derived_types_that_cannot_be_used_raise_each_time(mpi_ranks, comm):
    a = np.zeros(16)
    vector = D.Create_vector(3, 1, 2).Commit()
    comm.Bcast([a, 2, vector])
    comm.Bcast([a, 2, vector])
    for spec, error in (
        ([a, 4, vector], ValueError),
        ([a, (1, 4), vector], ValueError),
        ([a[:7], vector], ValueError),
    ):
        for _ in range(2):
            with pytest.raises(error):
                comm.Bcast(spec)
    vector.Free()
    with pytest.raises((ValueError, MPI.Exception)):
        comm.Bcast([a, 2, vector])


def test_wrong_arguments_are_refused_after_right_ones(mpi_ranks, comm):
    a, b = np.ones(4), np.zeros(4)
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    for _ in range(3):
        comm.Allreduce([a, 4, D], [b, 4, D])
        comm.Bcast([a, 4, D])
    for send, recv, said in (
        (a, bytes(32), "read-only"),
        ([a, 4, D], [fixed, 4, D], "read-only"),
        ([a, 4, D], [b[:2], 4, MPI.BYTE], "element types"),
        ([a, 4, D], [b, 3, D], "expected"),
        ([a, 5, D], [b, 5, D], "holds 32 bytes, 40 expected"),
        ([a, 4, D], [b.view("i8"), 4, MPI.INT64_T], "element types"),
        ([a, 4, D], [a, 4, D], "overlap"),
        ([a, (2, 1), D], [a, (2, 2), D], "overlap"),
        ([a, -4, D], [b, 4, D], "negative"),
        ([a, 4, D, D, D], [b, 4, D], "items"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            comm.Allreduce(send, recv)
    comm.Allreduce([a, 4, D], [b, 4, D])
    assert b.tolist() == [comm.size] * 4


def test_a_user_defined_operation_gets_the_type_of_the_call(mpi_ranks, comm):
    seen = []

    def add(one: MPI.buffer, two: MPI.buffer, datatype: MPI.Datatype) -> None:
        seen.append(datatype.Get_name())
        np.frombuffer(two, "i8")[:] += np.frombuffer(one, "i8")

    op = MPI.Op.Create(add, commute=True)
    a, b = np.ones(4, "i8"), np.zeros(4, "i8")
    for _ in range(3):
        for datatype in (MPI.LONG, MPI.INT64_T, MPI.LONG):
            seen.clear()
            comm.Allreduce([a, datatype], [b, datatype], op)
            assert b.tolist() == [comm.size] * 4
            assert set(seen) <= {datatype.Get_name()}
    op.Free()
