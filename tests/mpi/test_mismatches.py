"""Ranks that make different calls after fifty good ones: an error that says so, in that call."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from _support import APART, SECONDS, TWO_BY_TWO, WORLD, impatient, new_comm, outcome, run
from mpi4py import MPI

import han
from han.common.units import format_size

GOOD = 50  # calls before the one that differs
SIZE, LAST = WORLD.size, WORLD.size - 1
SLACK = 64  # elements beyond each buffer
COUNTS = (1, 100, 1000, 16_384, 131_072)  # 8 B to 1 MiB
# Open MPI 5 writes all of a large message over a shorter receive buffer's end.
BETWEEN = COUNTS[: 2 if "Open MPI" in MPI.Get_library_version() else 3]
USE = {"submodule": "sm", "read_parent_flag": False}
ONE_BY_ONE = {"rules": [{"use": {"levels": {"everyone": USE}}}]}

usual = pytest.mark.mpi(ranks=[2, 3], timeout=120, unit="s")

Way = Callable[[han.Comm], object]


def f(n: int, dtype: str = "f8") -> np.ndarray:
    return np.zeros(n + SLACK, dtype)[:n]


OF_SIZE: dict[str, Callable[[han.Comm, int], object]] = {
    "allreduce": lambda c, n: c.Allreduce(f(n), f(n)),
    "in place": lambda c, n: c.Allreduce(MPI.IN_PLACE, f(n)),
    "bcast": lambda c, n: c.Bcast(f(n), 0),
    "bcast from the odd rank": lambda c, n: c.Bcast(f(n), LAST),
    "reduce": lambda c, n: c.Reduce(f(n), f(n), root=0),
    "reduce at the odd rank": lambda c, n: c.Reduce(f(n), f(n), root=LAST),
    "gather": lambda c, n: c.Gather(f(n), f(n * SIZE), root=0),
    "scatter": lambda c, n: c.Scatter(f(n * SIZE), f(n), root=0),
    "allgather": lambda c, n: c.Allgather(f(n), f(n * SIZE)),
    "alltoall": lambda c, n: c.Alltoall(f(n * SIZE), f(n * SIZE)),
    "reduce_scatter_block": lambda c, n: c.Reduce_scatter_block(f(n * SIZE), f(n)),
    "reduce_scatter": lambda c, n: c.Reduce_scatter(f(n * SIZE), f(n), [n] * SIZE),
    "allgatherv": lambda c, n: c.Allgatherv(f(n), [f(n * SIZE), [n] * SIZE]),
    "iallreduce": lambda c, n: c.Iallreduce(f(n), f(n)).Wait(),
    "ibcast": lambda c, n: c.Ibcast(f(n), 0).Wait(),
    "iallgather": lambda c, n: c.Iallgather(f(n), f(n * SIZE)).Wait(),
}
ON_NODES = ("allreduce", "in place", "bcast", "reduce", "reduce at the odd rank", "iallreduce")


@dataclass(frozen=True)
class Case:
    """The call of all ranks and that of the last one; `someone` must raise in the call itself."""

    name: str
    usual: Way
    odd: Way
    someone: bool = True


def of_sizes(
    names: tuple[str, ...] = tuple(OF_SIZE), sizes: tuple[int, ...] = COUNTS
) -> list[Case]:
    """Return cases of sizes that differ by an element or more; each name has three of the sizes."""
    cases = []
    for k, name in enumerate(names):
        for j in range(3):
            count = sizes[(2 * k + j) % len(sizes)]
            counts = (count, (count + 1, count - 1 or 2, count + count // 2 + 3)[(k + j) % 3])
            mine, odd = counts if (k + j) % 2 else counts[::-1]
            call = OF_SIZE[name]
            cases.append(Case(
                f"{name}, {mine} and {odd}",
                lambda c, call=call, n=mine: call(c, n),
                lambda c, call=call, n=odd: call(c, n),
            ))  # fmt: skip
    return cases


def first(a: np.ndarray, b: np.ndarray, _: object = None) -> None:
    b[:] = a


OP = MPI.Op.Create(first, commute=False)
KINDS: list[Case] = [
    Case(f"{name} of {n}", lambda c, w=usual, n=n: w(c, n), lambda c, w=odd, n=n: w(c, n), someone)
    for n in (1, 1000, 131_072)
    for name, usual, odd, someone in (
        ("operation", lambda c, n: c.Allreduce(f(n), f(n)),
         lambda c, n: c.Allreduce(f(n), f(n), MPI.MAX), True),
        ("own operation", lambda c, n: c.Allreduce(f(n), f(n)),
         lambda c, n: c.Allreduce(f(n), f(n), OP), True),
        ("type", lambda c, n: c.Allreduce(f(n), f(n)),
         lambda c, n: c.Allreduce(f(n, "i8"), f(n, "i8")), True),
        ("type of a reduce", lambda c, n: c.Reduce(f(n), f(n)),
         lambda c, n: c.Reduce(f(2 * n, "f4"), f(2 * n, "f4")), True),
        ("collective", lambda c, n: c.Allreduce(f(n), f(n)),
         lambda c, n: c.Reduce(f(n), f(n)), True),
        ("bcast and allgather", lambda c, n: c.Bcast(f(n), 0),
         lambda c, n: c.Allgather(f(n), f(n * SIZE)), True),
        ("barrier", lambda c, n: c.Allreduce(f(n), f(n)), lambda c, n: c.Barrier(), True),
        ("root of a reduce", lambda c, n: c.Reduce(f(n), f(n), root=0),
         lambda c, n: c.Reduce(f(n), f(n), root=LAST), True),
        ("root of a gather", lambda c, n: c.Gather(f(n), f(n * SIZE), root=0),
         lambda c, n: c.Gather(f(n), f(n * SIZE), root=LAST), True),
        # a root of a Bcast or a Scatter waits for no one, and the others agree
        ("root of a bcast", lambda c, n: c.Bcast(f(n), 0),
         lambda c, n: c.Bcast(f(n), LAST), False),
        ("root of a scatter", lambda c, n: c.Scatter(f(n * SIZE), f(n), root=0),
         lambda c, n: c.Scatter(f(n * SIZE), f(n), root=LAST), False),
    )
]  # fmt: skip
EVERYONE_WAITS = ("allre", "iallre", "allga", "iallga", "allto", "in place", "reduce_s", "own")


def check_told(case: Case, **more: object) -> None:
    """Check that all ranks raise in the call, or in their next one if they wait for no one."""
    comm = new_comm(**more)  # type: ignore[arg-type]
    for _ in range(GOOD):
        case.usual(comm)
    error, seconds = outcome(lambda: (case.odd if comm.rank == LAST else case.usual)(comm))
    later = outcome(comm.Barrier)[0] if error is None else error
    told = WORLD.allgather((error is not None, type(later).__name__, str(later), seconds))
    about = case.name, told
    assert {name for _, name, _, _ in told} == {"MismatchError"}, about
    assert any(in_call for in_call, *_ in told) or not case.someone, about
    if case.name.startswith(EVERYONE_WAITS):
        assert all(in_call for in_call, *_ in told), about
    for _, _, text, took in told:
        assert took < SECONDS, about
        assert text.count("does not make the same calls") == 1, about
        assert f"rank {LAST} " in text, about
        for rank in range(SIZE):
            assert text.count(f"rank {rank} was in ") <= 1, about
    with pytest.raises(han.RevokedError):
        comm.Barrier()
    comm.Free()


@pytest.mark.parametrize("more", [{}, ONE_BY_ONE], ids=["a flag for all", "a flag for each"])
def test_sizes_on_a_node(mpi_ranks, more):
    for case in of_sizes():
        check_told(case, **more)


def test_types_operations_roots_and_collectives_on_a_node(mpi_ranks):
    for case in KINDS:
        check_told(case)


@pytest.mark.parametrize("levels", [APART, TWO_BY_TWO], ids=["a rank a node", "two and one"])
def test_sizes_between_nodes(mpi_ranks, levels):
    for case in of_sizes(ON_NODES, BETWEEN):
        check_told(case, levels=levels)


def test_sizes_that_differ_by_whole_segments_between_nodes_end(mpi_ranks):
    """No message shows them: the time limit ends the wait for the last segment."""
    n, ended = 131_072, (han.MismatchError, han.CollectiveTimeoutError, han.PeerError)
    comm = new_comm(APART, timeout=0.5)
    error, seconds = outcome(lambda: comm.Bcast(f(n + (comm.rank == LAST)), 0))
    later, _ = outcome(comm.Barrier)
    assert any(isinstance(e, ended) for e in (error, later)), (error, later)
    assert seconds < SECONDS
    WORLD.Barrier()


def test_persistent_requests_of_other_sizes(mpi_ranks):
    for count in COUNTS:
        comm = new_comm()
        n = count + (comm.rank == LAST)
        with pytest.raises(han.MismatchError) as caught:
            run(comm.Allreduce_init(f(n), f(n)))
        for size in (count, count + 1):
            assert f"allreduce of {format_size(8 * size)}" in str(caught.value)
        comm.Free()


@impatient
def test_each_call_of_a_root_that_has_gone_on_is_compared(mpi_ranks, monkeypatch):
    monkeypatch.setattr("han.runtime.reports.ANSWER", 0.1)  # seconds; the root never answers
    for count in (1, 1000):  # in small slots, and in cells
        comm = new_comm()
        if comm.rank == 0:  # it waits for no one
            for k in range(6):
                comm.Bcast(f(count + (k == 3)), 0)
            WORLD.Barrier()
        else:
            WORLD.Barrier()
            for _ in range(3):
                comm.Bcast(f(count), 0)
            with pytest.raises(han.MismatchError, match="rank 0 does not make the same calls"):
                comm.Bcast(f(count), 0)
        WORLD.Barrier()
        comm.Free()


def test_calls_that_may_differ_between_ranks_still_pass(mpi_ranks, comm):
    data = np.arange(6.0)
    column = MPI.DOUBLE.Create_vector(3, 1, 2).Commit()
    for k in range(80):
        bytes_of = [f(3), 24, MPI.BYTE] if comm.rank == LAST else [data[:3].copy(), MPI.DOUBLE]
        comm.Bcast(bytes_of, 0)
        comm.Bcast([data.copy(), 1, column] if comm.rank else data[::2].copy(), k % SIZE)
        send = MPI.IN_PLACE if comm.rank == LAST else f(4)
        comm.Allreduce(send, f(4))
        comm.Reduce(f(4), f(4) if comm.rank == 0 else None, root=0)
        comm.Gather(f(2), f(2 * SIZE) if comm.rank == 0 else None, root=0)
        comm.Iallreduce(f(4), f(4)).Wait()
        comm.Barrier()
    column.Free()
