"""The plans that a communicator of one rank keeps, and its counts of them."""

from dataclasses import replace

import numpy as np
import pytest
from mpi4py import MPI

import han
from han.model.topology import virtual
from han.runtime.native_plans import _moved
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture
def comm():
    made = han.Comm(MPI.COMM_SELF.Dup(), {"plans": 2})
    yield made
    made.Free()


def allreduce(comm, count, dtype="f8"):
    send = np.ones(count, dtype)
    comm.Allreduce(send, np.empty_like(send))


def test_hits_and_misses_are_counted(comm):
    assert comm.cache_info() == (0, 0, 2, 0, 0, 0, 0.0, 0)
    for _ in range(5):
        allreduce(comm, 4)
    info = comm.cache_info()
    assert (info.hits, info.misses, info.currsize, info.evictions) == (4, 1, 1, 0)
    assert (info.made, info.shared) == (1, 0)
    assert info.seconds > 0


@pytest.mark.parametrize("collective", ["scatter", "reduce_scatter", "alltoall"])
def test_a_run_that_moves_much_is_not_brief(collective):
    """A run that moves much data is not brief: it releases Python's lock."""
    reduces = (8, "sum", "float64") if collective == "reduce_scatter" else ()
    signature = Signature(collective, 4 << 20, *reduces)
    topology = replace(virtual(2), attach=True)
    plan = plan_of_choice(topology, signature, Choice((level_choice("solo", "blocks"),)), 8 << 20)
    assert _moved(lower(plan, 1), signature) >= signature.nbytes


def test_calls_outside_of_the_look_up_find_their_plan(comm):
    strided = np.ones((4, 2))[:, 0].copy()
    for _ in range(3):
        comm.Allreduce([strided, 4, MPI.DOUBLE], np.empty(4))
    info = comm.cache_info()
    assert (info.hits, info.misses) == (2, 1)


def test_the_least_recently_used_plan_is_evicted(comm):
    for count in (2, 8, 32):
        allreduce(comm, count)
    assert comm.cache_info()[:5] == (0, 3, 2, 2, 1)
    allreduce(comm, 8)  # an eviction has emptied the look-up in C
    allreduce(comm, 128)
    allreduce(comm, 8)
    assert comm.cache_info()[:5] == (2, 4, 2, 2, 2)
    allreduce(comm, 32)
    assert comm.cache_info().misses == 5


def test_results_are_right_while_plans_are_evicted(comm):
    for turn in range(3):
        for count in (1, 9, 17, 65):
            send = np.arange(count, dtype="f8") + turn
            recv = np.empty(count)
            comm.Allreduce(send, recv)
            np.testing.assert_array_equal(send, recv)
    assert comm.cache_info().evictions == 10


def test_a_persistent_request_counts_as_made_only(comm):
    request = comm.Barrier_init()
    info = comm.cache_info()
    assert (info.hits, info.misses, info.made, info.currsize) == (0, 0, 1, 0)
    request.Free()


def test_statistics_print_as_text(comm):
    allreduce(comm, 4)
    allreduce(comm, 4)
    text = str(comm.cache_info())
    assert text.startswith("1 of at most 2 plans; 1 of 2 calls found theirs, 0 dropped; 1 made in ")
    assert repr(comm.cache_info()).startswith("CacheInfo(hits=1, misses=1, maxsize=2, currsize=1, ")
