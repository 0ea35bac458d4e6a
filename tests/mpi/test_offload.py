"""An allgather whose copies inside a node travel as messages, from none of them to all."""

import numpy as np
import pytest
from _support import FLAT, FORMS, TWO_BY_TWO, WORLD, finish, method_of, new_comm, opened
from mpi4py import MPI

COUNTS = (0, 1, 5, 700, 20_000)  # of a block: beside a flag, in one cell, in several
BLOCKS = {"submodule": "sm", "algorithm": "blocks", "chunk": "16KiB"}


def comm_of(levels, offload, composition="tree"):
    inner = levels[0]["name"]
    use = {"composition": composition, "levels": {inner: {**BLOCKS, "offload": offload}}}
    return new_comm(levels, rules=[{"when": {"collective": "allgather"}, "use": use}])


def block(rank, n):
    return np.arange(n) + 1000.0 * rank


def check(comm, form, n):
    size, rank = comm.size, comm.rank
    every = np.concatenate([block(r, n) for r in range(size)])
    found = np.full(size * n, -1.0)
    finish(method_of(comm, form, "Allgather")(block(rank, n), found))
    assert found.tolist() == every.tolist(), (form, n)
    found = np.full(size * n, -1.0)
    found[rank * n : (rank + 1) * n] = block(rank, n)
    finish(method_of(comm, form, "Allgather")(MPI.IN_PLACE, found))
    assert found.tolist() == every.tolist(), (form, n, "in place")
    counts = [n * r // size for r in range(size)]
    uneven = np.concatenate([block(r, counts[r]) for r in range(size)])
    found = np.full(sum(counts), -1.0)
    finish(method_of(comm, form, "Allgatherv")(block(rank, counts[rank]), [found, counts]))
    assert found.tolist() == uneven.tolist(), (form, n, counts)


@pytest.mark.mpi(ranks=[2, 3, 5, 8], timeout=120, unit="s")
def test_blocks_of_so_many_members_come_as_messages(mpi_ranks):
    for offload in range(WORLD.size):
        with opened(comm_of(FLAT, offload)) as comm:
            for form in FORMS:
                for n in COUNTS:
                    check(comm, form, n)
            assert f"offload {offload}" in str(comm.explain("allgather", nbytes=8 * COUNTS[-1]))


@pytest.mark.mpi(ranks=[4, 5, 8], timeout=120, unit="s")
@pytest.mark.parametrize("composition", ["tree", "lanes"])
def test_carriers_hand_blocks_of_other_nodes_on_as_messages(mpi_ranks, composition):
    half = [{**TWO_BY_TWO[0], "scope": {"size": WORLD.size // 2}}, TWO_BY_TWO[1]]
    for offload in (1, WORLD.size):
        with opened(comm_of(half, offload, composition)) as comm:
            for n in COUNTS:
                check(comm, FORMS[0], n)
