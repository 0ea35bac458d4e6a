"""Rails: which one a rank has, and what is told if it has none or if its adapter contradicts."""

import pytest

from han.common.errors import ConfigError
from han.config.arrange import Facts
from han.config.config import Config, load_config
from han.config.rails import launched_place, rails_of
from han.ranks.adapters import Bound, bound, contradictions
from han.tuning.imagined import ImaginedMachine


def facts(*nodes: int, local: tuple[int | None, ...] = ()) -> list[Facts]:
    numbers = local or (None,) * len(nodes)
    return [
        Facts(nodes.index(node), f"n{node}", frozenset(), {}, local=number)
        for node, number in zip(nodes, numbers, strict=True)
    ]


def found(config: Config, ranks: list[Facts]) -> tuple[int, ...]:
    return rails_of(config.rails, ranks, config.origin)


@pytest.mark.parametrize(
    ("rails", "expected"),
    [
        ({}, (0, 0, 0, 0, 0)),
        ({"count": 2}, (0, 1, 0, 0, 1)),
        ({"count": 2, "bind": "local_rank"}, (0, 1, 0, 0, 1)),
        ({"count": 3, "bind": [2, 0, 1]}, (2, 0, 1, 2, 0)),
    ],
)
def test_ranks_of_a_node_are_bound_by_their_place(rails, expected):
    assert found(load_config({"rails": rails}), facts(0, 0, 0, 1, 1)) == expected


def test_the_launcher_counts_the_ranks_of_a_node():
    """As in a communicator of some ranks of each node."""
    config = load_config({"rails": {"count": 2}})
    assert found(config, facts(0, 0, 1, local=(1, 3, 0))) == (1, 1, 0)
    assert launched_place({"MPI_LOCALRANKID": "3"}) == 3
    assert launched_place({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "SLURM_LOCALID": "0"}) == 1
    assert launched_place({"SLURM_LOCALID": "x"}) is None


@pytest.mark.parametrize(
    ("rails", "expected"),
    [
        ("{count: 2, bind: [0, 2]}", ":3: rails.bind[1] = 2: there is no such rail: count is 2"),
        ("{bind: [0, 1]}", ":3: rails.bind[1] = 1: there is no such rail: count is 1, only rail 0"),
        ("{count: 2, bind: [-1]}", "rails.bind[0] = -1: there is no such rail"),
        ("{count: 0}", "rails.count = 0: must be at least 1"),
        ("{count: 2, bind: socket}", "expected local_rank, or the rail of each rank of a node"),
        ("{count: 2, bind: []}", "expected local_rank, or the rail of each rank of a node"),
        ("{count: 2, band: [0]}", "did you mean 'bind'"),
    ],
)
def test_wrong_rails_are_told_with_their_line(tmp_path, rails, expected):
    file = tmp_path / "rails.yaml"
    file.write_text(f"check: false\n\nrails: {rails}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert expected in str(caught.value)


def test_a_rank_without_a_rail_is_told_with_file_and_line(tmp_path):
    file = tmp_path / "rails.yaml"
    file.write_text("check: false\nrails: {count: 2, bind: [0, 1]}\n")
    expected = r"rails.yaml:2: rails.bind = \[0, 1\]: rank 4 is number 2 of its node, n1, and is "
    with pytest.raises(ConfigError, match=expected):
        found(load_config(file), facts(0, 0, 1, 1, 1))
    with pytest.raises(ConfigError, match="rank 2 is number 2 of its node"):
        ImaginedMachine.even(4, 4).topology(load_config(file))


def test_rails_survive_yaml_and_are_what_ranks_must_agree_on(tmp_path):
    config = load_config({"rails": {"count": 2, "bind": [1, 0]}})
    file = tmp_path / "again.yaml"
    file.write_text(config.to_yaml())
    assert load_config(file) == config
    assert config.fingerprint() != load_config({}).fingerprint()


def test_adapters_that_do_not_exist_are_found(tmp_path):
    for name in ("net/eth0", "infiniband/mlx5_0"):
        (tmp_path / name).mkdir(parents=True)
    texts = {
        "eth0": (), "eth1": ("eth1",), "mlx5_0:1,mlx5_1:1": ("mlx5_1",), "10.0.0.0/16": (),
        "all": (), "mlx5_*": (), "eth0, eth2": ("eth2",),
    }  # fmt: skip
    for text, missing in texts.items():
        (one,) = bound("n0", {"UCX_NET_DEVICES": text, "HOME": "eth9"}, tmp_path)
        assert one == Bound("n0", "UCX_NET_DEVICES", text, missing)


def test_adapters_that_contradict_the_rails_are_told():
    def row(host: str, value: str) -> list[Bound]:
        return [Bound(host, "FI_TCP_IFACE", value)]

    good = [row("n0", "eth0"), row("n0", "eth1"), row("n1", "eth1"), row("n1", "eth0")]
    assert contradictions([0, 1, 0, 1], good) == []
    assert contradictions([0, 1], [[], []]) == []
    one = contradictions([0, 1], [row("n0", "eth0"), row("n0", "eth0")])
    assert one == ["ranks 0 and 1 of n0 have rails 0 and 1, but FI_TCP_IFACE is eth0 for both"]
    two = contradictions([0, 0], [row("n0", "eth0"), row("n0", "eth1")])
    assert two == ["ranks 0 and 1 of n0 have rail 0, but FI_TCP_IFACE is eth0 and eth1"]
