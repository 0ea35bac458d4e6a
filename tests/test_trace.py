"""Traces and explanations on one rank."""

import numpy as np
import pytest
from mpi4py import MPI

import han


@pytest.fixture
def alone():
    comm = han.Comm(MPI.COMM_SELF.Dup())
    yield comm
    comm.Free()


def test_a_rank_that_is_alone_is_traced(alone):
    with alone.trace() as trace:
        alone.Allreduce(np.ones(4), np.empty(4))
        alone.Bcast(np.ones(4))
        alone.Barrier()
    (time,) = trace.times
    assert time.task == "copy"
    assert time.begin <= time.end
    with alone.trace() as trace:
        pass
    assert trace.times == []


def test_explain_takes_sizes_as_people_write_them(alone):
    assert str(alone.explain("bcast", "4MiB")) == str(alone.explain("bcast", 4 << 20))
    for wrong, error in (("4 apples", han.ArgumentError), (4.5, han.ArgumentTypeError)):
        with pytest.raises(error, match="nbytes"):
            alone.explain("bcast", wrong)
    with pytest.raises(han.ArgumentError, match="did you mean 'allreduce'"):
        alone.explain("alreduce", 8)
