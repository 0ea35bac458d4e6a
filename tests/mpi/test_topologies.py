"""Uneven, interleaved and deep topologies; collectives back to back with late ranks."""

import itertools
import random
import time

import numpy as np
import pytest
from _support import WORLD, Call, Checker, Reference, comm_with, interleaved, opened

from han.model.channel_layout import CROWDED_BANKS

COUNTS = (0, 1, 5, 300, 9001)
RING = ["bcast", "allreduce", "reduce", "barrier", "allreduce", "bcast"]


def deep(size, depth):
    """Return uneven nested domains of interleaved ranks on `depth` levels."""
    levels = [[0] * size]
    for k in range(depth - 1):
        ids = {}
        keys = [(outer, (r * 7 + k) % (k + 2)) for r, outer in enumerate(levels[0])]
        levels.insert(0, [ids.setdefault(key, len(ids)) for key in keys])
    return levels


def lonely(size):
    """Return domains on three levels; some ranks are alone on the middle one only."""
    inner = [min(r // 2, 2) for r in range(size)]
    middle = [0 if g == 0 or r == size - 1 else 1 for r, g in enumerate(inner)]
    inner[-1] = 3
    return [inner, middle, [0] * size]


TOPOLOGIES = {
    "3+1+2 interleaved": interleaved,
    "one rank a node": lambda size: [list(range(size)), [0] * size],
    "one node": lambda size: [[0] * size] * 2,
    "three levels": lambda size: deep(size, 3),
    "four levels": lambda size: deep(size, 4),
    "alone on a level": lonely,
}


def calls_of(size):
    for collective, count in itertools.product(("bcast", "reduce", "allreduce"), COUNTS):
        for root in range(size if collective != "allreduce" else 2):
            yield Call(collective, count, root=root, in_place=root % 2 == 1)
    yield Call("barrier")


@pytest.mark.mpi(ranks=6, timeout=120, unit="s")
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_root_on_every_topology(mpi_ranks, name):
    domains, reference = TOPOLOGIES[name](WORLD.size), Reference(WORLD.Dup())
    for schedule, shared_to in itertools.product(("dataflow", "lockstep"), (0, 1)):
        use = {"segment": 9000, "schedule": schedule}
        with opened(comm_with(WORLD, domains, use, shared_to)) as han_comm:
            Checker(han_comm, reference).every(calls_of(WORLD.size), (schedule, shared_to))


def random_calls(size, seed, n):
    """Yield random calls of all collectives, roots and sizes, the same on all ranks."""
    draw = random.Random(seed)
    for k in range(n):
        count = draw.choice([0, 1, 6, 7, 8, 100, 512, 513, 1000, 5000, 40_000])
        dtype = draw.choice(["int64", "uint8", "int32"])
        root = draw.randrange(size)
        in_place = draw.random() < 0.3
        yield Call(RING[k % 6] if k % 2 else draw.choice(RING), count, dtype, "sum", root, in_place)


def dawdle(rank, size, k):
    """Make a rank late every third call, by so much that the others can run ahead."""
    if k % 3 == 0 and (k // 3) % size == rank:
        time.sleep(0.001 * (k % 4))


@pytest.mark.mpi(ranks=[2, 4, 6], timeout=120, unit="s")
def test_hundreds_of_calls_back_to_back_with_late_ranks(mpi_ranks):
    reference = Reference(WORLD.Dup())
    use = {"segment": 30_000}
    for shared_to in (0, 1):
        with opened(comm_with(WORLD, interleaved(WORLD.size), use, shared_to)) as han_comm:
            check = Checker(han_comm, reference)
            for k, call in enumerate(random_calls(WORLD.size, WORLD.size + shared_to, 400)):
                dawdle(WORLD.rank, WORLD.size, k)
                check(call, k)


@pytest.mark.mpi(ranks=[3, 5], timeout=60, unit="s")
def test_a_root_far_ahead_of_its_readers_overwrites_nothing(mpi_ranks):
    with opened(comm_with(WORLD, [[0] * WORLD.size] * 2)) as han_comm:
        for nbytes, k in itertools.product((8, 2000, 5000, 70_000), range(100)):
            buffer = np.empty(nbytes, np.uint8)
            root = 0 if k < 60 else k % WORLD.size
            if WORLD.rank == root:
                buffer[:] = k
            elif k % 10 == WORLD.rank:
                time.sleep(0.003)
            han_comm.Bcast(buffer, root)
            assert np.all(buffer == k), f"{nbytes} bytes, call {k}: {np.unique(buffer)}"
            if WORLD.rank == root:
                buffer[:] = 255  # the root may reuse its buffer now


@pytest.mark.mpi(ranks=[2, 4], timeout=60, unit="s")
def test_a_root_is_further_ahead_where_ranks_outnumber_processors(mpi_ranks):
    """The others begin when the root has made all calls."""
    with opened(comm_with(WORLD, [[0] * WORLD.size] * 2)) as han_comm:
        buffer = np.empty(8, np.uint8)
        for turn in range(3):
            if WORLD.rank:
                WORLD.recv(source=0)
            for k in range(CROWDED_BANKS):
                buffer[:] = turn + k if WORLD.rank == 0 else 255
                han_comm.Bcast(buffer)
                assert np.all(buffer == turn + k)
            for rank in range(1, WORLD.size if WORLD.rank == 0 else 0):
                WORLD.send(None, rank)
            han_comm.Barrier()
