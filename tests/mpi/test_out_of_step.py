"""If a rank catches its own error and makes its next call, its peers do not return wrong data."""

import numpy as np
import pytest
from _support import FLAT
from mpi4py import MPI

import han


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_peers_of_a_rank_that_goes_on_raise(mpi_ranks):
    config = {"levels": FLAT, "wait": {"timeout": 20}}  # with sm, a root need not wait
    config["rules"] = [{"use": {"levels": {FLAT[0]["name"]: {"submodule": "sm"}}}}]
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config)
    data = np.zeros(4096)
    for _ in range(3):
        comm.Bcast(data, 0)
        comm.Bcast(data, 1)
    if comm.rank == 1:
        data.flags.writeable = False
        with pytest.raises(han.ArgumentError):
            comm.Bcast(data, 0)
        comm.Bcast(np.full(4096, 99.0), 1)
    else:
        comm.Bcast(data, 0)
        with pytest.raises(han.PeerError, match="rank 1 raised ArgumentError"):
            comm.Bcast(data, 1)
