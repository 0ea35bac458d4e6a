"""Buffers in all forms that mpi4py takes: han's results beside those of mpi4py's own calls.

Each case is made twice with the same contents. The MPI library makes one call, han the other. Where
mpi4py refuses the arguments, han may accept them.
"""

import array
import ctypes
import itertools
import mmap
from functools import partial
from typing import Any

import numpy as np
import pytest
from _support import FLAT, FORMS, TWO_LEVELS, Derived, finish, method_of, new_comm, opened, outcome
from mpi4py import MPI
from tensors import BFLOAT16, CPU, FLOAT8, GPU, PINNED, OnDevice, Tensor

import han

WORLD = MPI.COMM_WORLD
usual = pytest.mark.mpi(ranks=[1, 2, 3], timeout=120, unit="s")
N = 4
D = MPI.DOUBLE
NO_NUMBERS = (
    "S1", "U1", "c", "c_char", "array u", "bytearray", "MPI.memory", "address",
    f"tensor of type {BFLOAT16}", f"tensor of type {FLOAT8}",
)  # fmt: skip


def call(comm: MPI.Intracomm, form: str, name: str, arguments: tuple[Any, ...]) -> None:
    """Make a call to its end; make a persistent one twice."""
    finish(method_of(comm, form, name)(*arguments), 2)


def by_mpi(form: str, name: str, arguments: tuple[Any, ...]) -> None:
    """Make a call of the MPI library; two blocking ones in place of a persistent one.

    Persistent calls of Intel MPI give wrong results, or hang, on some processors.
    """
    if form.endswith("_init"):
        call(WORLD, "{}", name, arguments)
        call(WORLD, "{}", name, arguments)
    else:
        call(WORLD, form, name, arguments)


def check(comm: MPI.Intracomm, name: str, make: Any, what: str, forms=FORMS) -> None:
    """Compare the memory that both calls leave; `make` returns arguments and watched memory."""
    for form in forms:
        arguments, watched = make()
        try:
            by_mpi(form, name, arguments)
        except (TypeError, ValueError, KeyError, BufferError, MPI.Exception):
            continue
        wanted = [seen(memory) for memory in watched]
        arguments, watched = make()
        call(comm, form, name, arguments)
        assert [seen(memory) for memory in watched] == wanted, (what, form)


def seen(memory: Any) -> bytes:
    """Return the bytes of some memory; those between long doubles mean nothing."""
    a = np.asarray(memory)
    return a.astype(complex).tobytes() if a.dtype.char in "gG" else a.tobytes()


# ---- objects ------------------------------------------------------------------------------------


def numbers(code: str) -> np.ndarray[Any, Any]:
    values = np.arange(N) + 10 * WORLD.rank
    return (values % 2 if code == "?" else values).astype(code)


def arrays() -> Any:
    """Yield the name of an object, the object, and the memory that it stands for."""
    for code in "?bBhHiIlLqQefdgFDG":
        a = numbers(code)
        yield code, a, a
    a = numbers("d").reshape(2, 2)
    yield "C order", a, a.ravel()
    a = np.asfortranarray(numbers("d").reshape(2, 2))
    yield "Fortran order", a, a.ravel("K")
    a = np.array(numbers("d")[1])
    yield "0-d", a, a.reshape(1)
    a = numbers("d").view(Derived)
    yield "subclass", a, np.asarray(a)
    a = np.ma.masked_greater(numbers("d"), 2)
    yield "masked", a, a.data
    a = np.frombuffer(mmap.mmap(-1, 8 * N))
    a[:] = numbers("d")
    yield "map of memory", a, a
    a = np.zeros(N, [("x", "i4"), ("y", "f8")])
    a["y"] = numbers("d")
    yield "record", a, a.view("u1")
    for code in ("S1", "U1", "c"):
        a = np.array(list("abcd"[: WORLD.rank + 1].ljust(N)), code)
        yield code, a, a.view("u1")
    yield "dates", (a := numbers("q").view("M8[s]")), a.view("u1")


def buffers() -> Any:
    """Yield objects with a buffer of Python, as `arrays`."""
    for code in "bBhHiIlLqQfd":
        a = array.array(code, numbers("i").tolist())
        yield f"array {code}", a, memoryview(a)
    a = array.array("u", "abcd"[WORLD.rank :].ljust(N))
    yield "array u", a, memoryview(a)
    a = bytearray(numbers("d").tobytes())
    yield "bytearray", a, a
    for code in "fdgFDG":
        a = numbers(code)
        yield f"memoryview {code}", memoryview(a), a
    a = np.asfortranarray(numbers("d").reshape(2, 2))
    yield "memoryview in Fortran order", memoryview(a), a.ravel("K")
    a = numbers("d")
    yield "MPI.memory", MPI.memory.frombuffer(a), a
    a = numbers("d")
    yield "address", MPI.memory.fromaddress(a.ctypes.data, a.nbytes), a
    for kind in (ctypes.c_double, ctypes.c_int, ctypes.c_char, ctypes.c_bool):
        a = (kind * N).from_buffer(numbers("d"))
        yield kind.__name__, a, memoryview(a).cast("B")


def tensors() -> Any:
    """Yield objects without a buffer, as `arrays`."""
    for code, version in itertools.product("?bBhHiIqQefdFD", (0, 1)):
        a = numbers(code)
        yield f"tensor {code} {version}", Tensor(a, version), a.view("u1")
    for kind, version in itertools.product((BFLOAT16, FLOAT8), (0, 1)):
        a = numbers("H" if kind is BFLOAT16 else "B")
        yield f"tensor of type {kind}", Tensor(a, version, kind), a.view("u1")
    a = numbers("d")
    yield "legacy, though asked for a version", Tensor(a, 0, knows_versions=True), a
    a = numbers("d").reshape(2, 2)
    yield "tensor in Fortran order", Tensor(a.T), a
    a = np.array(numbers("d")[1])
    yield "tensor without dimensions", Tensor(a), a.reshape(1)
    a = numbers("d")
    yield "pinned", Tensor(a, device=PINNED), a


def on_device() -> Any:
    """Yield objects that say that their memory is on a device, as `arrays`."""
    for code in "bilqfdFD":
        a = numbers(code)
        yield f"device {code}", OnDevice(a), a.view("u1")
    a = numbers("d")
    yield "tensor on a device", Tensor(a, device=GPU), a
    a = numbers("d")
    yield "legacy tensor on a device", Tensor(a, 0, device=GPU), a
    a = numbers("d")
    yield "MPI.memory on a device", MPI.memory.frombuffer(OnDevice(a)), a


# ---- calls with an object -----------------------------------------------------------------------


def fresh(objects: Any, wanted: str) -> Any:
    """Make one of the objects anew; return it and its memory."""
    return next((thing, memory) for name, thing, memory in objects() if name == wanted)


def bcast(objects: Any, name: str) -> Any:
    thing, memory = fresh(objects, name)
    return (thing, WORLD.size - 1), [memory]


def bcast_bytes(objects: Any, name: str) -> Any:
    thing, memory = fresh(objects, name)
    return ([thing, MPI.BYTE], WORLD.size - 1), [memory]


def gathered(objects: Any, name: str) -> Any:
    thing, memory = fresh(objects, name)
    memory = np.asarray(memory)
    room = np.zeros(memory.size * WORLD.size, memory.dtype)
    received = room.view(getattr(thing, "array", memory).dtype)
    if objects is on_device:
        return (thing, OnDevice(received)), [room]
    untyped = name in NO_NUMBERS or received.dtype == np.uint8
    return (thing, [room, MPI.BYTE] if untyped else received), [room]


def summed(objects: Any, name: str) -> Any:
    (one, _), (two, memory) = fresh(objects, name), fresh(objects, name)
    return (one, two), [memory]


def largest(objects: Any, name: str) -> Any:
    thing, memory = fresh(objects, name)
    return (None, thing, MPI.MAX), [memory]


@pytest.mark.parametrize("objects", [arrays, buffers, tensors, on_device])
def test_objects_that_hold_memory(mpi_ranks, objects):
    for levels in (FLAT, TWO_LEVELS):
        with opened(new_comm(levels)) as comm:
            for name, *_ in objects():
                calls = [("Bcast", bcast), ("Bcast", bcast_bytes), ("Allgather", gathered)]
                if name not in NO_NUMBERS:  # some MPI libraries combine letters and bytes
                    calls += [("Allreduce", summed), ("Allreduce", largest)]
                for collective, make in calls:
                    forms = FORMS if make is bcast and levels is FLAT else FORMS[:2]
                    check(comm, collective, partial(make, objects, name), (name, make), forms)


def test_numbers_of_numpy_are_sent(mpi_ranks, comm):
    for code in "?bhilqefdgFDG":
        for collective in ("Allgather", "Allreduce"):

            def make(code=code, collective=collective):
                room = np.zeros(comm.size if collective == "Allgather" else (), code)
                return (numbers(code)[1], room), [room]

            check(comm, collective, make, code, FORMS[:2])


# ---- lists --------------------------------------------------------------------------------------


def lists(a: np.ndarray[Any, Any]) -> list[Any]:
    """Return descriptions of two numbers of an array of six, from the second on or the first."""
    two, at = np.int32(2), np.int64(1)
    return [
        [a[:2], D], (a[:2], "d"), [a[:2], 2], [a[:2], two], [a[:2], None], [a, 2, D],
        (a, 2, "f8"), [a, two, D], [a, (2, 1), D], [a, [2, 1], D], [a, (2, at), "d"],
        [a, (2, None), D], [a, (2, 0), None], [a, 2, 1, D], (a, two, at, D), [a, 2, None, "d"],
        [a[:2], None, D], [a[:2], None, None, D], [a[4:], None, 0, D], [a, (None, 4), D],
        [a, 0, D], [None, 0, D], [None, D], [None, (0, 0), D], [MPI.BOTTOM, D], [MPI.BOTTOM, 0, D],
        [a[:1], 2, D], [a[1:1], 2, D], [memoryview(a)[:1], 2, D], [a.view("u1"), 2, D],
    ]  # fmt: skip


def test_lists_that_describe_a_message(mpi_ranks, comm):
    for k in range(len(lists(np.zeros(6)))):

        def one(k=k):
            a = np.arange(6) + 10.0 * comm.rank
            return (lists(a)[k], comm.size - 1), [a]

        def two(k=k):
            a, b = np.arange(6) + 10.0 * comm.rank, np.zeros(6)
            return (lists(a)[k], lists(b)[k]), [a, b]

        check(comm, "Bcast", one, k, FORMS)
        check(comm, "Allreduce", two, k, FORMS)


def vectors(a: np.ndarray[Any, Any], size: int) -> list[Any]:
    """Return descriptions of a block of two numbers for each rank, in an array of 3 x size."""
    counts, starts = [2] * size, [3 * r for r in range(size)]
    return [
        [a[: 2 * size], D], [a[: 2 * size], counts], [a, 2], [a, counts, D], [a, (counts, starts)],
        [a, (counts, None)], [a, (tuple(counts), 3), "d"], [a, (2, 3), D], [a, counts, starts, D],
        [a, np.array(counts), np.array(starts, "i4"), D], [a, 2, None, D], [a, (2, 3), None],
        [a, (array.array("i", counts), array.array("l", starts)), "d"], (a, counts, 3, D),
        [a, counts, starts[::-1], D], [a[:1], counts, starts, D], a[: 2 * size],
        [a.view("u1"), counts, D], [a[1:], counts, [s - 1 for s in starts], D],
    ]  # fmt: skip


def test_lists_that_describe_blocks(mpi_ranks, comm):
    size = comm.size
    for k in range(len(vectors(np.zeros(3 * size), size))):

        def gather(k=k):
            a, b = np.arange(2) + 10.0 * comm.rank, np.full(3 * size, -1.0)
            return (a, vectors(b, size)[k]), [b]

        def inside(k=k):
            b = np.arange(3.0 * size) + 100 * comm.rank
            return (None, vectors(b, size)[k]), [b]

        check(comm, "Allgatherv", gather, k, FORMS)
        check(comm, "Allgatherv", inside, k, FORMS[:2])


# ---- derived types ------------------------------------------------------------------------------

ROWS, COLUMNS = 4, 5


def types() -> list[tuple[MPI.Datatype, int, int]]:
    """Return types that select parts of a matrix of numbers: type, count, first element."""
    row = 8 * COLUMNS
    column = D.Create_vector(ROWS, 1, COLUMNS)
    return [
        (D.Create_resized(0, row), ROWS, 0),
        (D.Create_resized(0, row), ROWS, 2),
        (D.Create_resized(0, row), ROWS, COLUMNS - 1),
        (column, 1, 3),
        (column.Create_resized(0, 8), 2, 1),
        (D.Create_resized(-8, row), ROWS, 3),
        (D.Create_hindexed([1], [-16]).Create_resized(0, row), ROWS, 4),
        (D.Create_hvector(ROWS, 1, -row), 1, 3 * COLUMNS + 1),
        (D.Create_resized(0, 0), 1, 4),
        (D.Create_resized(0, -row), 2, 2 * COLUMNS),
        (D.Create_subarray([ROWS, COLUMNS], [2, 3], [1, 1]), 1, 0),
        (D.Create_contiguous(2), 2, 3),
    ]


def test_derived_types_are_judged_by_their_true_extent(mpi_ranks, comm):
    found = types()
    size = comm.size
    for k, (datatype, count, first) in enumerate(found):
        datatype.Commit()
        n = datatype.size // 8 * count

        def matrix():
            return np.arange(float(ROWS * COLUMNS)) + 100 * comm.rank

        def moved(datatype=datatype, count=count, first=first):
            a = matrix()
            return ([a[first:], count, datatype], size - 1), [a]

        def packed(datatype=datatype, count=count, first=first, n=n):
            a, room = matrix(), np.zeros(n * size)
            return ([a[first:], count, datatype], room), [room]

        def unpacked(datatype=datatype, count=count, first=first, n=n):
            a, sent = matrix(), np.arange(float(n * size)) + comm.rank
            return (sent, [a[first:], count, datatype], size - 1), [a]

        check(comm, "Bcast", moved, k)
        check(comm, "Allgather", packed, k)
        check(comm, "Scatter", unpacked, k)
    for datatype, *_ in found:
        datatype.Free()


def test_buffers_that_lie_between_each_other_do_not_overlap(mpi_ranks, comm):
    """Columns of one matrix, and a buffer right behind the last byte that is sent."""
    column = D.Create_resized(0, 8 * COLUMNS).Commit()

    def columns():
        a = np.arange(float(ROWS * COLUMNS * comm.size)) + 100 * comm.rank
        return ([a, ROWS, column], [a[1:], ROWS, column]), [a]

    def behind():
        a = np.arange(float(ROWS * COLUMNS * 2 * comm.size)) + 100 * comm.rank
        last = (ROWS - 1) * COLUMNS + 1
        return ([a, ROWS, column], [a[last:], ROWS, D]), [a]

    forms = FORMS[:2]  # Intel MPI frees the type with a persistent request
    check(comm, "Allgather", columns, "columns", forms)
    check(comm, "Allgather", behind, "behind", forms)
    a = np.zeros(ROWS * COLUMNS * comm.size)
    with pytest.raises(ValueError, match="overlap"):
        comm.Allgather([a, ROWS, column], [a, ROWS, column])
    column.Free()


def test_a_buffer_that_is_too_short_is_refused(mpi_ranks, comm):
    wide = D.Create_resized(0, 24).Commit()
    a = np.zeros(10)
    for spec, said in (
        ([a[4:], 8, D], "holds 48 bytes, 64 expected"),
        ([a, 5, wide], "holds 80 bytes, 104 expected"),
        ([a, (1, 11), D], "displacement 11 begins at byte 88 of 80"),
        ([a[2:], 3, D.Create_hvector(4, 1, -8).Commit()], "bytes -24 to 72 of a buffer of 64"),
        ([Tensor(a[:4]), 5, D], "holds 32 bytes, 40 expected"),
    ):
        with pytest.raises(ValueError, match=said):
            comm.Bcast(spec)
    comm.Bcast([a, 4, wide])
    wide.Free()


# ---- None for MPI.IN_PLACE ----------------------------------------------------------------------


def test_none_is_in_place_where_mpi4py_takes_it(mpi_ranks, comm):
    size, rank, root = WORLD.size, WORLD.rank, WORLD.size - 1
    at_root = rank == root

    def full(n=4):
        return np.arange(float(n * size)) + 100 * rank

    def calls():
        a, b = full(), np.arange(4.0) + 10 * rank
        yield "Allreduce", (None, a), a
        yield "Reduce", (None if at_root else a, a if at_root else None, MPI.SUM, root), a
        yield "Gather", (None if at_root else b, a if at_root else None, root), a
        yield "Scatter", (a if at_root else None, None if at_root else b, root), b
        yield "Allgather", (None, a), a
        yield "Allgatherv", (None, [a, 4]), a
        yield "Alltoall", (None, a), a
        yield "Reduce_scatter_block", (None, a), a[:4]
        yield "Reduce_scatter", (None, a, [4] * size), a[:4]

    for name, *_ in calls():

        def make(name=name):
            return next(([arguments, [w]]) for n, arguments, w in calls() if n == name)

        for _ in range(3):  # the look-up in C serves later ones
            check(comm, name, make, name, FORMS[:2])
    before = comm.cache_info().hits
    comm.Allreduce(None, full())
    assert comm.cache_info().hits > before


# ---- tensors ------------------------------------------------------------------------------------


def test_tensors_are_kept_while_a_call_is_outstanding(mpi_ranks, comm):
    for version, n in itertools.product((0, 1), (4, 100_000)):
        wanted = np.arange(float(n))
        tensor = Tensor(wanted.copy() if comm.rank == 0 else np.zeros(n), version)
        request = comm.Ibcast(tensor)
        request.Wait()
        assert tensor.array.tolist() == wanted.tolist()
        assert all(how.get("stream") is None for how in tensor.asked)
    assert Tensor(np.zeros(1)).device == CPU


def test_bfloat16_is_reduced(mpi_ranks):
    """Powers of two are exact in every order; tests of the kernels look at rounding."""

    def tensor(values: np.ndarray[Any, Any]) -> Tensor:
        return Tensor((values.astype("f4").view("u4") >> 16).astype("u2"), kind=BFLOAT16)

    operations = (
        (MPI.SUM, np.add), (MPI.PROD, np.multiply), (MPI.MAX, np.maximum), (MPI.MIN, np.minimum),
    )  # fmt: skip
    for levels, n, (op, combine) in itertools.product((FLAT, TWO_LEVELS), (5, 5000), operations):
        with opened(new_comm(levels)) as comm:
            all_values = 2.0 ** ((np.arange(n) + np.arange(comm.size)[:, None]) % 3)
            send, recv = tensor(all_values[comm.rank]), tensor(np.zeros(n))
            comm.Allreduce(send, recv, op)
            assert recv.array.tolist() == tensor(combine.reduce(all_values)).array.tolist()
            comm.Allreduce(None, send, op)
            assert send.array.tolist() == recv.array.tolist()
            assert comm.cache_info().made == 1  # served by han
            with pytest.raises(han.ArgumentError, match="bfloat16"):
                comm.Allreduce(send, recv, MPI.BAND)


@pytest.mark.mpi(ranks=[2, 3], timeout=120, unit="s")
@pytest.mark.parametrize("form", FORMS)
def test_a_device_on_some_ranks_and_the_host_on_others(mpi_ranks, form):
    for levels, name, odd in itertools.product(
        (FLAT, TWO_LEVELS), ("Allreduce", "Bcast", "Allgather"), (0, WORLD.size - 1)
    ):
        comm = new_comm(levels, timeout=0.5)
        show = OnDevice if comm.rank == odd else np.asarray
        arguments = {
            "Bcast": lambda show=show: (show(np.zeros(4)),),
            "Allreduce": lambda show=show: (show(np.zeros(4)), show(np.zeros(4))),
            "Allgather": lambda show=show, n=comm.size: (show(np.ones(4)), show(np.ones(4 * n))),
        }[name]()
        error, _ = outcome(lambda: (call(comm, form, name, arguments), comm.Barrier()))  # noqa: B023
        said = WORLD.allgather(f"{type(error).__name__}: {error}")
        assert isinstance(error, han.HanError), said
        assert any("memory of a device" in text for text in said), said
        WORLD.Barrier()


def test_memory_of_a_device_is_explained(mpi_ranks, comm):
    text = str(comm.explain("allreduce", 64, device=True))
    assert "left to the MPI library" in text
    assert "in memory of a device" in text
    assert "left to" not in str(comm.explain("allreduce", 64))
