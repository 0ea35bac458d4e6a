"""Calls with neighbours on several nodes: shared messages, and blocks that come to a node once."""

import os
from random import Random

import pytest
from machines import topology_of

from han.model.program import Code
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.handed import Handed
from han.tasks.lower import lower
from han.tasks.neighbours import Neighbours
from han.tasks.own_sizes import own_sizes
from han.tasks.parcels import Parcels
from han.tasks.plan import Plan
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits, choose
from han.tuning.rules import RuleTable

EXAMPLES = max(1, round(12 * float(os.environ.get("HAN_TEST_EXAMPLES", "1"))))
SIZES = (0, 1, 24, 1024, 1025, 5000, 33_000, 600_000)
TRAITS = NodeTraits()


def machine(nodes: list[int]) -> Topology:
    return topology_of([nodes, [0] * len(nodes)], 0)


def plan_of(topology: Topology, neighbours: Neighbours, composition: str) -> Plan:
    signature = own_sizes("alltoallv", neighbours=neighbours)
    choice = choose(signature, topology, TRAITS, composition)
    return plan_of_choice(topology, signature, choice, 1 << 20)


def called(plan: Plan, counts: list[int]) -> Plan:
    whole = plan if plan.signature.grains else plan.largest
    assert whole is not None
    return whole.of_size(max(counts, default=0), tuple(counts))


def drawn(random: Random, neighbours: Neighbours) -> list[int]:
    """Draw what each rank sends to each."""
    size, some = len(neighbours.targets), random.sample(SIZES, random.randint(1, len(SIZES)))
    counts = [0] * size**2
    for source in range(size):
        whole = random.choice(some)
        for target in neighbours.targets[source]:
            counts[source * size + target] = whole if neighbours.same else random.choice(some)
    return counts


def random_graph(random: Random, size: int, same: bool) -> Neighbours:
    share = random.random()
    rows = [[t for t in range(size) if random.random() < share] for _ in range(size)]
    return Neighbours.of(rows, same)


@pytest.mark.parametrize("number", range(EXAMPLES))
@pytest.mark.parametrize(
    ("composition", "same"),
    [("flat", False), ("flat", True), ("tree", False), ("tree", True), ("lanes", False)],
)
def test_random_graphs_are_proved(composition, same, number):
    """Nodes are uneven, and their ranks lie in any order."""
    random = Random(f"{composition} {number}")
    size = random.randint(2, 10)
    topology = machine([random.randrange(random.randint(1, 4)) for _ in range(size)])
    neighbours = random_graph(random, size, same)
    plan = plan_of(topology, neighbours, composition)
    verify([called(plan, drawn(random, neighbours)) for _ in range(2)])


@pytest.mark.parametrize("same", [False, True])
def test_large_machines_are_proved(same):
    """The ranks of 4 nodes lie in turn, as a Split by parity makes them."""
    random = Random(same)
    neighbours = random_graph(random, 32, same)
    plan = plan_of(machine([rank % 4 for rank in range(32)]), neighbours, "tree")
    verify([called(plan, drawn(random, neighbours))] * 2)


def everyone(nodes: int, ppn: int, same: bool) -> Neighbours:
    """Return the neighbours where each rank has all ranks of the next node, and itself."""
    size = nodes * ppn
    first = [(rank // ppn + 1) % nodes * ppn for rank in range(size)]
    return Neighbours.of([[r, *range(at, at + ppn)] for r, at in enumerate(first)], same)


def messages(plan: Plan, nbytes: int) -> int:
    neighbours = plan.signature.neighbours
    assert neighbours is not None
    size = len(neighbours.targets)
    counts = [nbytes * neighbours.has(s, t) for s in range(size) for t in range(size)]
    codes = [lower(called(plan, counts), rank).code["code"] for rank in range(size)]
    return sum(int((code == Code.ISEND).sum()) for code in codes)


@pytest.mark.parametrize(
    ("composition", "same", "small", "large"),
    [("flat", False, 64, 64), ("lanes", False, 16, 80), ("tree", True, 16, 16)],
)
def test_ranks_of_a_node_share_messages(composition, same, small, large):
    """Four nodes of 4; what proves a plan sends parcels without small blocks too."""
    plan = plan_of(machine([r // 4 for r in range(16)]), everyone(4, 4, same), composition)
    assert messages(plan, 8) == small
    assert messages(plan, 100_000) == large


def test_all_ranks_receive_what_they_hand_on():
    plan = plan_of(machine([r // 4 for r in range(16)]), everyone(4, 4, True), "tree")
    steps = plan.block_steps
    assert steps is not None
    assert steps.handed is not None
    assert [len(each) for each in steps.handed.by_giver.values()] == [1] * 16


def test_a_line_has_nothing_to_share():
    nodes, line = machine([0, 0, 1, 1]), [[1], [0, 2], [1, 3], [2]]
    for same in (False, True):
        call = nodes, own_sizes("alltoallv", neighbours=Neighbours.of(line, same)), "tree"
        assert Parcels.of_call(*call) is None
        assert Handed.of_call(*call) is None


def test_all_that_ranks_hand_on_has_room_in_the_least_ring():
    """Two ranks have a neighbour in each other node: one of these would hand on all blocks."""
    size = 2 * 1100
    rows = [[0, 1] if rank > 1 and rank % 2 == 0 else [] for rank in range(size)]
    topology = machine([rank // 2 for rank in range(size)])
    signature = own_sizes("alltoallv", neighbours=Neighbours.of(rows, same=True))
    plan = plan_of_choice(topology, signature, choose(signature, topology, TRAITS, "tree"), 1 << 16)
    assert plan.footprint()[0] <= plan.geometry(0).area


@pytest.mark.parametrize(
    ("ppn", "same", "composition"),
    [(1, False, "tree"), (4, False, "lanes"), (1, True, "tree"), (4, True, "tree")],
)
def test_the_built_in_choice_shares_where_that_is_fewer(ppn, same, composition):
    table = RuleTable(None, machine([r // ppn for r in range(4 * ppn)]), TRAITS)
    call = own_sizes("alltoallv", neighbours=everyone(4, ppn, same))
    assert table.decide(call).choice.composition == composition


def test_graphs_are_told_apart():
    one, other = Neighbours.of([[1, 1, -1], [0]]), Neighbours.of([[1], []])
    assert one.targets == ((1,), (0,))
    assert one.edges == 2
    assert one != other
    assert repr(one) != repr(other)
    assert hash(one) == hash(Neighbours.of([[1], [0]]))
    assert repr(one) != repr(Neighbours.of([[1], [0]], same=True))
