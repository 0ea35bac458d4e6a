"""Reduce-scatters and alltoalls whose blocks members pass on, and allgathers with any factors."""

import os
from dataclasses import replace
from random import Random

import pytest
from machines import topology_of

from han.config.config import Config
from han.model.opcodes import Code
from han.model.topology import Topology
from han.submodules.bundle.rounds import PASSING
from han.submodules.parts.factors import one_way_lists
from han.submodules.parts.mail import MOST
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

EXAMPLES = max(1, round(30 * float(os.environ.get("HAN_TEST_EXAMPLES", "1"))))
TRAITS = NodeTraits()
CASES = [
    *PASSING, *(("allgather", name) for name in ("recursive", "cyclic")),
]  # fmt: skip


def machine(nodes: list[int]) -> Topology:
    return topology_of([nodes, [0] * len(nodes)], 0)


def by(topology: Topology, signature: Signature, level: LevelChoice, name: str = "tree") -> Plan:
    choice = choose(signature, topology, TRAITS, name)
    levels = (*choice.levels[:-1], level)
    return plan_of_choice(topology, signature, replace(choice, levels=levels), 1 << 20)


def reason(plan: Plan) -> str | None:
    return unfit(plan.topology, plan.signature, plan.choice, blocking=True)


def draw_nodes(random: Random) -> list[int]:
    size = random.randint(2, 17)
    nodes = [0, 1, *(random.randrange(random.randint(1, 9)) for _ in range(size - 2))]
    random.choice([random.shuffle, list.sort])(nodes)
    numbers = {node: k for k, node in enumerate(dict.fromkeys(nodes))}
    return [numbers[node] for node in nodes]


def factors_of(
    random: Random, algorithm: str, nodes: int
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    wanted = random.choice([(), *one_way_lists(algorithm, nodes)]) if algorithm != "ring" else ()
    return (("factors", wanted),) if wanted else ()


@pytest.mark.parametrize("number", range(EXAMPLES))
@pytest.mark.parametrize(("collective", "algorithm"), CASES)
def test_patterns_are_proved(collective, algorithm, number):
    """Nodes are uneven, and their ranks lie in any order; for one size, and for a class of them."""
    random = Random(f"{collective} {algorithm} {number}")
    nbytes = random.choice([8, 64, 4000, 40_000])
    nodes = draw_nodes(random)
    topology, count = machine(nodes), max(nodes) + 1
    ordered = collective == "reduce_scatter" and algorithm == "recursive" and sorted(nodes) == nodes
    signature = call_signature(collective, nbytes, commutative=not ordered)
    level = LevelChoice("bundle", algorithm, factors_of(random, algorithm, count))
    name = random.choice(["tree", "lanes"]) if count < len(nodes) else "tree"
    plan = by(topology, signature, level, name)
    assert reason(plan) is None
    verify([plan] * 2, in_place=random.random() < 0.5 and collective != "allgather")
    of_class = by(topology, Planner(topology, Config(), TRAITS, 0, False).sized(signature), level)
    verify([of_class.of_size(nbytes)] * 2)


def messages(plan: Plan, rank: int) -> int:
    return int((lower(plan, rank).code["code"] == Code.ISEND).sum())


@pytest.mark.parametrize(
    ("collective", "algorithm", "factors", "sent"),
    [
        ("reduce_scatter", "linear", (), 15),
        ("reduce_scatter", "ring", (), 15),
        ("reduce_scatter", "recursive", (2, 2, 2, 2), 4),
        ("reduce_scatter", "recursive", (), 6),
        ("reduce_scatter", "cyclic", (2, 2, 2, 2), 4),
        ("alltoall", "linear", (), 15),
        ("alltoall", "cyclic", (2, 2, 2, 2), 4),
        ("alltoall", "cyclic", (4, 4), 6),
        ("allgather", "recursive", (4, 4), 6),
        ("allgather", "cyclic", (3, 6), 7),
    ],
)
def test_messages_of_a_member(collective, algorithm, factors, sent):
    """A phase of factor f has f - 1 messages of each member, however ranks lie on nodes."""
    signature = call_signature(collective, 8)
    level = LevelChoice("bundle", algorithm, (("factors", factors),) if factors else ())
    for nodes in ([rank // 2 for rank in range(32)], [rank % 16 for rank in range(32)]):
        of_rank = messages(by(machine(nodes), signature, level), nodes.index(3))
        assert of_rank == sent or (of_rank > sent and collective == "allgather")


def test_many_nodes():
    """What a member passes on stays in order: 1024 ranks, of which some are followed."""
    topology = machine([rank // 4 for rank in range(1024)])
    for collective, algorithm in PASSING:
        plan = by(topology, call_signature(collective, 8), LevelChoice("bundle", algorithm))
        sends = {messages(plan, rank) for rank in (0, 4, 508, 1020)}
        assert len(sends) == 1


def test_what_is_not_served():
    topology = machine([0, 0, 1, 1, 2, 2])

    def of(collective: str, algorithm: str, factors: tuple[int, ...] = (), **more: object) -> str:
        given = (("factors", factors),) if factors else ()
        signature = call_signature(collective, 8, **more)
        return reason(by(topology, signature, LevelChoice("bundle", algorithm, given))) or ""

    assert of("reduce_scatter", "recursive") == of("alltoall", "cyclic", (2, 2)) == ""
    assert "bring 2 members together, not the 3" in of("reduce_scatter", "recursive", (2,))
    assert "less than the 3 members" in of("alltoall", "cyclic", (2,))
    assert "2 or more expected" in of("alltoall", "cyclic", (-2, 2))
    assert "order of operands" in of("reduce_scatter", "ring", commutative=False)
    assert "order of operands" in of("reduce_scatter", "cyclic", commutative=False)
    assert of("reduce_scatter", "recursive", commutative=False) == ""
    assert "recursive serves" in of("alltoall", "recursive")
    signature = call_signature("alltoall", 8)
    flat = by(topology, signature, LevelChoice("bundle", "cyclic"), "flat")
    assert "straight" in (reason(flat) or "")


@pytest.mark.parametrize(("collective", "most"), [("alltoall", 16 * 64), ("reduce_scatter", 64)])
def test_a_message_holds_at_most_1_gib(collective, most):
    """An alltoall passes on blocks of each rank of a node for each rank of another one."""
    topology = machine([rank // 16 for rank in range(64)])

    def of(nbytes: int) -> str | None:
        signature = call_signature(collective, nbytes)
        return reason(by(topology, signature, LevelChoice("bundle", "cyclic")))

    assert of(MOST // most) is None
    assert "do not fit" in (of(MOST // most + 8) or "")
