"""Calls with blocks of different sizes: as MPI carries them out, and served by the look-up in C."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from _support import FORMS, WORLD, finish, method_of, new_comm
from mpi4py import MPI
from tensors import Tensor

import han

D = MPI.DOUBLE
usual = pytest.mark.mpi(ranks=[2, 3], timeout=120, unit="s")


def rows_of(size: int) -> list[list[int]]:
    """Return the counts of some calls: different, with the same largest block, equal, and empty."""
    up = [r + 1 for r in range(size)]
    return [
        up,
        up[::-1],
        [size] * size,
        [0] * (size - 1) + [size],
        [0] * size,
        [1] + [size] * (size - 1),
    ]


def starts_of(counts: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(counts, initial=0))[:-1]


TARGETS: dict[str, Callable[[Any, list[int]], Any]] = {  # of an array that holds all blocks
    "[a, counts]": lambda a, n: [a, n],
    "[a, counts, type]": lambda a, n: [a, n, D],
    "[a, (counts, None), type]": lambda a, n: [a, (n, None), D],
    "[a, (counts, starts)]": lambda a, n: [a, (n, starts_of(n))],
    "(a, (tuple, tuple), code)": lambda a, n: (a, (tuple(n), tuple(starts_of(n))), "d"),
    "[a, counts, starts, type]": lambda a, n: [a, n, starts_of(n), D],
    "[a, array]": lambda a, n: [a, np.array(n)],
    "[a, (32 bits, 32 bits)]": lambda a, n: [a, (np.array(n, "i4"), np.array(starts_of(n), "i4"))],
    "[tensor, counts]": lambda a, n: [Tensor(a), n],
    "[bytes of a, counts, type]": lambda a, n: [a.view("u1"), n, D],
}


def allgatherv(
    comm: MPI.Intracomm, target: Any, a: Any, counts: list[int], form: int
) -> list[float]:
    """Gather `counts` numbers in one of four forms: blocking or not, in place or not."""
    rank, starts = comm.rank, starts_of(counts)
    mine = np.arange(float(counts[rank])) + 100 * rank
    a[:] = -1.0
    if form % 2:
        a[starts[rank] :][: mine.size] = mine
    send = MPI.IN_PLACE if form % 2 else mine
    if form < 2:
        comm.Allgatherv(send, target)
    else:
        comm.Iallgatherv(send, target).Wait()
    return a.tolist()


def test_usual_spellings_of_allgatherv_take_the_quick_way(mpi_ranks, comm):
    for counts, form in itertools.product(rows_of(comm.size), range(4)):
        a = np.zeros(sum(counts) + 1)
        wanted = allgatherv(WORLD, [a, counts], a, counts, form)
        for how, spell in TARGETS.items():
            for _ in range(3):  # the first calls plan, and teach the reader
                assert allgatherv(comm, spell(a, counts), a, counts, form) == wanted, how
            before = comm._han.calls.hits
            assert allgatherv(comm, spell(a, counts), a, counts, form) == wanted, how
            assert comm._han.calls.hits == before + 1, (how, counts, form)


def reduce_scatter(
    comm: MPI.Intracomm, counts: Any, numbers: list[int], op: MPI.Op, starts: bool
) -> Any:
    send = np.arange(float(sum(numbers))) * (comm.rank + 1)
    recv = np.zeros(numbers[comm.rank])
    if starts:
        comm.Ireduce_scatter([send, D], (recv, "d"), counts, op).Wait()
    else:
        comm.Reduce_scatter(send, [recv, recv.size, D], counts, op)
    return recv.tolist()


def test_reduce_scatter_with_counts_takes_the_quick_way(mpi_ranks, comm):
    later = MPI.Op.Create(lambda a, b, t: None, commute=True)  # keeps one of the operands
    ops = (MPI.SUM, MPI.MAX, later)
    for numbers, op, starts in itertools.product(rows_of(comm.size), ops, (False, True)):
        for kind in (list, tuple, np.array, lambda n: np.array(n, "i4")):
            for _ in range(3):
                found = reduce_scatter(comm, kind(numbers), numbers, op, starts)
            before = comm._han.calls.hits
            assert reduce_scatter(comm, kind(numbers), numbers, op, starts) == found
            assert comm._han.calls.hits == before + 1, (numbers, kind, starts)
            if op != later:
                assert found == reduce_scatter(WORLD, numbers, numbers, op, starts)
    later.Free()


def test_a_list_of_counts_that_changes(mpi_ranks, comm):
    """What is compared are the numbers, not the list."""
    size, rank = comm.size, comm.rank
    counts = [0] * size
    a = np.zeros(size * size + 1)
    target = [a, counts, D]
    for numbers in rows_of(size) * 3:
        counts[:] = numbers
        found = allgatherv(comm, target, a, counts, 0)
        assert found == allgatherv(WORLD, [a, numbers], a, numbers, 0)
        result = reduce_scatter(comm, counts, numbers, MPI.SUM, False)
        assert result == reduce_scatter(WORLD, numbers, numbers, MPI.SUM, False), rank


def allgathered(comm: MPI.Intracomm, form: str, counts: Any) -> Any:
    """Gather blocks; check that nothing is written behind them."""
    mine = np.arange(float(counts[comm.rank])) + 1000 * comm.rank
    recv = np.full(sum(counts) + 3, -1.0)
    args = [mine, mine.size, D], [recv, list(counts), D]
    finish(method_of(comm, form, "Allgatherv")(*args), 2)
    assert (recv[-3:] == -1).all()
    return recv.tolist()


def scattered(comm: MPI.Intracomm, form: str, counts: Any) -> Any:
    mine = np.arange(float(sum(counts))) * (comm.rank + 1)
    recv = np.full(counts[comm.rank] + 3, -1.0)
    args = [mine, D], [recv, int(counts[comm.rank]), D], list(counts)
    finish(method_of(comm, form, "Reduce_scatter")(*args))
    assert (recv[-3:] == -1).all()
    return recv.tolist()


def test_calls_of_many_counts_share_few_plans(mpi_ranks, comm):
    draw = np.random.default_rng(11)
    for k in range(240):
        most = int(2 ** draw.uniform(0, 17))
        counts = draw.integers(0, most + 1, comm.size)
        counts[draw.integers(comm.size)] = most
        for call in (allgathered, scattered):
            assert call(comm, FORMS[k % 3], counts) == call(WORLD, "{}", counts), (call, counts)
    assert len(comm._han.parts.plans._kept) < 100, comm.cache_info()


def test_ranks_that_pass_other_counts_are_told(mpi_ranks):
    for form in ("{}", "{}_init"):
        comm = new_comm()
        counts = [4] * (comm.size - 1) + [7]
        for _ in range(3):
            allgathered(comm, form, counts)
        wrong = [5, *counts[1:]] if comm.rank == 1 else counts
        with pytest.raises(han.HanError):
            allgathered(comm, form, wrong)
        WORLD.Barrier()


def test_equal_blocks_share_the_plan_of_allgather(mpi_ranks, comm):
    send, recv = np.full(3, comm.rank), np.zeros(3 * comm.size, int)
    comm.Allgather(send, recv)
    before = comm._han.calls.hits
    for target in ([recv, 3], recv, [recv, [3] * comm.size]):
        comm.Allgatherv(send, target)
    assert comm._han.calls.hits == before + 1
    assert comm.cache_info().misses == 1
    assert recv.tolist() == np.repeat(range(comm.size), 3).tolist()


def test_blocks_in_other_places_and_with_gaps_still_work(mpi_ranks, comm):
    pair = D.Create_vector(1, 1, 2).Create_resized(0, 16).Commit()
    size, rank = comm.size, comm.rank
    counts = [r + 1 for r in range(size)]
    total = sum(counts)
    backward = [sum(counts[r + 1 :]) for r in range(size)]
    apart = [r * (size + 1) for r in range(size)]
    mine = np.arange(float(rank + 1)) + 100 * rank
    targets = [
        [0, (counts, backward), D], [0, counts, pair], [0, (counts, apart), D],
        [0, counts, apart, D], [0, (counts, backward), pair], [0, counts, D],
    ]  # fmt: skip
    for _ in range(4):
        for target in targets:
            found = []
            for made in (WORLD, comm):
                target[0] = np.full(2 * total + size * (size + 1), -1.0)
                made.Allgatherv(mine, target)
                found.append(target[0].tolist())
            assert found[0] == found[1]
    for target in targets:
        for make in (comm.Iallgatherv, comm.Allgatherv_init):
            for _ in range(3):
                target[0] = np.full(2 * total + size * (size + 1), -1.0)
                request = make(mine, target)
                if make == comm.Allgatherv_init:
                    request.Start()
                request.Wait()
                wanted = np.full_like(target[0], -1.0)
                WORLD.Allgatherv(mine, [wanted, *target[1:]])
                assert (target[0] == wanted).all()
    pair.Free()


def test_wrong_blocks_are_refused_after_right_ones(mpi_ranks, comm):
    size = comm.size
    counts = [r + 1 for r in range(size)]
    total = sum(counts)
    mine, a, fixed = np.zeros(comm.rank + 1), np.zeros(total), np.zeros(total)
    fixed.flags.writeable = False
    for _ in range(3):
        comm.Allgatherv(mine, [a, counts, D])
        comm.Reduce_scatter(a, mine, counts)
    for send, recv, said in (
        (mine, [fixed, counts, D], "read-only"),
        (np.zeros(size + 1), [a, counts], "expected"),
        (mine, [a[1:], counts], "."),
        (mine, [a, [*counts[:-1], -1]], "negative"),
        (mine, [a, counts[:-1]], "one for each rank"),
        (a[comm.rank : 2 * comm.rank + 1], [a, counts], "overlap"),
        (mine, [a, (counts, 0)], "overlap"),
    ):
        with pytest.raises((ValueError, TypeError), match=said):
            comm.Allgatherv(send, recv)
    for send, recv, numbers, said in (
        (a, mine, [*counts[:-1], -1], "negative"),
        (a, mine, counts[:-1], "one for each rank"),
        (a, np.zeros(size + 1), counts, "expected"),
        (a[1:], mine, counts, "expected"),
        (a, np.zeros(mine.size, "f4"), counts, "element types"),
        (a, a[: mine.size], counts, "overlap"),
    ):
        with pytest.raises((ValueError, TypeError), match=said):
            comm.Reduce_scatter(send, recv, numbers)
