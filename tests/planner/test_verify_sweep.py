"""Every algorithm of every submodule, proved for each collective on random machines.

Machines have 1 to 64 ranks in 1 to 4 levels, with uneven and interleaved domains. Ranks share
memory up to any level, or not at all. Algorithms come from the registry, so that a new one is
covered without a change here. An example depends only on its number: `example(number)` makes it
again. HAN_TEST_EXAMPLES=10 makes the sweep ten times as long.
"""

import os
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from machines import composition_of, topology_of
from plans import rules_of
from random_plans import TARGETS, Target, draw_signature, example

from han.model.collectives import BY_BLOCKS, COLLECTIVES, DATALESS, REDUCING, ROOTED
from han.model.topology import Topology, virtual
from han.submodules.registry import plan_of_choice
from han.tasks.choice import LevelChoice
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.verify import Refuted, verify
from han.tuning.built_in.choosing import NodeTraits, choose

PARTS = 2  # parts of the sweep, one for each process
TIMES = 2  # proofs of each algorithm and collective in each part, at least
LONGER = float(os.environ.get("HAN_TEST_EXAMPLES", "1"))
WIDTH = 15  # of a column


def table_of(proved: Counter[Target], refused: Counter[str]) -> str:
    """Return a table of how often each algorithm was proved for each collective."""
    head = "".join(f"{c:>{WIDTH}}" for c in COLLECTIVES)
    lines = [f"{'proved':28}{head}{'refused':>{WIDTH}}"]
    for name, algorithm in dict.fromkeys((t.submodule, t.algorithm) for t in TARGETS):
        cells = [Target(name, algorithm, c) for c in COLLECTIVES]
        numbers = "".join(f"{proved[t] if t in TARGETS else '-':>{WIDTH}}" for t in cells)
        times = refused[f"{name} {algorithm}"]
        lines.append(f"{name + ' ' + algorithm:28}{numbers}{times:>{WIDTH}}")
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_algorithm_is_proved_for_every_collective(part, capsys):
    proved: Counter[Target] = Counter()
    refused: Counter[str] = Counter()
    events, ranks = 0, set()
    number = round(TIMES * len(TARGETS) * LONGER)
    for k in range(part * number, (part + 1) * number):
        one = example(k, refused)
        try:
            report = verify(one.plans, in_place=one.in_place)
        except Refuted as refuted:
            pytest.fail(f"example {k}: {refuted}\n{one}")
        events += report.events
        ranks.add(report.ranks)
        proved.update(one.proves)
    with capsys.disabled():
        print(f"\n{number} machines of {min(ranks)} to {max(ranks)} ranks, {events} events")
        print(table_of(proved, refused))
    seldom = [t for t in TARGETS if proved[t] < number // len(TARGETS)]
    assert not seldom, "each has its turn"


@pytest.mark.parametrize("size", [1, 2])
def test_hardly_any_ranks(size):
    """One rank has no active level, but its result must still be delivered."""
    topology = virtual(size)
    draw = Random(size)
    for target in TARGETS:
        signature = draw_signature(draw, size, target.collective, 1000)
        built_in = choose(signature, topology, NodeTraits())
        level = LevelChoice(target.submodule, target.algorithm)
        choice = replace(built_in, levels=(level,))
        if rules_of(topology).objection(signature, choice) is not None:
            choice = built_in
        plan = plan_of_choice(topology, signature, choice, 1 << 16)
        for in_place in (False, True):
            assert verify([plan] * 3, in_place=in_place).ranks == size


MANY = (64, *range(33, 64, 2))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_ranks_on_one_node(part):
    """Every algorithm and collective on 64 ranks, and on one odd number of ranks.

    Blocks travel in bundles only between nodes.
    """
    trees = [t for t in TARGETS if not composition_of(t.submodule, t.algorithm)]
    alone = [t for t in trees if t.submodule != "bundle"]
    for number, target in list(enumerate(alone))[part::PARTS]:
        for size in (MANY[0], MANY[1 + number % (len(MANY) - 1)]):
            plan = forced(topology_of([[0] * size], 0), target, root=number % size)
            report = verify([plan] * (1 + size % 2), in_place=bool(number % 2))
            assert report.ranks == size


def forced(topology: Topology, target: Target, root: int) -> Plan:
    """Plan a call of few pieces with an algorithm that must serve it on the only level."""
    count = 0 if target.collective in DATALESS else 3 if target.collective in BY_BLOCKS else 130
    root = root if target.collective in ROOTED else 0
    signature = Signature(target.collective, 8 * count, root=root)
    if target.collective in REDUCING:
        signature = replace(signature, count=count, element=8, op="op", dtype="u8")
    level = LevelChoice(target.submodule, target.algorithm)
    choice = replace(choose(signature, topology, NodeTraits()), levels=(level,))
    assert rules_of(topology).objection(signature, choice) is None, target
    return plan_of_choice(topology, signature, choice, 1 << 22)
