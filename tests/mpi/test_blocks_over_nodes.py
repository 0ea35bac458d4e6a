"""Calls by blocks on several nodes: on each rank its own node, on pairs, and on uneven nodes."""

import itertools

import numpy as np
import pytest
from _support import APART, FORMS, TWO_BY_TWO, WORLD, Call, Checker, Reference, new_comm, opened
from mpi4py import MPI

import han
from han.model.collectives import BY_BLOCKS, ROOTED, UNEVEN

usual = pytest.mark.mpi(ranks=[2, 3, 5], timeout=120, unit="s")
NODES = {"alone": APART, "pairs": TWO_BY_TWO}
ELEMENTS = (0, 1, 5, 700, 20_000)  # of a block: beside a flag, in cells, in several messages


def calls(size):
    """Yield calls by blocks of all sizes, equal and uneven ones, in place and not."""
    for count, in_place in itertools.product(ELEMENTS, (False, True)):
        for collective in BY_BLOCKS:
            root = (count + len(collective)) % size if collective in ROOTED else 0
            yield Call(collective, count, "float64", root=root, in_place=in_place)
        for collective in UNEVEN:
            yield Call(collective, count, "float64", in_place=in_place, uneven=True)


@pytest.mark.parametrize("levels", NODES.values(), ids=[*NODES])
def test_they_give_the_results_of_mpi(mpi_ranks, levels, comm):
    reference = Reference(WORLD.Dup())
    for form in FORMS:
        check = Checker(comm, reference, form)
        check.every(calls(comm.size), form)
        assert not check.left
    assert comm.cache_info().made > 0


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
