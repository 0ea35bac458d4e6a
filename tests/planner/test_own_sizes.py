"""Gatherv, Scatterv and Alltoallv: one plan for all sizes, proved for those of each pair."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from machines import PLACEMENTS, simple_machine, topology_of

from han.config.config import Config
from han.model.collectives import ROWS
from han.model.loops import LEAST
from han.model.opcodes import Code
from han.model.program import Base
from han.model.topology import Topology
from han.runtime.measured import IN_NODE
from han.submodules.registry import plan_of_choice
from han.submodules.sm.pair_cells import PairCells
from han.tasks.lower import lower
from han.tasks.own_sizes import SMALL, blocks_of, matrix_of, own_sizes
from han.tasks.plan import Plan
from han.tasks.samples import lower_with_loops
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tasks.spec import pairwise
from han.tasks.verify import Refuted, verify
from han.tuning.built_in.choosing import NodeTraits, choose
from han.tuning.planner import Planner

OWN = [name for name, row in ROWS.items() if row.own]
SIZES = (0, 1, 24, 4096, SMALL, SMALL + 1, 100_000, 600_000)  # of a block, in bytes
MEMORY = 2 << 20
TRAITS = NodeTraits(False, False)


def machine(nodes: list[int], attach: bool = True) -> Topology:
    topology = topology_of([nodes, [0] * len(nodes)], 0)
    return replace(topology, attach=attach)


def plan_of(topology: Topology, collective: str, root: int = 0, memory: int = MEMORY) -> Plan:
    planner = Planner(topology, Config(), TRAITS, 0, False)
    signature = planner.sized(own_sizes(collective, root))
    return plan_of_choice(topology, signature, choose(signature, topology, TRAITS), memory)


def counts_of(random: Random, collective: str, size: int, root: int) -> tuple[int, ...]:
    """Draw what each rank sends to each."""
    ends = {"gatherv": lambda s, t: t == root, "scatterv": lambda s, t: s == root}
    sends = ends.get(collective, lambda s, t: True)
    pairs = [(s, t) for s in range(size) for t in range(size)]
    return tuple(random.choice(SIZES) if sends(s, t) else 0 for s, t in pairs)


def called(plan: Plan, counts: tuple[int, ...]) -> Plan:
    return plan.of_size(plan.signature.nbytes, counts)


@pytest.mark.parametrize("attach", [True, False])
@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=[*PLACEMENTS])
def test_all_sizes_are_proved(placement, attach):
    random = Random(len(placement) + attach)
    for size in (1, 2, 3, 5, 8):
        nodes = placement[:size]
        topology = machine(nodes, attach)
        for collective in OWN:
            root = random.randrange(size) if ROWS[collective].rooted else 0
            plan = plan_of(topology, collective, root)
            calls = [called(plan, counts_of(random, collective, size, root)) for _ in range(3)]
            verify(calls)


@pytest.mark.parametrize("collective", OWN)
def test_large_machines_are_proved(collective):
    """The ranks of 4 nodes lie in turn, as a Split by parity makes them."""
    random, size = Random(3), 32
    topology = machine([rank % 4 for rank in range(size)])
    plan = plan_of(topology, collective, 5 if ROWS[collective].rooted else 0)
    root = plan.signature.root
    verify([called(plan, counts_of(random, collective, size, root))] * 2)


def test_flags_are_not_where_other_calls_have_data():
    topology, random = machine([0] * 3), Random(5)
    signature = Signature("bcast", 4096)
    bcast = plan_of_choice(topology, signature, choose(signature, topology, TRAITS), MEMORY)
    for collective in OWN:
        plan = plan_of(topology, collective)
        verify([bcast, *[called(plan, counts_of(random, collective, 3, 0)) for _ in range(17)]])


def test_small_rings_leave_no_room_for_cells():
    topology = machine([0] * 64)
    plan = plan_of(topology, "alltoallv", memory=1 << 10)
    counts = counts_of(Random(1), "alltoallv", 64, 0)
    verify([called(plan, counts)])


def test_where_lines_move_slowly_only_blocks_of_known_sizes_need_no_cell():
    topology = machine([0] * 3)
    for singly, room in ((False, 16 << 10), (True, IN_NODE.gathered)):
        signature = own_sizes("gatherv", singly=singly)
        choice = choose(signature, topology, NodeTraits(mesh=True))
        plan = plan_of_choice(topology, signature, choice, MEMORY)
        assert PairCells.of(plan, 0).room == room
        verify([called(plan, counts_of(Random(4), "gatherv", 3, 0))])


def test_a_program_does_not_depend_on_sizes():
    plan = plan_of(machine([0, 0, 1, 1]), "alltoallv")
    program = lower(plan, 1)
    assert program.own
    assert program.blocks == 9
    counts = counts_of(Random(2), "alltoallv", 4, 0)
    one = program.of_own(blocks_of(counts, 1))
    assert one.terms is None
    assert len(one.code) == len(program.code)
    assert not np.isin(one.code["base"], (Base.TABLE,)).any()
    assert Code.EXPECT not in one.code["code"]


def test_large_programs_have_no_loops():
    plan = plan_of(machine([0] * 900), "scatterv")
    program = lower_with_loops(plan, 0)
    assert len(program.code) > LEAST
    assert program.strides is None


def test_a_block_of_the_wrong_size_is_refuted():
    plan = plan_of(machine([0, 0]), "gatherv")
    good, bad = (0, 0, 100, 0), (0, 0, 99, 0)
    programs = [lower(called(plan, good), 0), lower(called(plan, bad), 1)]
    with pytest.raises(Refuted):
        verify([called(plan, good)], programs=[programs])


def test_the_blocks_of_a_rank_have_places():
    counts = (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert matrix_of(counts) == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    sizes, starts, far = blocks_of(counts, 1)
    assert sizes == [0, 4, 5, 6, 2, 5, 8]
    assert starts == [0, 0, 4, 9, 0, 2, 7]
    assert far == [0, 1, 2, 3, 1, 4, 7]  # behind what others send there, and before what they send
    assert pairwise(counts).sends(1) == 15


def test_a_signature_says_that_sizes_differ():
    signature = own_sizes("gatherv", 2)
    assert signature.uneven
    assert signature.describe() == "gatherv (root 2)"


def test_it_is_simulated():
    topology = machine([0, 0, 1, 1])
    plan = plan_of(topology, "alltoallv")
    few, many = (called(plan, (n,) * 16) for n in (8, 1 << 20))
    model = simple_machine()
    assert simulate(few, model).seconds < simulate(many, model).seconds
