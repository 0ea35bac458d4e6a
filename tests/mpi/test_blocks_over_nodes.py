"""Calls by blocks on several nodes: on each rank its own node, on pairs, and on uneven nodes."""

import numpy as np
import pytest
from _support import APART, FORMS, TWO_BY_TWO, finish, method_of, new_comm, opened
from mpi4py import MPI

import han

on_ranks = pytest.mark.mpi(ranks=[2, 3, 5], timeout=120, unit="s")
NODES = {"alone": APART, "pairs": TWO_BY_TWO}
ELEMENTS = (0, 1, 5, 700, 20_000)  # of a block: beside a flag, in cells, in several messages


def calls(comm, n, root):
    """Return calls by name: their arguments, the result, and what it is to be."""
    size, rank = comm.Get_size(), comm.Get_rank()
    one, every = np.arange(n) + 1000.0 * rank, np.arange(float(size * n))
    mine, counts = every[rank * n : (rank + 1) * n], [n * (k + 1) // size for k in range(size)]
    gathered = (np.arange(n) + 1000.0 * np.arange(size)[:, None]).reshape(-1)
    starts = np.cumsum([0, *counts])
    uneven = np.concatenate([gathered[k * n : k * n + counts[k]] for k in range(size)])
    part = every[: starts[-1]]
    at_root, block, all_blocks = rank == root, np.full(n, -1.0), np.full(size * n, -1.0)
    few, parts = np.full(counts[rank], -1.0), np.full(starts[-1], -1.0)
    every_sum, nothing = size * every, np.full(size * n, -1.0)
    return {
        "Gather": ((one, all_blocks, root), all_blocks, gathered if at_root else nothing),
        "Scatter": ((every, block, root), block, mine),
        "Allgather": ((one, all_blocks), all_blocks, gathered),
        "Alltoall": ((every + rank, all_blocks), all_blocks,
                     (mine + np.arange(size)[:, None]).reshape(-1)),
        "Reduce_scatter_block": ((every, block), block, every_sum[rank * n : (rank + 1) * n]),
        "Reduce_scatter": ((part, few, counts), few,
                           size * part[starts[rank] : starts[rank + 1]]),
        "Allgatherv": ((one[: counts[rank]], [parts, counts]), parts, uneven),
    }  # fmt: skip


@on_ranks
@pytest.mark.parametrize("levels", NODES.values(), ids=[*NODES])
def test_they_give_the_results_of_mpi(mpi_ranks, levels):
    with opened(new_comm(levels)) as comm:
        for form in FORMS:
            for n in ELEMENTS:
                for name in calls(comm, n, 0):
                    root = (n + len(name)) % comm.size
                    arguments, result, expected = calls(comm, n, root)[name]
                    request = method_of(comm, form, name)(*arguments)
                    assert request is None or isinstance(request, han.Request)
                    finish(request)
                    assert result.tolist() == expected.tolist(), (form, name, n)
        assert comm.cache_info().made > 0


@on_ranks
@pytest.mark.parametrize("levels", NODES.values(), ids=[*NODES])
def test_in_place_operands_and_results_share_a_buffer(mpi_ranks, levels):
    with opened(new_comm(levels)) as comm:
        for n in ELEMENTS:
            wanted = calls(comm, n, 0)
            for name in ("Alltoall", "Reduce_scatter_block", "Reduce_scatter"):
                (operand, _, *more), _, expected = wanted[name]
                buffer = operand.copy()
                method_of(comm, "{}", name)(MPI.IN_PLACE, buffer, *more)
                assert buffer[: expected.size].tolist() == expected.tolist(), (name, n)
            (one, _), _, expected = wanted["Allgather"]
            buffer = np.zeros(n * comm.size)
            buffer[comm.rank * n : (comm.rank + 1) * n] = one
            comm.Allgather(MPI.IN_PLACE, buffer)
            assert buffer.tolist() == expected.tolist(), n


@on_ranks
def test_operands_that_do_not_commute_keep_their_order(mpi_ranks):
    """Right operands win, so the result is the block of the last rank."""
    op = MPI.Op.Create(lambda a, b, t: None, commute=False)
    with opened(new_comm(TWO_BY_TWO)) as comm:
        for n in (1, 700):
            send = np.repeat(float(comm.rank), n * comm.size)
            recv = np.full(n, -1.0)
            comm.Reduce_scatter_block(send, recv, op)
            assert recv.tolist() == [comm.size - 1.0] * n
    op.Free()


@on_ranks
def test_runs_under_way_progress_meanwhile(mpi_ranks):
    """Rank 0 waits for the others in a gather; they wait for its part of an allreduce first."""
    with opened(new_comm(APART)) as comm, opened(new_comm(APART)) as other:
        for n in (1, 1000, 100_000):
            for where in (comm, other):
                total, got = np.empty(n), np.empty(comm.size)
                request = where.Iallreduce(np.ones(n), total)
                if comm.rank:
                    request.Wait()
                comm.Gather(np.ones(1), got)
                request.Wait()
                assert (total == comm.size).all()
                assert comm.rank or (got == 1).all()


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_after_an_error_they_raise_as_all_calls_do(mpi_ranks):
    comm = new_comm(APART)
    comm.Allgather(np.ones(1), np.zeros(2))
    comm._han.health.give_up(RuntimeError("enough"))
    for name in ("Allgather", "Iallgather", "Allgather_init"):
        with pytest.raises(han.RevokedError, match="enough"):
            getattr(comm, name)(np.ones(1), np.zeros(2))
    comm.Free()
