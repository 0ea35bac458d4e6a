"""Nonblocking and persistent collectives, communicators created from others, and threads."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from _support import check_works, comm_with, interleaved, opened, run_in_threads
from mpi4py import MPI

import han

on_ranks = pytest.mark.mpi(ranks=[1, 3, 6], timeout=60, unit="s")
on_six = pytest.mark.mpi(ranks=6, timeout=60, unit="s")
on_four = pytest.mark.mpi(ranks=4, timeout=60, unit="s")
WORLD = MPI.COMM_WORLD


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


# ---- nonblocking --------------------------------------------------------------------------------


@on_ranks
def test_several_outstanding_waited_for_out_of_order(mpi_ranks):
    with opened(open_interleaved({"segment": 5000})) as comm:
        size, rank = comm.Get_size(), comm.Get_rank()
        for n in (1, 600, 20_000):
            sends = [np.full(n, rank + k) for k in range(6)]
            sums, firsts = np.empty((6, n), int), [np.full(n, rank * 10 + k) for k in range(6)]
            requests = []
            for k in range(6):
                requests.append(comm.Iallreduce(sends[k], sums[k]))
                requests.append(comm.Ibcast(firsts[k], root=k % size))
                requests.append(comm.Ibarrier())
            order = range(len(requests)) if rank % 2 else reversed(range(len(requests)))
            for k in order:
                requests[k].Wait()
            assert [set(s) for s in sums.tolist()] == [{total(size, k)} for k in range(6)]
            assert [set(f) for f in map(list, firsts)] == [{k % size * 10 + k} for k in range(6)]


@on_six
def test_mixed_with_blocking_calls_and_requests_of_mpi(mpi_ranks):
    with opened(open_interleaved()) as comm:
        size, rank = comm.Get_size(), comm.Get_rank()
        for n in (3, 9000):
            late, now, got = np.empty(n), np.empty(n), np.empty(n)
            mine = np.full(n, float(rank))
            reduced = np.empty(n) if rank == 0 else None
            first = comm.Iallreduce(mine, late)
            comm.Allreduce(mine, now)
            requests = [
                comm.Ireduce(mine, reduced, MPI.MAX, 0),
                WORLD.Isend(mine, (rank + 1) % size, 5),
                WORLD.Irecv(got, (rank - 1) % size, 5),
                comm.Ibarrier(),
            ]
            assert han.Request.Waitall([*requests[::-1], first])
            assert now[0] == late[-1] == total(size)
            assert got[0] == (rank - 1) % size
            assert rank or reduced[-1] == size - 1


@on_six
def test_loops_of_test_and_waitany(mpi_ranks):
    with opened(open_interleaved()) as comm:
        buffer = np.full(30_000, comm.Get_rank())
        request = comm.Ibcast(buffer, root=comm.Get_size() - 1)
        while not request.Test():
            pass
        assert set(buffer) == {comm.Get_size() - 1}
        assert request.test() == (True, None)
        requests = [comm.Ibarrier() for _ in range(3)]
        assert sorted(han.Request.Waitany(requests) for _ in range(3)) == [0, 1, 2]
        assert han.Request.Waitany(requests) == MPI.UNDEFINED


@on_six
def test_requests_that_are_dropped_still_run(mpi_ranks):
    with opened(open_interleaved()) as comm:
        for k in range(20):
            comm.Ibarrier()
            comm.Ibcast(np.full(3000, k), root=k % comm.Get_size())
            if k % 5 == 0:
                gc.collect()
        total_of = np.empty(1)
        comm.Allreduce(np.ones(1), total_of)
        assert total_of[0] == comm.Get_size()


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


# ---- blocks -------------------------------------------------------------------------------------


def block_cases(size, rank, n):
    """Yield calls that move blocks of `n` numbers: method, arguments, index of the result."""
    root, mine = size - 1, np.arange(n) + 1000 * rank
    blocks = np.arange(size * n) * (rank + 1)
    gaps = MPI.INT64_T.Create_vector(n, 1, 2).Create_resized(0, 16 * n).Commit()
    spread = np.arange(2 * n * size) + 100 * rank
    at_root, every = rank == root, np.full(size * n, -1)
    own = every.copy()
    own[rank * n :][:n] = mine
    yield "Gather", (mine, every.copy() if at_root else None, root), 1
    yield "Gather", (MPI.IN_PLACE if at_root else mine, own.copy() if at_root else None, root), 1
    yield "Scatter", (blocks if at_root else None, every[:n].copy(), root), 1
    if not at_root:
        yield "Scatter", (None, [every[: 2 * n].copy(), 1, gaps], root), 1
    else:
        yield "Scatter", ([spread, 1, gaps], MPI.IN_PLACE, root), 0
    yield "Allgather", (mine, [every.copy(), n, MPI.INT64_T]), 1
    yield "Allgather", (MPI.IN_PLACE, own.copy()), 1
    yield "Allgather", (MPI.IN_PLACE, [spread.copy(), 1, gaps]), 1
    yield "Alltoall", (blocks, every.copy()), 1
    yield "Alltoall", (MPI.IN_PLACE, [spread.copy(), gaps]), 1
    yield "Alltoall", ([spread, 1, gaps], [every.copy(), n, MPI.INT64_T]), 1
    yield "Reduce_scatter_block", (blocks, every[:n].copy(), MPI.MAX), 1
    counts = [n * (r % 3) // 2 + r for r in range(size)]
    each, most = counts[rank], sum(counts)
    starts = [size * n + size * size - sum(counts[: r + 1]) for r in range(size)]
    wide = np.full(2 * (size * n + size * size), -1)
    whole = np.arange(most) * (rank + 1)
    yield "Allgatherv", (whole[:each], [wide.copy(), counts]), 1
    yield "Allgatherv", (whole[:each], [wide.copy(), (counts, starts), MPI.INT64_T]), 1
    wider = np.arange(wide.size) * (rank + 1)
    spaced = MPI.INT64_T.Create_resized(0, 16).Commit()
    yield "Allgatherv", ([wider, each, spaced], [wide.copy(), counts, starts, spaced]), 1
    yield "Reduce_scatter", (whole, np.full(each, -1), counts, MPI.MAX), 1
    yield "Reduce_scatter", (whole, np.full(each, -1)), 1


def memory_of(buffer):
    """Return the array of a buffer argument."""
    return buffer[0] if isinstance(buffer, list) else buffer


def check_blocks(comm, reference, n, persistent):
    """Make all calls at once in each form, wait in reverse order, and compare with MPI."""
    size, rank = comm.Get_size(), comm.Get_rank()
    wanted = []
    for name, arguments, result in block_cases(size, rank, n):
        getattr(reference, name)(*arguments)
        wanted.append(memory_of(arguments[result]))
    for form in ("{}", "I{}", "{}_init")[: 3 if persistent else 2]:
        got, requests = [], []
        for name, arguments, result in block_cases(size, rank, n):
            called = form.format(name.lower() if form == "I{}" else name)
            requests.append(getattr(comm, called)(*arguments))
            got.append((called, arguments, memory_of(arguments[result])))
        if form == "{}_init":
            han.Request.Startall(requests)
        if form != "{}":
            for request in reversed(requests):
                request.Wait()
        for (called, arguments, ours), theirs in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs, f"{called}{arguments[2:]} of {n}")
        for request in requests if form == "{}_init" else ():
            request.Free()


@pytest.mark.mpi(ranks=[1, 4], timeout=120, unit="s")
def test_blocks_in_all_forms_within_and_between_nodes(mpi_ranks):
    for shared_to in (0, 1):
        with opened(open_interleaved(None, shared_to)) as comm:
            here = comm.Get_size() == 1 or shared_to == 1
            left = comm.explain("allgather", 8).rule.startswith("none")
            assert left != here
            for n in (0, 3, 700, 9000):
                check_blocks(comm, WORLD, n, persistent=here and n == 700)
            wait_before_and_after_an_allgather(comm)


def wait_before_and_after_an_allgather(comm):
    """One rank is in an allgather while its peers still need its part in an earlier allreduce."""
    mine, total_of = np.ones(50_000), np.empty(50_000)
    out = np.empty(comm.Get_size())
    request = comm.Iallreduce(mine, total_of)
    if comm.Get_rank():
        request.Wait()
    comm.Allgather(np.ones(1), out)
    request.Wait()
    assert total_of[-1] == out.sum() == comm.Get_size()


# ---- persistent ---------------------------------------------------------------------------------


@on_ranks
def test_persistent_ones_live_at_once_and_start_in_any_order(mpi_ranks):
    live_at_once(None, in_order=False)


@on_six
def test_persistent_ones_over_collectives_of_mpi(mpi_ranks):
    use = {"segment": 4000, "levels": {"network": {"submodule": "libnbc"}}}
    live_at_once(use, in_order=True)  # MPI requires one order on all ranks


def live_at_once(use, in_order):
    with opened(open_interleaved(use)) as comm:
        size, rank = comm.Get_size(), comm.Get_rank()
        mine, sums = np.zeros(700, int), np.empty(700, int)
        data = np.zeros(5000, int)
        most = np.empty(30, int) if rank == size - 1 else None
        requests = [
            comm.Allreduce_init(mine, sums),
            comm.Bcast_init(data, root=size - 1),
            comm.Reduce_init(mine[:30], most, MPI.MAX, size - 1),
            comm.Barrier_init(),
        ]
        order = requests if rank % 2 == 0 or in_order else requests[::-1]
        for k in range(100):
            mine[:] = rank + k
            data[:] = k if rank == size - 1 else -1
            han.Request.Startall(order)
            if k % 2:
                han.Request.Waitall(requests)
            for request in requests:
                request.Wait()
            assert set(sums) == {total(size, k)}
            assert set(data) == {k}
            assert most is None or set(most) == {size - 1 + k}
        for request in requests:
            request.Free()
        with pytest.raises(ValueError, match="freed"):
            requests[0].Start()


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


# ---- communicators ------------------------------------------------------------------------------


@on_four
def test_communicators_made_of_a_han_comm_are_han_comms(mpi_ranks):
    comm = han.Comm(WORLD)
    rank = comm.Get_rank()
    group = comm.Get_group().Incl([0, 2, 3])
    made = [
        comm.Dup(),
        comm.Clone(),
        comm.Split(rank % 2, -rank),
        comm.Split_type(MPI.COMM_TYPE_SHARED),
        comm.Create(group),
        comm.Split(MPI.UNDEFINED if rank == 1 else 0),
    ]
    if rank != 1:
        made.append(comm.Create_group(group))
    for k, each in enumerate(made):
        if rank == 1 and k in (4, 5):
            assert each == MPI.COMM_NULL
            with pytest.raises(han.RevokedError, match="COMM_NULL"):
                each.Barrier()
        else:
            check_works(each)
            each.Free()
            assert each == MPI.COMM_NULL
    check_works(comm)


@on_four
def test_making_it_twice_shares_the_state(mpi_ranks):
    plain = WORLD.Dup()
    one, two = han.Comm(plain), han.Comm(plain)
    assert one._han is two._han
    with pytest.raises(han.ConfigError, match="another configuration"):
        han.Comm(plain, {"memory": "4MiB"})
    check_works(two)
    one.Free()


@on_four
def test_what_han_does_not_do_is_mpis(mpi_ranks):
    comm = han.Comm(WORLD)
    size, rank = comm.Get_size(), comm.Get_rank()
    assert comm.allreduce([rank], MPI.SUM) == list(range(size))
    assert comm.bcast({"a": rank}, root=2) == {"a": 2}
    assert comm.reduce(rank, MPI.MAX, 0) == (size - 1 if rank == 0 else None)
    assert comm.allgather(rank) == list(range(size))
    out = np.empty(size, int)
    comm.Allgather(np.array([rank]), out)
    assert out.tolist() == list(range(size))
    got = comm.sendrecv(rank, (rank + 1) % size, source=(rank - 1) % size)
    assert got == (rank - 1) % size
    assert comm == WORLD
    assert comm.Get_rank() == WORLD.Get_rank()
    assert comm.Get_topology() == MPI.UNDEFINED


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
