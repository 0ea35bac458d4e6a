"""Every composition, proved for each collective on machines of 1 to 4 levels and up to 64 ranks.

Machines are random: uneven and interleaved, with memory shared up to any level, and several rails.
An example depends only on its numbers: `example(...)` makes it again. HAN_TEST_EXAMPLES=10 makes
the sweep ten times as long.
"""

import os
from collections import Counter
from dataclasses import dataclass, replace
from random import Random

import pytest
from machines import on_nodes
from plans import built_in, rules_of
from random_plans import TARGETS, draw_kinds, draw_level, draw_signature, draw_topology

from han.model.collectives import BUNDLED, SCANS
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice
from han.tasks.compositions import BUNDLES_IN_LANES, COMPOSITIONS, LANES, NAP, as_called
from han.tasks.outline import levels_of
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.verify import Refuted, verify
from han.tuning.built_in.choosing import NodeTraits, choose

EACH = max(1, round(2 * float(os.environ.get("HAN_TEST_EXAMPLES", "1"))))
ALL = ("bcast", "reduce", "allreduce", "barrier")
SERVED = {
    "tree": (*ALL, *BUNDLED, *SCANS),
    "flat": (*ALL, "alltoall", *SCANS),
    "nap": NAP,
    "lanes": (*LANES, *BUNDLES_IN_LANES),
    "ring": LANES,
}
LEVELS = {"tree": (1, 2, 3, 4), "flat": (1, 2, 3, 4), "ring": (1, 2, 3, 4)}  # others: from 2 on
CASES = [
    (name, collective, depth)
    for name in COMPOSITIONS
    for collective in SERVED[name]
    for depth in LEVELS.get(name, (2, 3, 4))
]


def draw_machine(draw: Random, depth: int, collective: str = "") -> Topology:
    """Draw a machine of so many levels, each of which splits the domains of the one above.

    It is small for calls by blocks, of which there may be as many as pairs of ranks.
    """
    sizes = [(2, 12), (9, 20)] if collective in BUNDLED else [(2, 12), (9, 30), (25, 64)]
    topology = draw_topology(draw, sizes, depth)
    rails = tuple(draw.randrange(draw.choice([1, 2, 3])) for _ in range(topology.size))
    return replace(topology, rails=rails)


def draw_choice(draw: Random, topology: Topology, signature: Signature, name: str) -> Choice | None:
    """Draw what each level runs among what serves the composition; None if nothing does."""
    table = rules_of(topology)
    choice = choose(signature, topology, NodeTraits(), name)
    segment = draw.choice([None, 1000, max(8, signature.nbytes // 3)])
    tries = [replace(choice, segment=segment), choice]
    fit = next((one for one in tries if table.objection(signature, one) is None), None)
    if fit is None:
        return None
    view = as_called(topology, signature, name)
    for level in levels_of(view, signature):
        for target in draw.sample(TARGETS, 12):
            members = view.widest(level)
            one = draw_level(draw, target.submodule, target.algorithm, signature, members)
            one = draw_kinds(draw, one, signature, members)
            levels = (*fit.levels[:level], one, *fit.levels[level + 1 :])
            other = replace(fit, levels=levels)
            if table.objection(signature, other) is None:
                fit = other
                break
    other = replace(fit, schedule=draw.choice(["dataflow", "dataflow", "lockstep"]))
    return other if table.objection(signature, other) is None else fit


@dataclass(frozen=True)
class Example:
    """A plan that runs several times, and what is drawn with it."""

    plan: Plan
    times: int
    in_place: bool

    def __str__(self) -> str:
        topology, signature = self.plan.topology, self.plan.signature
        where = f"{topology.size} ranks, domains {topology.homes}, rails {topology.rails}"
        return f"{where}: {self.times} x {signature.describe()} by {self.plan.choice}"


def example(name: str, collective: str, depth: int, number: int) -> Example:
    """Draw machines and calls until the composition serves one."""
    draw = Random(f"{name} {collective} {depth} {number}")
    while True:
        topology = draw_machine(draw, depth, collective)
        signature = draw_signature(draw, topology.size, collective, draw.choice([64, 1000, 20_000]))
        choice = draw_choice(draw, topology, signature, name)
        if choice is not None:
            memory = draw.choice([1 << 16, 1 << 20, 1 << 22])
            plan = plan_of_choice(topology, signature, choice, memory)
            return Example(plan, draw.randint(1, 3), draw.random() < 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_every_composition_is_proved_on_machines_of_any_depth(name, capsys):
    proved, submodules = Counter(), Counter()
    for _, collective, depth in (case for case in CASES if case[0] == name):
        for number in range(EACH):
            one = example(name, collective, depth, number)
            assert one.plan.choice.composition == name
            try:
                report = verify([one.plan] * one.times, in_place=one.in_place)
            except Refuted as refuted:
                pytest.fail(f"example{(name, collective, depth, number)}: {refuted}\n{one}")
            proved[collective] += 1
            submodules.update(one.plan.choice.levels[k].submodule for k in one.plan.levels)
            assert report.ranks == one.plan.topology.size
    with capsys.disabled():
        told = ", ".join(f"{key} {n}" for key, n in (proved + submodules).items())
        print(f"\n{name}: {told}")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions_are_proved_for_1024_ranks(name):
    """64 nodes of 16 ranks; `bench_verify.py` proves longer messages."""
    topology, signature = on_nodes(*[16] * 64), Signature("allreduce", 1024, 8, "sum", "uint64")
    plan = built_in(topology, signature, name, 1 << 24)
    assert plan.choice.composition == name
    assert verify([plan]).ranks == 1024
