"""Ready configurations run all collectives; ranks agree about configurations and their errors.

What no machine could serve is an error when the communicator is made, told on all ranks with rule,
file, line and numbers. What this machine cannot serve makes the rule be passed over;
``comm.explain`` says why, in the same words on all ranks. One rank warns of a misspelt variable.
"""

import warnings
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from _support import WORLD, Call, Checker, Reference, check_works, comm_with, opened
from mpi4py import MPI

import han
from han.config.source import ready_configs


@pytest.mark.mpi(ranks=[1, 4, 9], timeout=120, unit="s")
def test_ready_configurations(mpi_ranks):
    reference = Reference(WORLD.Dup())
    for config in sorted(ready_configs()):
        with_config = han.Comm(WORLD.Dup(), config=config)
        check = Checker(with_config, reference)
        for count in (1, 700, 40_000):
            for name in ("allreduce", "reduce", "bcast", "barrier"):
                check(Call(name, count, op="max", root=WORLD.size - 1), config)
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


# ---- levels, rails and compositions -------------------------------------------------------------

FILES = {
    "rules:\n- use:\n    levels:\n"
    "      network: {submodule: exchange, algorithm: recursive, factors: [2, -2]}": (
        "wrong.yaml:4: rules[0].use.levels.network.factors: 2x-2: the negative ones",
    ),
    "levels:\n- {name: rack, scope: {hosts: {}}}\n- {name: network, scope: all}": (
        "wrong.yaml:2: levels[0].scope.hosts = {}: must not be empty",
    ),
    "levels:\n- name: rack\n  scope: {hosts: {left: [no-such-a, no-such-b]}}\n"
    "- {name: network, scope: all}": (
        "wrong.yaml:3: levels[0].scope.hosts",
        "level 'rack': none of its 2 hosts runs any of the 4 ranks, which are on ",
    ),
}  # fmt: skip
PASSED_OVER = (
    (
        {"composition": "lanes", "levels": {"level0": {
            "submodule": "sm", "algorithm": "shares", "lanes": 3}}},
        "lanes: 3 lanes, but the largest node has 2 ranks",
    ),
    ({"levels": {"network": {
        "submodule": "exchange", "algorithm": "recursive", "factors": [3]}}},
        "network: exchange: factors: 3 bring 3 members together, not the 2 of the level"),
)  # fmt: skip


def told(config: str) -> str:
    """Return the error that this rank gets for a configuration file."""
    with pytest.raises(han.ConfigError) as caught:
        han.Comm(WORLD, config=config)
    return str(caught.value)


@pytest.mark.mpi(ranks=4, timeout=60, unit="s")
def test_files_that_no_ranks_can_use_are_refused_on_all_alike(tmp_path: Path):
    folder = Path(WORLD.bcast(str(tmp_path)))
    for text, parts in FILES.items():
        if not WORLD.rank:
            (folder / "wrong.yaml").write_text(f"{text}\n")
        WORLD.Barrier()
        said = WORLD.allgather(told(str(folder / "wrong.yaml")))
        assert len({*said}) == 1, said
        for part in parts:
            assert part in said[0], said[0]
    check_works(han.Comm(WORLD, config={}))


@pytest.mark.mpi(ranks=4, timeout=60, unit="s")
def test_rules_that_this_machine_cannot_serve_say_why():
    for use, reason in PASSED_OVER:
        with opened(comm_with(WORLD, [[0, 0, 1, 1], [0] * 4], use)) as comm:
            said = WORLD.allgather(str(comm.explain("allreduce", 8)))
            assert len({*said}) == 1, said
            assert "rules[0]" in said[0], said[0]
            assert reason in said[0], said[0]
            recv = np.empty(1)
            comm.Allreduce(np.ones(1), recv)
            assert recv == 4


# ---- the environment ----------------------------------------------------------------------------


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
