"""One rank warns of a misspelt environment variable, and calls work."""

import warnings
from unittest import mock

import numpy as np
import pytest
from _support import opened
from mpi4py import MPI

import han


@pytest.mark.mpi(ranks=2, timeout=40, unit="s")
def test_one_rank_warns_of_an_unknown_variable(mpi_ranks):
    variables = mock.patch.dict("os.environ", HAN_TIMOUT="3", HAN_TEST_MPI="x")
    with variables, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        comm = han.Comm(MPI.COMM_WORLD.Dup())
        with opened(comm.Dup()) as child:  # a duplicate does not warn again
            child.Barrier()
    said = [str(one.message) for one in caught]
    assert len(said) == (comm.rank == 0)
    assert all("HAN_TIMOUT; did you mean 'HAN_TIMEOUT'?" in text for text in said)
    assert all(one.filename == __file__ for one in caught)
    total = np.empty(1)
    comm.Allreduce(np.ones(1), total)
    assert total == 2
    comm.Free()


@pytest.mark.mpi(ranks=2, timeout=40, unit="s")
def test_a_warning_that_is_an_error_leaves_the_ranks_in_step(mpi_ranks):
    world = MPI.COMM_WORLD.Dup()
    with mock.patch.dict("os.environ", HAN_TIMOUT="3"), warnings.catch_warnings():
        warnings.simplefilter("error")
        if world.rank:
            han.Comm(world)
        else:
            with pytest.raises(UserWarning, match="HAN_TIMOUT"):
                han.Comm(world)
    with opened(han.Comm(world)) as comm:
        comm.Barrier()
