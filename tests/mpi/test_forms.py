"""Nonblocking and persistent calls beside others, and calls of threads."""

import numpy as np
import pytest
from _support import WORLD, check_works, comm_with, interleaved, opened, run_in_threads
from mpi4py import MPI

on_ranks = pytest.mark.mpi(ranks=[1, 3, 6], timeout=60, unit="s")
on_six = pytest.mark.mpi(ranks=6, timeout=60, unit="s")
on_four = pytest.mark.mpi(ranks=4, timeout=60, unit="s")


def open_interleaved(use=None, shared_to=0):
    return comm_with(WORLD, interleaved(WORLD.size), use, shared_to)


def total(size, k=0):
    return size * (size - 1) // 2 + size * k


@on_ranks
def test_the_two_names_of_barrier_are_one_call(mpi_ranks):
    with opened(open_interleaved()) as comm:
        for turn in range(20):
            (comm.barrier if (turn + comm.Get_rank()) % 2 else comm.Barrier)()
        info = comm.cache_info()
        assert (info.hits, info.misses) == (19, 1)


@on_four
def test_a_temporary_send_buffer_lives_until_the_call_is_complete(mpi_ranks):
    with opened(open_interleaved(shared_to=-1)) as comm:
        wrong = 0
        for turn in range(40):
            child = comm.Split(0, comm.Get_rank())  # its first call is the MPI library's
            place = (comm, child)[turn % 2]
            counts, out = [20_000] * comm.Get_size(), np.zeros(20_000)
            request = place.Ireduce_scatter(np.ones(sum(counts)), out, counts)
            junk = [np.full(sum(counts), 9.0) for _ in range(2)]
            del junk
            request.Wait()
            wrong += not (out == comm.Get_size()).all()
            child.Free()
        assert wrong == 0


@on_ranks
def test_a_request_freed_while_it_is_active_is_completed(mpi_ranks):
    """MPI forbids it, and mpi4py hands it to MPI. One rank frees; the others wait."""
    with opened(open_interleaved()) as comm:
        size, rank = comm.Get_size(), comm.Get_rank()
        for k, n in enumerate((3, 30_000)):
            mine, sums = np.full(n, rank + k), np.zeros(n, int)
            persistent = comm.Allreduce_init(mine, sums)
            for lasting in (False, True):
                sums[:] = 0
                request = persistent if lasting else comm.Iallreduce(mine, sums)
                if lasting:
                    persistent.Start()
                request.Free() if rank == k % size else request.Wait()
                assert set(sums.tolist()) == {total(size, k)}
            if rank == k % size:
                with pytest.raises(ValueError, match="freed"):
                    persistent.Start()
                assert persistent == MPI.REQUEST_NULL
            else:
                persistent.Free()
        check_works(comm)


@on_six
def test_two_communicators_with_crossed_waits(mpi_ranks):
    with opened(open_interleaved()) as one, opened(open_interleaved()) as two:
        size, rank = one.Get_size(), one.Get_rank()
        for n in (4, 20_000):
            mine, a, b = np.full(n, rank), np.empty(n, int), np.empty(n, int)
            first, second = one.Iallreduce(mine, a), two.Iallreduce(mine, b)
            for request in (first, second) if rank % 2 else (second, first):
                request.Wait()
            assert set(a) == set(b) == {total(size)}


@on_six
def test_persistent_ones_beside_blocking_and_nonblocking_calls(mpi_ranks):
    with opened(open_interleaved()) as comm:
        size, rank = comm.Get_size(), comm.Get_rank()
        here, out = np.full(9000, float(rank)), np.empty(9000)
        with comm.Allreduce_init(here, out) as request:
            for k in range(20):
                request.Start()
                assert request.active
                with pytest.raises(RuntimeError, match="active"):
                    request.Start()
                other = np.full(4, float(k))
                comm.Bcast(other)
                pending = comm.Ibarrier()
                request.Wait()
                pending.Wait()
                assert out[0] == out[-1] == total(size)
        comm.Bcast_init(np.zeros(3))  # never started, never freed


@on_four
def test_threads_on_different_communicators(mpi_ranks):
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI gives no THREAD_MULTIPLE")
    comms = [open_interleaved(), open_interleaved(None, 1), open_interleaved()]

    def work(index, comm):
        size, rank = comm.Get_size(), comm.Get_rank()
        for k in range(100):
            n = (5, 3000, 20_000)[(k + index) % 3]
            out, buffer = np.empty(n, int), np.full(n, k * (rank == k % size))
            comm.Allreduce(np.full(n, rank + k), out)
            request = comm.Ibcast(buffer, root=k % size)
            request.Wait()
            assert set(out) == {total(size, k)}
            assert set(buffer) == {k}

    run_in_threads(work, *enumerate(comms))
    for comm in comms:
        comm.Free()
