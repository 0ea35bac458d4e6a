"""Mistakes about levels, rails and compositions: told on all ranks, with rule, file, line, numbers.

What no machine could serve is an error when the communicator is made. What this machine cannot
serve makes the rule be passed over; ``comm.explain`` says why, in the same words on all ranks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from _support import WORLD, check_works, comm_with, opened

import han

LEVELS = "levels:\n- {name: node, scope: {size: 2}}\n- {name: network, scope: all}\n"  # 3 lines
REFUSED = {  # written from line 4 on
    "rails: {count: 2, bind: [0, 2]}": (
        "wrong.yaml:4: rails.bind[1] = 2: there is no such rail: count is 2",
    ),
    "rails: {count: 2, bind: [1]}": (
        "wrong.yaml:4: rails.bind = [1]: rank 1 is number ", "is bound to no rail",
    ),
    "rules:\n- use:\n    composition: lanes\n    levels: {node: {submodule: adapt}}": (
        "wrong.yaml:7: rules[0].use.levels.node", "does not serve composition 'lanes' inside nodes",
    ),
    "rules:\n- use: {composition: ring, levels: {network: {submodule: sm, algorithm: kary}}}": (
        "wrong.yaml:5: rules[0].use.levels.network",
        "kary of sm does not serve composition 'ring' between nodes", "known: adapt chain, ring",
    ),
    "rules:\n- use:\n    levels:\n"
    "      network: {submodule: exchange, algorithm: recursive, factors: [2, -2]}": (
        "wrong.yaml:7: rules[0].use.levels.network.factors: 2x-2: the negative ones",
    ),
    "rules:\n- use: {levels: {network: {submodule: exchange, algorithm: halving, factors: 2}}}": (
        "wrong.yaml:5: rules[0].use.levels.network.factors: halving has factors of its own",
    ),
    "rules:\n- use:\n    levels:\n"
    "      node: {submodule: exchange, algorithm: tree, writes: true}": (
        "wrong.yaml:7: rules[0].use.levels.node.writes: tree does not take writes",
    ),
    "rules:\n- when: {collective: bcast}\n  use: {composition: nap}": (
        "wrong.yaml:6: rules[0].use.composition = 'nap': serves allreduce, barrier",
    ),
    "rules:\n- use: {composition: nap, segment: 1B, levels: {nodes: {submodule: sm}}}": (
        "wrong.yaml:5: rules[0].use.levels.nodes: unknown level", "Known: network, node",
    ),
}  # fmt: skip
NO_RANKS = {  # levels that no rank can be in; the files have no others
    "levels:\n- {name: node, scope: {size: 0}}\n- {name: network, scope: all}": (
        "wrong.yaml:2: levels[0].scope.size = 0: must be at least 1",
    ),
    "levels:\n- {name: rack, scope: {hosts: {}}}\n- {name: network, scope: all}": (
        "wrong.yaml:2: levels[0].scope.hosts = {}: must not be empty",
    ),
    "levels:\n- name: rack\n  scope: {hosts: {left: []}}\n- {name: network, scope: all}": (
        "wrong.yaml:3: levels[0].scope.hosts.left = []: must not be empty",
    ),
    "levels:\n- name: rack\n  scope: {hosts: {left: [no-such-a, no-such-b]}}\n"
    "- {name: network, scope: all}": (
        "wrong.yaml:3: levels[0].scope.hosts",
        "level 'rack': none of its 2 hosts runs any of the 4 ranks, which are on ",
    ),
    "levels: []": ("wrong.yaml:1: levels = []: needs at least one level",),
}
FILES = {**{f"{LEVELS}{text}": parts for text, parts in REFUSED.items()}, **NO_RANKS}
PASSED_OVER = (
    (
        {"composition": "lanes", "levels": {"level0": {
            "submodule": "sm", "algorithm": "shares", "lanes": 3}}},
        "lanes: 3 lanes, but the largest node has 2 ranks",
    ),
    ({"composition": "nap", "levels": {"network": {"submodule": "nap", "base": 3}}},
        "nap: base 3, but the smallest node has 2 ranks: at most 2"),
    ({"levels": {"network": {"submodule": "adapt", "radix": 3}}},
        "network: adapt: linear does not take radix; it takes segment, window, order"),
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
