"""Numbers of every class, lists of subclasses, and buffers in place: MPI's results."""

import array
import collections
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from _support import FORMS, Derived, derived_types, finish, known, method_of, new_comm, opened
from mpi4py import MPI

import han

WORLD = MPI.COMM_WORLD
D = MPI.DOUBLE
usual = pytest.mark.mpi(ranks=[1, 2, 3], timeout=240, unit="s")


class Number:
    """A number by its index only."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Numbers(Sequence[int]):
    """A sequence that is no list."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values = list(values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, k: Any) -> Any:
        return self.values[k]


class List(list[Any]):
    """A subclass of lists."""


class Tuple(tuple[Any, ...]):
    """A subclass of tuples."""


def every_other(numbers: Any) -> Any:
    return np.repeat(numbers, 2)[::2]


LISTS: dict[str, Callable[[Sequence[int]], Any]] = {  # of a number for each rank
    "list": list,
    "subclass of list": List,
    "deque": collections.deque,
    "sequence": Numbers,
    "indices": lambda n: [Number(k) for k in n],
    "scalars": lambda n: [np.int16(k) for k in n],
    "arrays of one number": lambda n: [np.array(k) for k in n],
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": lambda n: memoryview(array.array("i", n)),
    "strided memoryview": lambda n: memoryview(every_other(n)),
    "strided": every_other,
    "backward": lambda n: np.array(n[::-1])[::-1],
    "objects": lambda n: np.array([Number(k) for k in n], "O"),
    "masked": np.ma.array,
    "subclass of arrays": lambda n: np.array(n).view(Derived),
    "C ints": lambda n: (ctypes.c_int * len(n))(*n),
    **{f"array.{c}": (lambda n, c=c: array.array(c, n)) for c in "bBhHiIlLqQ"},
    **{c: (lambda n, c=c: np.array(n, c)) for c in "bBhHiIlLqQ"},
    ">i2": lambda n: np.array(n, ">i2"),
    ">u8": lambda n: np.array(n, ">u8"),
}


QUICK = (
    "list", "indices", "scalars", "arrays of one number", "strided", "backward", "i", "l", "q",
    "array.i", "array.l", "array.q",
)  # fmt: skip


def often(comm: MPI.Intracomm, name: str, *arguments: Any) -> None:
    """Make a call as often as `known` does; it may be parsed in Python each time."""
    for _ in range(4):
        getattr(comm, name)(*arguments)


def test_a_number_for_each_rank_in_every_object(mpi_ranks, comm):
    size, rank = WORLD.size, WORLD.rank
    for counts in ([2] * size, [r + 1 for r in range(size)]):
        starts = [r * (size + 2) for r in range(size)]
        mine = np.arange(float(counts[rank])) + 100 * rank
        operands = np.arange(float(sum(counts))) * (rank + 1)
        room = size * (size + 2)
        wanted, total = np.full(room, -1.0), np.zeros(counts[rank])
        WORLD.Allgatherv(mine, [wanted, counts, starts, D])
        WORLD.Reduce_scatter(operands, total, counts)
        for how, spell in LISTS.items():
            found, make = np.full(room, -1.0), known if how in QUICK else often
            make(comm, "Allgatherv", mine, [found, spell(counts), spell(starts), D])
            assert found.tolist() == wanted.tolist(), how
            make(comm, "Allgatherv", mine, [found, (spell(counts), spell(starts)), D])
            result = np.zeros(counts[rank])
            make(comm, "Reduce_scatter", operands, result, spell(counts))
            assert result.tolist() == total.tolist(), how


def test_ranges_and_single_numbers(mpi_ranks, comm):
    size, rank = WORLD.size, WORLD.rank
    counts, starts = range(3, 3 + size), range(0, size * (size + 4), size + 4)
    mine, found, wanted = np.arange(float(counts[rank])), *np.full((2, size * (size + 4)), -1.0)
    WORLD.Allgatherv(mine, [wanted, list(counts), list(starts), D])
    often(comm, "Allgatherv", mine, [found, counts, starts, D])
    assert found.tolist() == wanted.tolist()
    mine, found, wanted = np.arange(3.0), *np.full((2, 5 * size), -1.0)
    WORLD.Allgatherv(mine, [wanted, 3, 5, D])
    for one in (Number, np.uint8, np.array):
        found[:] = -1
        often(comm, "Allgatherv", mine, [found, one(3), one(5), D])
        assert found.tolist() == wanted.tolist()
        for count in (one(2), (one(2), one(1))):
            found[:] = rank
            root = size - 1 if one is Number else one(size - 1)  # a root needs __int__
            often(comm, "Bcast", [found, count, D], root)
            assert np.count_nonzero(found == size - 1) == (5 * size if rank == size - 1 else 2)


def test_lists_of_other_classes(mpi_ranks, comm):
    pair = collections.namedtuple("pair", "data type")
    for spell in (
        lambda a: List([a, D]),
        lambda a: Tuple((a, a.size, D)),
        lambda a: pair(a, D),
        lambda a: [a, Tuple((a.size, 0)), D],
    ):
        a, b = np.arange(4.0) + comm.rank, np.zeros(4)
        often(comm, "Allreduce", spell(a), spell(b))
        assert b.tolist() == (np.arange(4.0) * comm.size + sum(range(comm.size))).tolist()


class Other(list[Any]):
    """A list whose items are others than those that it iterates."""

    def __iter__(self) -> Iterator[Any]:
        return iter((np.zeros(3), D))


def test_a_list_that_iterates_other_items_is_left_to_the_parser(mpi_ranks, comm):
    a, calls = np.full(4, float(comm.rank)), comm._han.calls
    for _ in range(3):
        comm.Bcast(Other([a, D]))
    assert a.tolist() == [comm.rank] * 4, "C takes no items that an iteration does not yield"
    assert calls.hits == 0


class Shifted(list[int]):
    """A list whose items are others than those that it iterates."""

    def __getitem__(self, k: Any) -> Any:
        return list.__getitem__(self, (k + 1) % len(self))


class Endless:
    """A sequence by its length and its items only."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, k: int) -> int:
        return 2


def test_the_first_call_reads_numbers_as_later_ones_and_mpi(mpi_ranks):
    size = WORLD.size
    starts = [4 * r for r in range(size)]
    mine = np.arange(2.0) + 10 * WORLD.rank
    for counts, places in (
        ([2] * size, Shifted(starts)),
        (Endless(size), starts),
        (dict.fromkeys(range(size), 2), starts),
    ):
        wanted = np.full(4 * size, -1.0)
        WORLD.Allgatherv(mine, [wanted, (counts, places), D])
        with opened(new_comm()) as comm:
            for _ in range(3):
                found = np.full(4 * size, -1.0)
                comm.Allgatherv(mine, [found, (counts, places), D])
                assert found.tolist() == wanted.tolist()
        with opened(new_comm()) as comm, pytest.raises(han.ArgumentTypeError):
            comm.Allgatherv(mine, [wanted, (set(range(1, size + 1)), starts), D])


class Truncated(Number):
    """A number by its ``__int__``, which differs from its index."""

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value + 1


def roots(last: int) -> list[Any]:
    """Return ways to write a root, of which mpi4py refuses some."""
    scalars = [kind(last) for kind in (np.int8, np.int64, np.uint32, np.float64, np.array)]
    plain = [last, bool(last), float(last), last + 0.5, str(last), [last], None, 1j, float("nan")]
    return [*scalars, *plain, np.bool_(last), Number(last), Truncated(last)]


def test_roots_are_numbers_as_mpi4py_reads_them(mpi_ranks, comm):
    """Before the plan of a call is known, and after that, when it is read in C."""

    def said(comm: Any, root: Any) -> Any:
        a, b = np.full(3, WORLD.rank + 1.0), np.zeros(3)
        try:
            comm.Bcast(a, root=root)
            comm.Reduce(a, b, root=root)
        except TypeError:
            return "refused"
        except ValueError:
            return "refused" if isinstance(root, float) else "wrong"
        return a.tolist(), b.tolist()

    for _ in range(2):
        for root in roots(WORLD.size - 1):
            assert said(comm, root) == said(WORLD, root), repr(root)
        for _ in range(3):
            assert said(comm, WORLD.size - 1) == said(WORLD, WORLD.size - 1)


def test_a_list_may_change_while_its_counts_are_read(mpi_ranks, comm):
    class Rude(Number):
        def __index__(self) -> int:
            spec.clear()
            return self.value

    a = np.zeros(3)
    known(comm, "Bcast", [a, 2, D])
    for _ in range(3):
        a[:] = comm.rank + 1
        spec: list[Any] = [a, Rude(2), D]
        before = comm._han.calls.hits
        comm.Bcast(spec)
        assert comm._han.calls.hits == before + 1
        assert a.tolist() == [1, 1, comm.rank + 1]


def test_blocks_in_any_order(mpi_ranks, comm):
    size, rank = WORLD.size, WORLD.rank
    for counts in ([2] * size, [r + 1 for r in range(size)], [r % 2 for r in range(size)]):
        starts = [(r + 1) % size * (size + 1) for r in range(size)]
        mine = np.arange(float(counts[rank])) + 100 * rank
        found, wanted = np.full((2, size * (size + 1)), -1.0)
        WORLD.Allgatherv(mine, [wanted, counts, starts, D])
        often(comm, "Allgatherv", mine, [found, counts, starts, D])
        assert found.tolist() == wanted.tolist()
    if size > 2:
        with pytest.raises(ValueError, match="overlap"):
            comm.Allgatherv(np.zeros(2), [np.zeros(9), [2] * size, [4, 0, 3], D])


# ---- in place -----------------------------------------------------------------------------------


def calls(datatype: MPI.Datatype, a: Any) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Return calls in place on `a`: their names and arguments."""
    size, root = WORLD.size, WORLD.size - 1
    at_root = WORLD.rank == root
    one, all_blocks = [np.zeros(16), 2, datatype], [a, (2, 1), datatype]
    up, apart = [r % 2 + 1 for r in range(size)], [(size - 1 - r) * 3 for r in range(size)]
    return {
        "gather": ("Gather", (MPI.IN_PLACE, all_blocks, root) if at_root else (one, None, root)),
        "scatter": ("Scatter", (all_blocks, MPI.IN_PLACE, root) if at_root else (None, one, root)),
        "allgather": ("Allgather", (MPI.IN_PLACE, all_blocks)),
        "alltoall": ("Alltoall", (MPI.IN_PLACE, all_blocks)),
        "joined": ("Allgatherv", (MPI.IN_PLACE, [a, up, datatype])),
        "apart": ("Allgatherv", (MPI.IN_PLACE, [a, up, apart, datatype])),
        "numbers apart": ("Allgatherv", (MPI.IN_PLACE, [a, up, apart, D])),
    }


def test_buffers_in_place_of_derived_types_and_with_gaps(mpi_ranks, comm):
    def fill() -> None:
        data[:] = np.arange(data.size) + 1000 * WORLD.rank

    data = np.zeros(40 * WORLD.size)
    for how, datatype in {**derived_types(), "with gaps": MPI.DOUBLE_INT}.items():
        for what, (name, arguments) in calls(datatype, data).items():
            fill()
            getattr(WORLD, name)(*arguments)
            wanted = data.tolist()
            for form in FORMS:
                for _ in range(4):
                    fill()
                    finish(method_of(comm, form, name)(*arguments))
                    assert data.tolist() == wanted, (how, what, form)


def test_blocks_of_pairs_are_combined(mpi_ranks, comm):
    size, rank = WORLD.size, WORLD.rank
    pair = np.dtype([("value", "f8"), ("at", "i4")], align=True)
    for counts in ([1] * size, [400] * size, [r + 1 for r in range(size)]):
        operands = np.zeros(sum(counts), pair)
        operands["value"] = (np.arange(operands.size) * 7 + rank * 3) % 5
        operands["at"] = rank
        send = [operands, MPI.DOUBLE_INT]
        forms: list[tuple[str, tuple[Any, ...]]] = [("Reduce_scatter", (counts,))]
        if len(set(counts)) == 1:
            forms.append(("Reduce_scatter_block", ()))
        wanted = np.zeros(counts[rank], pair)
        WORLD.Reduce_scatter(send, [wanted, MPI.DOUBLE_INT], counts, MPI.MAXLOC)
        for name, more in forms:
            for form in FORMS:
                for in_place in (False, True):
                    for _ in range(4):
                        result = operands.copy() if in_place else np.zeros(counts[rank], pair)
                        source = MPI.IN_PLACE if in_place else send
                        given = (source, [result, MPI.DOUBLE_INT], *more, MPI.MAXLOC)
                        finish(method_of(comm, form, name)(*given))
                        behind = operands[counts[rank] :] if in_place else operands[:0]
                        expected = np.concatenate([wanted, behind])
                        assert (result == expected).all(), (name, form, in_place)
