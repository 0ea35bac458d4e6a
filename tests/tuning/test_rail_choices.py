"""The built-in composition of nodes with several rails: where lanes win, and where trees stay."""

from dataclasses import replace

import pytest
from machines import topology_of
from plans import built_in

from han.config.machine import load_machine
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.choice import Choice
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tuning.built_in.choosing import BUILT_IN, NodeTraits
from han.tuning.built_in.table import shipped
from han.tuning.rules import RuleTable

KiB = 1024
PLAIN = NodeTraits()
CALLS = ("bcast", "reduce", "allreduce")


def cluster(nodes: int, ppn: int, rails: int, shared: int = 0) -> Topology:
    """Return nodes whose ranks take the rails in turn; memory is shared up to level `shared`."""
    size = nodes * ppn
    plain = topology_of([[r // ppn for r in range(size)], [0] * size], shared)
    return replace(plain, rails=tuple(r % ppn % rails for r in range(size)))


def decided(topology: Topology, signature: Signature, traits: NodeTraits = PLAIN) -> Choice:
    decision = RuleTable(None, topology, traits).decide(signature)
    assert decision.choice.rule == BUILT_IN
    return decision.choice


@pytest.mark.parametrize("collective", CALLS)
def test_large_calls_of_nodes_with_two_rails_go_in_lanes(collective):
    large, small = (call_signature(collective, n) for n in (256 * KiB, 128 * KiB))
    assert decided(cluster(4, 2, 2), large).composition == "lanes"
    assert decided(cluster(4, 2, 2), small).composition == "tree"
    for other in (
        cluster(4, 2, 1),
        cluster(4, 1, 2),  # each node has one rank
        cluster(1, 8, 2),
        cluster(4, 2, 2, 1),  # all ranks share memory
    ):
        assert decided(other, large).composition == "tree"
    assert decided(cluster(4, 2, 2), large, NodeTraits(oversubscribed=True)).composition == "tree"


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
def test_two_rails_halve_the_time_of_large_calls_by_blocks(collective):
    """Without a rule: on 4 nodes of 2 ranks, rails of 500 Mbit/s, blocks of 4 MiB."""
    machine, times = load_machine("emulated-1gbit"), []
    signature = call_signature(collective, 4096 * KiB)
    for rails in (1, 2):
        node = machine.node.model_copy(update={"injection": 62.5e6, "rails": rails})
        model, topology = machine.model_copy(update={"node": node}), cluster(4, 2, rails)
        plan = plan_of_choice(topology, signature, decided(topology, signature), 4096 * KiB)
        times.append(simulate(plan, model, model.place(4, 2)).seconds)
    assert times[0] > 1.8 * times[1]


def test_explain_names_the_row_of_the_composition():
    decision = RuleTable(None, cluster(4, 2, 2), PLAIN).decide(call_signature("bcast", 1 << 20))
    assert decision.rows[0] == ("composition", "lanes keep all rails busy")
    assert {name for name, _ in decision.rows} >= {"level0", "network"}


def test_what_lanes_cannot_serve_goes_along_a_tree():
    topology, signature = cluster(4, 2, 2), call_signature("allreduce", 1 << 20)
    wide = replace(signature, count=16, element=1 << 16, native=False)  # no cell holds an element
    assert decided(topology, wide).composition == "tree"
    in_order = replace(signature, commutative=False, native=False)
    assert decided(topology, in_order).composition == "lanes"


def seconds(collective: str, nbytes: int, nodes: int, name: str, rails: int) -> float:
    """Predict a call in the emulated cluster of 1 Gbit/s, with so many rails a node."""
    base = load_machine("emulated-1gbit")
    machine = base.model_copy(update={"node": base.node.model_copy(update={"rails": rails})})
    topology, signature = cluster(nodes, 2, rails), call_signature(collective, nbytes)
    return simulate(built_in(topology, signature, name, 1 << 24), machine).seconds


@pytest.mark.parametrize("collective", CALLS)
@pytest.mark.parametrize("nodes", [2, 4])
def test_lanes_win_where_the_table_has_them(collective, nodes):
    """The simulator says so; the emulated cluster with two rails has shown the same at 4 MiB."""
    for nbytes in (256 * KiB, 1 << 20):
        tree, lanes = (seconds(collective, nbytes, nodes, name, 2) for name in ("tree", "lanes"))
        assert lanes < 0.8 * tree
        assert lanes < 0.8 * seconds(collective, nbytes, nodes, "lanes", 1), "a rail less"


def test_the_table_says_compositions_of_all_calls():
    assert not shipped().rows("compositions")[-1].when.collective
    assert {row.composition for row in shipped().rows("compositions")} == {"tree", "lanes", "flat"}
