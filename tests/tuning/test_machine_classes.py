"""Classes of machines: which nodes belong to one, what their calls run, and wrong files."""

import json
from dataclasses import replace

import pytest
from machines import topology_of

from han.config.config import Config, load_config
from han.config.machine import load_machine, ready_machines
from han.ranks.discover import has_rdma
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.verify import verify
from han.tuning.built_in import machine_classes
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.built_in.machine_classes import class_of, class_rows, parse
from han.tuning.built_in.table import ChoicesError
from han.tuning.planner import Planner
from han.tuning.profile import profile_of
from han.tuning.rules import RuleTable

BIG = NodeTraits(cores=64, rdma=True)
ROW = {
    "name": "one row",
    "when": {"collective": "allreduce", "bytes": {"max": "1500B"}, "levels": ["node", "network"]},
    "use": {
        "composition": "nap",
        "levels": {"network": {"submodule": "nap", "algorithm": "pairs"}},
    },
}
RECORD = {
    "format": "han-machine-class", "version": 1, "about": "some nodes",
    "when": {"cores": {"min": 8}, "rdma": True},
    "machines": {"stampede2": {"cores": 48, "latency": 2.2}}, "grids": {}, "rows": [ROW],
}  # fmt: skip
CALL = call_signature("allreduce", 8)


def content(**changes):
    return json.dumps(RECORD | changes).encode()


@pytest.fixture
def one_class(monkeypatch):
    """The only class is that of RECORD."""
    found = parse(content(), "big", "big.json")
    monkeypatch.setattr(machine_classes, "shipped", lambda: (found,))
    return found


def nodes_of(ppn, nodes=4):
    topology = topology_of([[r // ppn for r in range(nodes * ppn)], [0] * nodes * ppn], 0)
    return replace(topology, names=("node", "network"))


def decided(topology, traits, config=None, call=CALL):
    return RuleTable(config, topology, traits).decide(call)


def test_nodes_belong_to_a_class_by_cores_and_adapters(one_class):
    assert class_of(BIG) is one_class
    for other in ({"cores": 4}, {"cores": 0}, {"rdma": False}):
        assert class_of(BIG._replace(**other)) is None


def test_rows_of_a_class_decide_between_nodes(one_class):
    topology = nodes_of(4)
    found = decided(topology, BIG)
    assert (found.choice.composition, found.choice.rule) == ("nap", "class big")
    assert found.rows == (("call", "one row"), ("class", "by what the system tells"))
    assert decided(topology, NodeTraits()).choice.rule == "built-in"
    assert decided(topology, BIG, call=call_signature("allreduce", 4096)).choice.rule == "built-in"


def test_other_sources_come_first_and_other_shapes_have_no_rows(one_class):
    rule = {"rules": [{"when": {"collective": "allreduce"}, "use": {"composition": "tree"}}]}
    assert decided(nodes_of(4), BIG, load_config(rule)).choice.composition == "tree"
    assert class_rows(nodes_of(4, nodes=1), BIG) == ()
    assert class_rows(replace(nodes_of(4), memory=(0,) * 16), BIG) == ()  # virtual nodes
    assert class_rows(replace(nodes_of(4), names=("socket", "network")), BIG) == ()
    alone = decided(nodes_of(1), BIG)  # nap cannot serve nodes of one rank
    assert alone.choice.rule == "built-in"
    assert [rule for rule, _ in alone.passed] == ["class big"]


def test_rows_of_one_node_are_for_more_ranks_than_were_measured(monkeypatch):
    when = {"collective": "bcast", "nodes": 1, "levels": ["node", "network"]}
    use = {"levels": {"node": {"submodule": "exchange", "algorithm": "scatter"}}}
    rows = [ROW, {"name": "on one node", "when": when, "use": use}]
    found = parse(content(rows=rows), "big", "big.json")
    monkeypatch.setattr(machine_classes, "shipped", lambda: (found,))
    call = call_signature("bcast", 1 << 20)
    for nodes, ppn, names in (
        (1, 17, ["on one node"]), (1, 16, []), (2, 17, ["one row"]), (17, 1, ["one row"]),
    ):  # fmt: skip
        topology = nodes_of(ppn, nodes)
        assert [row.name for row in class_rows(topology, BIG)] == names
        choice = decided(topology, BIG, call=call).choice
        assert (choice.rule == "class big") == (names == ["on one node"])
    assert class_rows(nodes_of(17, 1), NodeTraits(cores=2)) == ()


def test_classes_of_sizes_end_where_rows_do(one_class):
    planners = [Planner(nodes_of(4), load_config(), one, 0, False) for one in (BIG, NodeTraits())]
    assert set(planners[0].bounds) - set(planners[1].bounds) == {1500}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"format": "han-choices"}, "not a class of machines"),
        ({"version": 2}, "version 2"),
        ({"rows": [ROW | {"use": {"composition": "nop"}}]}, "calls.0. 'one row': use.composition"),
        ({"rows": {}}, "expected a list"),
        ({"when": {"cores": -1}}, "when.cores"),
        ({"more": 1}, "unknown key 'more'|key 'more'"),
    ],
)
def test_files_that_cannot_be_used(changes, text):
    with pytest.raises(ChoicesError, match=text):
        parse(content(**changes), "big", "big.json")


def test_a_damaged_file_is_warned_of_and_left_out(monkeypatch, tmp_path):
    (tmp_path / "bad.json").write_bytes(b"{")
    (tmp_path / "big.json").write_bytes(content())
    monkeypatch.setattr(machine_classes, "FOLDER", tmp_path)
    for cached in (machine_classes.contents, machine_classes.digest, machine_classes.shipped):
        cached.cache_clear()
    try:
        with pytest.warns(UserWarning, match="bad.json: damaged"):
            assert [one.name for one in machine_classes.shipped()] == ["big"]
        assert len(machine_classes.digest()) == 32
    finally:
        for cached in (machine_classes.contents, machine_classes.digest, machine_classes.shipped):
            cached.cache_clear()


def test_classes_that_come_with_han_are_right():
    assert any(one.rows for one in machine_classes.shipped())
    for one in machine_classes.shipped():
        for name, profile in one.machines:
            if name not in ready_machines():
                continue  # a machine that was calibrated
            of_model = profile_of(load_machine(name))
            assert profile == pytest.approx(of_model, rel=1e-3), f"{one.name}: {name} has changed"
        names = [row.name for row in one.rows]
        assert len(names) == len(set(names)), one.name


def test_what_rows_run_is_proved():
    """Of each use of a row a plan on few ranks; those of long messages are like short ones."""
    proved = 0
    for one in machine_classes.shipped():
        for row in {repr(row.use): row for row in one.rows}.values():
            least = {name: (row.when.ends(name) or (0, 0))[0] for name in ("nodes", "ppn", "bytes")}
            nodes = max(1 if row.when.ends("nodes") == (1, 1) else 2, least["nodes"])
            ppn = 1 << max(least["ppn"] - 1, 1).bit_length()  # which groups of two suit
            nbytes = -(-max(least["bytes"], 64) // 8) * 8
            if nodes * ppn > 48 or nbytes > 1 << 18:
                continue
            topology = nodes_of(ppn, nodes)
            call = call_signature(row.when.collective[0], nbytes)
            rules = RuleTable(None, topology, NodeTraits())
            choice = rules.made(row.use, "", call)
            if rules.objection(call, choice, blocking=True) is not None:
                continue
            verify([plan_of_choice(topology, call, choice, Config().memory)])
            proved += 1
    assert proved > 20


def test_adapters_with_remote_dma_are_found(tmp_path):
    assert not has_rdma(tmp_path)
    (tmp_path / "infiniband").mkdir()
    assert not has_rdma(tmp_path)
    (tmp_path / "infiniband" / "mlx5_0").mkdir()
    assert has_rdma(tmp_path)
