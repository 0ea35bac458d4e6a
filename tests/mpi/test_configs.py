"""Every ready configuration runs all collectives with the results of MPI."""

import numpy as np
import pytest
from mpi4py import MPI

import han
from han.config.source import ready_configs


@pytest.mark.mpi(ranks=[1, 4, 9], timeout=120, unit="s")
def test_ready_configurations(mpi_ranks):
    world = MPI.COMM_WORLD
    for name in sorted(ready_configs()):
        with_config = han.Comm(world.Dup(), config=name)
        for count in (1, 700, 40_000):
            _run_all(world, with_config, count)
        text = str(with_config.explain("allreduce", 1 << 20))
        assert "rule" in text, name
        assert "stages" in text, name
        with_config.Free()


def _run_all(world: MPI.Intracomm, comm: han.Comm, count: int) -> None:
    send = np.arange(count) * (world.rank + 1)
    mine, theirs = np.zeros_like(send), np.zeros_like(send)
    comm.Allreduce(send, mine)
    world.Allreduce(send, theirs)
    assert np.array_equal(mine, theirs)
    root = world.size - 1
    comm.Reduce(send, mine, op=MPI.MAX, root=root)
    world.Reduce(send, theirs, op=MPI.MAX, root=root)
    assert np.array_equal(mine, theirs)
    data = send.copy() if world.rank == root else np.zeros_like(send)
    comm.Bcast(data, root=root)
    assert np.array_equal(data, np.arange(count) * (root + 1))
    comm.Barrier()
