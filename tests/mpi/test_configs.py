"""Ready configurations run all collectives; ranks agree about configurations and their errors."""

from contextlib import nullcontext
from unittest import mock

import pytest
from _support import Call, Checker, Reference, opened
from mpi4py import MPI

import han
from han.config.source import ready_configs


@pytest.mark.mpi(ranks=[1, 4, 9], timeout=120, unit="s")
def test_ready_configurations(mpi_ranks):
    world = MPI.COMM_WORLD
    reference = Reference(world.Dup())
    for config in sorted(ready_configs()):
        with_config = han.Comm(world.Dup(), config=config)
        check = Checker(with_config, reference)
        for count in (1, 700, 40_000):
            for name in ("allreduce", "reduce", "bcast", "barrier"):
                check(Call(name, count, op="max", root=world.size - 1), config)
        text = str(with_config.explain("allreduce", 1 << 20))
        assert "rule" in text, config
        assert "stages" in text, config
        with_config.Free()


RULES = {"rules": [{"use": {"levels": {"node": {"submodule": "sm", "chunk": "32KiB"}}}}]}


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
def test_any_error_in_a_configuration_of_one_rank_reaches_all_ranks(mpi_ranks):
    """Such as that of another package's submodule, which cannot be imported."""
    world = MPI.COMM_WORLD.Dup()
    broken = mock.patch(
        "han.submodules.names.registered", side_effect=ImportError("no such library")
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
