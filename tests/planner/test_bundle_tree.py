"""Gathers and scatters by a binomial tree of nodes."""

import os
from dataclasses import replace
from random import Random

import pytest
from machines import topology_of

from han.config.config import Config
from han.model.opcodes import Code
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.choice import LevelChoice
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits, choose
from han.tuning.planner import Planner
from han.tuning.unfit import unfit

EXAMPLES = max(1, round(40 * float(os.environ.get("HAN_TEST_EXAMPLES", "1"))))
TRAITS = NodeTraits()


def machine(nodes: list[int]) -> Topology:
    return topology_of([nodes, [0] * len(nodes)], 0)


def by_tree(topology: Topology, signature: Signature, algorithm: str = "binomial") -> Plan:
    choice = choose(signature, topology, TRAITS)
    levels = (*choice.levels[:-1], LevelChoice("bundle", algorithm))
    return plan_of_choice(topology, signature, replace(choice, levels=levels), 1 << 20)


@pytest.mark.parametrize("number", range(EXAMPLES))
@pytest.mark.parametrize("collective", ["gather", "scatter"])
def test_trees_are_proved(collective, number):
    """Nodes are uneven, and their ranks lie in any order; for one size, and for a class of them."""
    random = Random(number)
    size, nbytes = random.randint(2, 17), random.choice([1, 8, 100, 5000, 40_000])
    nodes = [0, 1, *(random.randrange(random.randint(1, 7)) for _ in range(size - 2))]
    random.shuffle(nodes)
    topology = machine(nodes)
    signature = call_signature(collective, nbytes, root=random.randrange(size))
    verify([by_tree(topology, signature)] * 2)
    planner = Planner(topology, Config(), TRAITS, 0, False)
    verify([by_tree(topology, planner.sized(signature)).of_size(nbytes)] * 2)


def messages(plan: Plan, rank: int) -> int:
    codes = lower(plan, rank).code["code"]
    return int((codes == Code.ISEND).sum() + (codes == Code.IRECV).sum())


@pytest.mark.parametrize("collective", ["gather", "scatter"])
def test_a_root_has_a_message_for_each_doubling(collective):
    """Also where ranks are dealt out to nodes in turn: others would send each block by itself."""
    signature = call_signature(collective, 8, root=5)
    for nodes in ([rank // 2 for rank in range(32)], [rank % 16 for rank in range(32)]):
        assert messages(by_tree(machine(nodes), signature), 5) == 4
        assert messages(by_tree(machine(nodes), signature, "linear"), 5) >= 15


def test_what_a_tree_does_not_serve():
    topology = machine([0, 0, 1, 1])
    choice = choose(call_signature("gather", 8), topology, TRAITS)
    by = replace(choice, levels=(*choice.levels[:-1], LevelChoice("bundle", "binomial")))

    def reason(collective: str, nbytes: int = 8, segment: int | None = None) -> str | None:
        signature = call_signature(collective, nbytes)
        return unfit(topology, signature, replace(by, segment=segment), blocking=True)

    assert reason("gather") is None
    assert "whole" in (reason("gather", segment=4) or "")
    assert reason("alltoall") is not None
    assert reason("gatherv") is not None
    assert "do not fit" in (reason("gather", 1 << 29) or "")
