"""An allgather whose copies inside a node travel as messages, from none of them to all."""

import itertools

import pytest
from _support import FLAT, FORMS, TWO_BY_TWO, WORLD, Call, Checker, Reference, new_comm, opened

COUNTS = (0, 1, 5, 700, 20_000)  # of a block: beside a flag, in one cell, in several
BLOCKS = {"submodule": "sm", "algorithm": "blocks", "chunk": "16KiB"}


def comm_of(levels, offload, composition="tree"):
    inner = levels[0]["name"]
    use = {"composition": composition, "levels": {inner: {**BLOCKS, "offload": offload}}}
    return new_comm(levels, rules=[{"when": {"collective": "allgather"}, "use": use}])


def check(comm, form):
    """Gather equal and uneven blocks of all sizes, in place and not."""
    ways = itertools.product(COUNTS, (False, True), (False, True))
    calls = [Call("allgather", n, "float64", in_place=one, uneven=two) for n, one, two in ways]
    Checker(comm, Reference(WORLD), form).every(calls, form)


@pytest.mark.mpi(ranks=[2, 3, 5, 8], timeout=120, unit="s")
def test_blocks_of_so_many_members_come_as_messages(mpi_ranks):
    for offload in range(WORLD.size):
        with opened(comm_of(FLAT, offload)) as comm:
            for form in FORMS:
                check(comm, form)
            assert f"offload {offload}" in str(comm.explain("allgather", nbytes=8 * COUNTS[-1]))


@pytest.mark.mpi(ranks=[4, 5, 8], timeout=120, unit="s")
@pytest.mark.parametrize("composition", ["tree", "lanes"])
def test_carriers_hand_blocks_of_other_nodes_on_as_messages(mpi_ranks, composition):
    half = [{**TWO_BY_TWO[0], "scope": {"size": WORLD.size // 2}}, TWO_BY_TWO[1]]
    for offload in (1, WORLD.size):
        with opened(comm_of(half, offload, composition)) as comm:
            check(comm, FORMS[0])
