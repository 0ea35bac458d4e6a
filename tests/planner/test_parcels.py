"""Parcels: small blocks of own sizes that travel together between nodes."""

import os
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from machines import topology_of

from han.model.collectives import ROWS
from han.model.opcodes import MESSAGES
from han.model.program import Code
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.lower import lower
from han.tasks.own_sizes import own_sizes
from han.tasks.parcels import LEAST, ROOM, SHARED, Parcels
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.verify import Refuted, verify
from han.tuning.built_in.choosing import NodeTraits, choose
from han.tuning.rules import RuleTable

EXAMPLES = max(1, round(12 * float(os.environ.get("HAN_TEST_EXAMPLES", "1"))))
SIZES = (0, 1, 24, ROOM, ROOM + 1, 5000)
TRAITS = NodeTraits()
CASES = [
    (name, composition)
    for name, row in ROWS.items()
    for composition in ("tree", "lanes", "flat")
    if row.own and (composition != "lanes" or name == "alltoallv")
]


def machine(nodes: list[int]) -> Topology:
    return topology_of([nodes, [0] * len(nodes)], 0)


def plan_of(topology: Topology, signature: Signature, composition: str) -> Plan:
    choice = choose(signature, topology, TRAITS, composition)
    return plan_of_choice(topology, signature, choice, 1 << 20)


def called(plan: Plan, counts: tuple[int, ...]) -> Plan:
    signature = plan.signature
    whole = plan if signature.grains else plan.largest
    return whole.of_size(signature.nbytes, counts)


def drawn(random: Random, plan: Plan, sizes: tuple[int, ...] = SIZES) -> tuple[int, ...]:
    """Draw what each rank sends to each."""
    name, root, size = plan.signature.collective, plan.signature.root, plan.topology.size
    ends = {"gatherv": lambda s, t: t == root, "scatterv": lambda s, t: s == root}
    sends = ends.get(name, lambda s, t: True)
    pairs = [(s, t) for s in range(size) for t in range(size)]
    return tuple(random.choice(sizes) if sends(s, t) else 0 for s, t in pairs)


@pytest.mark.parametrize("number", range(EXAMPLES))
@pytest.mark.parametrize(("collective", "composition"), CASES)
def test_every_composition_is_proved(collective, composition, number):
    """Nodes are uneven, and their ranks lie in any order."""
    random = Random(number)
    size = random.randint(2, 10)
    topology = machine([random.randrange(random.randint(1, 4)) for _ in range(size)])
    root = random.randrange(size) if ROWS[collective].rooted else 0
    plan = plan_of(topology, own_sizes(collective, root), composition)
    some = random.sample(SIZES, random.randint(1, len(SIZES)))
    verify([called(plan, drawn(random, plan, tuple(some))) for _ in range(2)])


def messages(plan: Plan, large: int) -> int:
    """Return how many messages ranks send where all blocks have `large` bytes, or fewer."""
    size = plan.topology.size
    one = called(plan, tuple([large] * size**2))
    codes = [lower(one, rank).code["code"] for rank in range(size)]
    return sum(int((code == Code.ISEND).sum()) for code in codes)


@pytest.mark.parametrize(("composition", "number"), [("flat", 48), ("lanes", 24), ("tree", 12)])
def test_ranks_of_a_node_share_messages(composition, number):
    """On 4 nodes of 2 ranks; what proves a plan sends parcels without small blocks too."""
    plan = plan_of(machine([0, 0, 1, 1, 2, 2, 3, 3]), own_sizes("alltoallv"), composition)
    assert messages(plan, ROOM) == number
    assert messages(plan, ROOM + 1) == 48 + number * (composition != "flat")


def test_a_root_gets_one_message_of_each_node():
    for name in ("gatherv", "scatterv"):
        plan = plan_of(machine([0, 0, 0, 1, 1, 1, 2, 2, 2]), own_sizes(name, 4), "tree")
        counts = drawn(Random(0), plan, (8,))
        codes = [lower(called(plan, counts), rank).code["code"] for rank in range(9)]
        assert sum(int((code == Code.ISEND).sum()) for code in codes) == 2


def parcels_of(nodes: list[int], composition: str, signature: Signature) -> Parcels | None:
    return Parcels.of_call(machine(nodes), signature, composition)


def test_some_calls_have_no_parcels():
    call, pairs = own_sizes("alltoallv"), [0, 0, 1, 1]
    assert parcels_of(pairs, "tree", call) is not None
    assert parcels_of(pairs, "flat", call) is None
    assert parcels_of([0, 1, 2, 3], "tree", call) is None
    assert parcels_of([0, 0, 0, 0], "tree", call) is None
    assert parcels_of(pairs, "tree", own_sizes("alltoallv", singly=True)) is None
    apart = replace(machine(pairs), attach=False)
    assert Parcels.of_call(apart, call, "tree") is None


def test_slots_of_many_ranks_are_smaller():
    """All slots fit into any ring; blocks that would not fit travel by themselves."""
    call, rooms = own_sizes("alltoallv"), []
    for nodes in (2, 8, 16, 32, 64):
        parcels = parcels_of([rank // 16 for rank in range(16 * nodes)], "lanes", call)
        if parcels is not None:
            assert parcels.shared <= SHARED
        rooms.append(0 if parcels is None else parcels.room)
    assert rooms == sorted(rooms, reverse=True)
    assert rooms[0] == ROOM
    assert rooms[-1] == 0
    assert min(room for room in rooms if room) >= LEAST


def test_a_block_of_another_size_is_refuted():
    """The result would have bytes of a slot that nobody has written."""
    plan = plan_of(machine([0, 0, 1, 1]), own_sizes("scatterv"), "tree")
    good, bad = ([0] * 16 for _ in range(2))
    good[3], bad[3] = 100, 99
    programs = [lower(called(plan, (*(bad if rank == 0 else good),)), rank) for rank in range(4)]
    with pytest.raises(Refuted):
        verify([called(plan, (*good,))], programs=[programs])


def test_slots_may_not_be_read_by_copies():
    """Only operations that know what a slot holds may read bytes that were never written."""
    plan = called(plan_of(machine([0, 0, 1, 1]), own_sizes("alltoallv"), "tree"), (8,) * 16)
    programs = [lower(plan, rank) for rank in range(4)]
    for program in programs:
        program.code["code"][program.code["code"] == Code.PACK] = Code.COPY
    with pytest.raises(Refuted, match="never written"):
        verify([plan], programs=[programs])


def test_the_built_in_choice_shares_messages_where_that_is_fewer():
    def composition(name: str, ppn: int) -> str:
        topology = machine([rank // ppn for rank in range(4 * ppn)])
        table = RuleTable(None, topology, TRAITS)
        return table.decide(own_sizes(name)).choice.composition

    assert [composition("alltoallv", ppn) for ppn in (1, 2, 4)] == ["tree", "lanes", "lanes"]
    assert [composition("scatterv", ppn) for ppn in (2, 4)] == ["tree", "tree"]
    assert [composition("gatherv", ppn) for ppn in (2, 3)] == ["flat", "tree"]
    singly = own_sizes("alltoallv", singly=True)
    table = RuleTable(None, machine([0, 0, 1, 1]), TRAITS)
    assert table.decide(singly).choice.composition == "tree"


def test_a_rank_that_is_alone_takes_part():
    """It fills and empties slots in its own memory."""
    plan = plan_of(machine([0, 0, 1]), own_sizes("alltoallv"), "tree")
    assert plan.largest is not None
    program = lower(plan.largest, 2)
    codes = program.code["code"].tolist()
    assert codes.count(Code.PACK) == codes.count(Code.UNPACK) == codes.count(Code.TALLY) == 1
    assert np.isin(program.code["code"], MESSAGES).sum() == 2 + 2 * 2
