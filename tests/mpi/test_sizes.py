"""Sizes that change from call to call: few plans serve all of them, with right results."""

import numpy as np
import pytest
from _support import WORLD, Call, Checker, Reference, comm_with, interleaved, new_comm, opened

import han

MOST = 40_000  # elements of 8 bytes
PLANS = 70  # at most, for each collective


def counts(number: int, most: int = MOST) -> list[int]:
    """Draw counts, the same on all ranks: few elements, many, and those around the bounds."""
    draw = np.random.default_rng(number)
    near = [(1 << k) // 8 * m // 2 + d for k in range(4, 18) for m in (2, 3) for d in (-1, 0, 1)]
    found = [*range(40), *draw.integers(1, most, 60).tolist(), *near]
    return [int(n) for n in draw.permutation(found) if 0 <= n <= most]


def mine(count: int, rank: int) -> np.ndarray:
    return np.arange(count, dtype="i8") + 1000 * rank


TOGETHER = (
    ("allreduce",), ("bcast",), ("reduce",),
    ("allgather", "alltoall", "reduce_scatter", "scatter", "gather"),
)  # fmt: skip


@pytest.mark.mpi(ranks=[1, 2, 4, 5], timeout=120, unit="s")
@pytest.mark.parametrize("levels", ["one node", "nodes"])
def test_few_plans_serve_all_sizes(mpi_ranks, levels):
    made = new_comm() if levels == "one node" else comm_with(WORLD, interleaved(WORLD.size))
    with opened(made) as comm:
        check = Checker(comm, Reference(WORLD.Dup()))
        for number, names in enumerate(TOGETHER):
            for count in counts(number, MOST if levels == "one node" else MOST // 4):
                for name in names:
                    size = count // comm.size if len(names) > 1 else count
                    check(Call(name, size, root=count % comm.size))
        kept = comm.cache_info()
    plans = PLANS * (len(TOGETHER) + 4) + WORLD.size * 2 * PLANS  # plans differ by root
    assert kept.misses < plans
    assert kept.hits > kept.misses


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_calls_of_one_class_are_outstanding_at_a_time(mpi_ranks, comm):
    for base in (2, 300, 3000, 20_000):
        sizes = [base + k * base // 12 for k in range(4)] * 2
        sent = [mine(n, comm.rank) for n in sizes]
        got = [np.zeros(n, "i8") for n in sizes]
        requests = [comm.Iallreduce(s, g) for s, g in zip(sent, got, strict=True)]
        requests += [comm.Ibcast(s, 1) for s in sent[:2]]
        han.Request.Waitall(requests)
        for n, g in zip(sizes, got, strict=True):
            assert (g == sum(mine(n, r) for r in range(comm.size))).all()
        assert (sent[0] == mine(sizes[0], 1)).all()


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_persistent_requests_take_over_slots(mpi_ranks, comm):
    engines = set()
    for count in (4, 5, 300, 6, 5000, 7, 4000):
        sent, got = mine(count, comm.rank), np.zeros(count, "i8")
        request = comm.Allreduce_init(sent, got)
        engines.add(id(request._engine))
        for _ in range(3):
            got[:] = 0
            request.Start()
            request.Wait()
            assert (got == sum(mine(count, r) for r in range(comm.size))).all()
        request.Free()
    # A rank may have to leave a slot yet when the first one makes the next request.
    assert len(engines) <= 4
    alive = [comm.Bcast_init(mine(9, comm.rank), 0) for _ in range(5)]
    assert len({id(one._engine) for one in alive}) == 5
    for one in alive[:: 1 if comm.rank else -1]:
        one.Start()
    for one in alive:
        one.Wait()
        one.Free()
