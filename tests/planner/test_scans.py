"""Scans are proved: in cells and in messages, of all kinds of sizes, in place and not."""

import os
from dataclasses import replace
from random import Random

import pytest
from machines import on_nodes, topology_of
from plans import built_in, planned, prove, rules_of

from han.model.topology import Topology, virtual
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, LevelChoice, level_choice
from han.tasks.compositions import FLAT, TREE, as_called
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.verify import Refuted, verify
from han.tuning.built_in.choosing import NodeTraits, choose

CALL = Signature("scan", 0, 8, "my operation", "float64", commutative=False)
CHOICES = (
    level_choice("sm", "prefix", chunk=4096, cells=2),
    level_choice("sm", "chain", chunk=4096, cells=2),
    level_choice("scan", "doubling"),
    level_choice("scan", "chain", segment=4096),
)


def plan_of(collective, size, count, choice):
    call = replace(CALL, collective=collective, count=count)
    return plan_of_choice(virtual(size), call, Choice((choice,)), 1 << 20)


@pytest.mark.parametrize("collective", ["scan", "exscan"])
@pytest.mark.parametrize("choice", CHOICES)
def test_scans_are_proved(collective, choice):
    for size in (1, 2, 3, 5, 9):
        for count in (0, 1, 6, 7, 513, 5000):
            plan = plan_of(collective, size, count, choice)
            prove(plan)


@pytest.mark.parametrize("in_place", [False, True])
def test_rank_0_of_an_exscan_must_keep_its_buffer(in_place):
    """The programs of a scan are refused, since rank 0 of a scan writes its result."""
    plan = plan_of("exscan", 3, 1000, CHOICES[0])
    wrong = [lower(plan_of("scan", 3, 1000, CHOICES[0]), rank) for rank in range(3)]
    with pytest.raises(Refuted):
        verify([plan], in_place=in_place, programs=[wrong])


# ---- over nodes ---------------------------------------------------------------------------------

INSIDE = (
    level_choice("sm", "prefix", chunk=4096, cells=2),
    level_choice("sm", "chain", chunk=1024, cells=1),
    level_choice("sm", "chain", inline=False),
    level_choice("sm", "prefix").where("bcast", level_choice("sm", "kary", chunk=512)),
    level_choice("sm", "chain").where("bcast", level_choice("sm", "flat", read_parent_flag=False)),
)
BETWEEN = CHOICES[2:]
NODES = ((2, 2), (2, 1, 2), (1, 2), (1, 1, 3), (3, 1), (5, 4, 1, 6), (7, 9), (2,) * 5, (1, 40, 1))
COUNTS = (0, 1, 6, 250, 257, 513, 5000)
EACH = round(60 * float(os.environ.get("HAN_TEST_EXAMPLES", "1")))


def proved(topology: Topology, collective: str, count: int, choice: Choice, memory: int = 1 << 20):
    """Prove a scan that a choice must serve, as it stands and in place; return its plan."""
    call = replace(CALL, collective=collective, count=count)
    plan = planned(topology, call, choice, memory)
    prove(plan)
    return plan


@pytest.mark.parametrize("collective", ["scan", "exscan"])
@pytest.mark.parametrize("nodes", NODES)
def test_scans_over_nodes_are_proved(collective, nodes):
    draw = Random(f"{collective} {nodes}")
    for count in COUNTS:
        for schedule, segment in (("dataflow", None), ("dataflow", 8192), ("lockstep", 8192)):
            levels = draw.choice(INSIDE), draw.choice(BETWEEN)
            plan = proved(on_nodes(*nodes), collective, count, Choice(levels, segment, schedule))
            assert [name for name, _, _ in plan.tasks.passed][-1] == "ir"


def draw_nodes(draw: Random) -> Topology:
    """Draw consecutive nodes of any levels, up to one of which ranks share memory."""
    size, depth = draw.randint(2, 64), draw.randint(2, 4)
    domains, ids = [[0] * size], [0] * size
    for _ in range(depth - 1):
        ends = sorted(draw.sample(range(size), draw.randint(1, min(6, size))))
        ids = [max([own, *(end for end in ends if end <= r)]) for r, own in enumerate(ids)]
        domains.insert(0, ids)
    return topology_of(domains, draw.randint(0, depth - 2))


def test_scans_are_proved_on_machines_of_any_depth():
    nested = 0
    for number in range(EACH):
        draw = Random(number)
        topology, memory = draw_nodes(draw), draw.choice([1 << 16, 1 << 20])
        collective, count = draw.choice(["scan", "exscan"]), draw.choice(COUNTS)
        usual = choose(replace(CALL, count=count), topology, NodeTraits(), TREE)
        active = as_called(topology, CALL).active
        levels = list(usual.levels)
        if len(active) > 1:
            levels[active[0]] = draw.choice(INSIDE)
        levels[active[-1]] = draw.choice(BETWEEN)
        choice = replace(usual, levels=tuple(levels), segment=draw.choice([None, 4096]))
        nested += proved(topology, collective, count, choice, memory).nested_scan
    assert nested > EACH // 3


def test_nodes_whose_ranks_are_not_consecutive_scan_flat():
    in_turn, call = topology_of([[0, 1] * 3, [0] * 6], 0), replace(CALL, count=100)
    decision = rules_of(in_turn).decide(call)
    assert decision.choice.composition == FLAT
    tree = choose(call, in_turn, NodeTraits(), TREE)
    reason = rules_of(in_turn).objection(call, tree)
    assert reason == "scan inside nodes needs nodes of consecutive ranks"
    verify([plan_of_choice(in_turn, call, decision.choice, 1 << 20)])


def test_ranks_of_one_node_scan_in_one_task_whatever_levels_it_has():
    one = topology_of([[0, 0, 1, 1], [0] * 4], 1)
    for name in (TREE, FLAT):
        plan = built_in(one, replace(CALL, count=100), name)
        assert [kind for _, kind, _ in plan.tasks.passed] == ["scan"]


def test_algorithms_that_scan_in_messages_serve_no_level_inside():
    levels = LevelChoice("scan", "doubling"), LevelChoice("scan", "doubling")
    reason = rules_of(on_nodes(2, 2)).objection(CALL, Choice(levels))
    assert reason == "level0: scan: scans in messages serve the outermost level only"


def test_what_hands_a_prefix_down_must_be_able_to_broadcast():
    inside = LevelChoice("sm", "chain").where("bcast", LevelChoice("sm", "split"))
    choice = Choice((inside, LevelChoice("scan", "chain")))
    reason = rules_of(on_nodes(2, 2)).objection(CALL, choice)
    assert reason == "level0: sm: split serves allreduce only"
