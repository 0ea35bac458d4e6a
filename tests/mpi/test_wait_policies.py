"""Wait policies: results are right whether ranks spin or sleep, alike or not."""

import time

import numpy as np
import pytest
from _support import (
    LEVELS,
    WORLD,
    Call,
    Checker,
    Reference,
    check_works,
    new_comm,
    on_both,
    on_four,
)

import han
from han.config.parts import POLICIES

usual = on_four


def calls(size):
    """Yield calls of several sizes."""
    for count in (0, 1000, 20_000):
        for root in {0, size - 1}:
            yield from (Call("bcast", count, root=root), Call("reduce", count, root=root))
        yield from (Call("allreduce", count), Call("allgather", count))
    yield Call("barrier")


@on_both
def test_every_policy_and_all_of_them_together(mpi_ranks):
    reference = Reference(WORLD.Dup())
    mixed = POLICIES[WORLD.rank % len(POLICIES)]
    for policy in (*POLICIES, mixed, "futex" if WORLD.rank else "spin"):
        for levels in LEVELS:
            comm = new_comm(levels, wait={"policy": policy, "timeout": 20, "spin": 10})
            Checker(comm, reference).every(calls(comm.size), policy)
            requests = [comm.Iallreduce(np.ones(100), np.empty(100)) for _ in "abc"]
            han.Request.Waitall(requests)
            check_works(comm)
            comm.Free()


def test_a_rank_that_sleeps_still_drives_mpi(mpi_ranks):
    """Its peer enters the collective only after it has a large message from the sleeping rank."""
    comm = new_comm(wait={"policy": "futex", "timeout": 20})
    large = np.ones(1 << 20)
    if WORLD.rank == 0:
        request = WORLD.Isend(large, 1)
        comm.Barrier()
        request.Wait()
    else:
        if WORLD.rank == 1:
            WORLD.Recv(np.empty_like(large), 0)
        comm.Barrier()
    comm.Free()


def test_a_rank_that_sleeps_leaves_the_processor_alone(mpi_ranks):
    """It may wait for flags, for messages, or as the root of broadcasts for room in its ring."""
    last, data = WORLD.size - 1, np.zeros(1 << 17)
    for levels in LEVELS:
        comm = new_comm(levels, wait={"policy": "futex", "timeout": 20})
        for call in (comm.Barrier, lambda comm=comm: comm.Bcast(data)):
            calls = 1 if call == comm.Barrier else 20
            call()
            WORLD.Barrier()
            if WORLD.rank == last:
                time.sleep(0.6)
            before = time.process_time()
            for _ in range(calls):
                call()
            assert WORLD.rank == last or time.process_time() - before < 0.3, (levels, calls)
        comm.Free()


def test_a_time_limit_ends_a_sleep(mpi_ranks):
    comm = new_comm(wait={"policy": "futex", "timeout": 1})
    if WORLD.rank:
        with pytest.raises((han.CollectiveTimeoutError, han.PeerError), match="waited for 1 s"):
            comm.Barrier()
    WORLD.Barrier()
