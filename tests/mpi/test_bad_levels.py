"""Mistakes about levels, rails and compositions: told on all ranks, with rule, file, line, numbers.

What no machine could serve is an error when the communicator is made. What this machine cannot
serve makes the rule be passed over; ``comm.explain`` says why, in the same words on all ranks.
"""

from pathlib import Path

import numpy as np
import pytest
from _support import WORLD, check_works, comm_with, opened

import han

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
