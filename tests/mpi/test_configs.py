"""Ready configurations run all collectives; ranks agree about configurations and their errors."""

from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
from _support import opened
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


RULES = {"rules": [{"use": {"levels": {"node": {"submodule": "sm", "chunk": "32KiB"}}}}]}


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_a_second_comm_of_the_same_configuration_uses_the_first_ones_state(mpi_ranks):
    world = MPI.COMM_WORLD.Dup()
    first = han.Comm(world, RULES)
    assert han.Comm(world, RULES)._han is han.Comm(world)._han is first._han
    with pytest.raises(han.ConfigError, match="this communicator already has"):
        han.Comm(world, {})
    first.Free()


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
def test_any_error_in_a_configuration_of_one_rank_reaches_all_ranks(mpi_ranks):
    """Such as that of another package's submodule, which cannot be imported."""
    world = MPI.COMM_WORLD.Dup()
    broken = mock.patch(
        "han.submodules.catalogue.registered", side_effect=ImportError("no such library")
    )
    with (
        broken if world.rank == 1 else nullcontext(),
        pytest.raises(han.ConfigError, match="rank 1: ImportError: no such library"),
    ):
        han.Comm(world, RULES)
    homeless = "~no-such-user/x.yaml" if world.rank == 2 else None
    with pytest.raises(han.ConfigError, match="rank 2: "):
        han.Comm(world, homeless)
    with opened(han.Comm(world)) as comm:
        comm.Barrier()


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
def test_a_rank_that_is_bound_to_no_rail_is_told_on_all_ranks(mpi_ranks):
    world = MPI.COMM_WORLD.Dup()
    wrong = r"rails\.bind = \[1\]: rank \d is number \d+ of its node, .*, and is bound to no rail"
    with pytest.raises(han.ConfigError, match=wrong):
        han.Comm(world, {"rails": {"count": 2, "bind": [1]}})
    with opened(han.Comm(world, {"rails": {"count": 2}})) as comm:
        comm.Barrier()
