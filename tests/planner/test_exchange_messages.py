"""Exchanges in messages: the paper's program, patterns, messages of each algorithm, and proofs."""

from itertools import product
from math import ceil, log2

import pytest
from machines import taken, topology_of
from plans import planned, prove, rules_of, sent
from test_exchange_halves import signature_of

from han.config.config import load_config
from han.model.program import Code
from han.submodules.names import validate_names
from han.submodules.registry import plan_of_choice, submodule
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.size_classes import bounds_of, class_of
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.papers.jocksch import BOX, script
from han.tuning.rules import RuleTable

ROWS = submodule("exchange").algorithms
FUSED = tuple(name for name, row in ROWS.items() if row.fuses)
ORDERED = tuple(name for name in FUSED if ROWS[name].ordered == "always")
MEMORY = 1 << 18


def allreduce(count, ordered=False):
    op = "matrix product" if ordered else "sum"
    return Signature("allreduce", count, 8, op, "f8", not ordered, not ordered)


def plan_of(nodes, algorithm, signature, segment=None, **parameters):
    """Plan a call of ranks that share no memory."""
    choice = Choice((level_choice("exchange", algorithm, **parameters),), segment)
    return planned(topology_of([[0] * nodes], -1), signature, choice, MEMORY)


# ---- figure 3 -----------------------------------------------------------------------------------


FIGURE_3 = {
    0: """STEP
        FRAC 4 RECVFROM 1, FRAC 1 SENDTO 1, FRAC 2 REDUCEFROM 0 4
        STEP
        FRAC 4 RECVFROM 2, FRAC 2 SENDTO 2, FRAC 2 REDUCEFROM 2 4
        STEP
        FRAC 3 RECVFROM 1, FRAC 2 SENDTO 1""",
    1: """STEP
        FRAC 4 RECVFROM 0, FRAC 0 SENDTO 0, FRAC 3 REDUCEFROM 4 1
        STEP
        FRAC 4 RECVFROM 3, FRAC 3 SENDTO 3, FRAC 3 REDUCEFROM 3 4
        STEP
        FRAC 2 RECVFROM 0, FRAC 3 SENDTO 0""",
    2: """STEP
        FRAC 4 RECVFROM 3, FRAC 1 SENDTO 3, FRAC 2 REDUCEFROM 0 4
        STEP
        FRAC 4 RECVFROM 0, FRAC 2 SENDTO 0, FRAC 2 REDUCEFROM 4 2
        STEP
        FRAC 3 RECVFROM 3, FRAC 2 SENDTO 3""",
    3: """STEP
        FRAC 4 RECVFROM 2, FRAC 0 SENDTO 2, FRAC 3 REDUCEFROM 4 1
        STEP
        FRAC 4 RECVFROM 1, FRAC 3 SENDTO 1, FRAC 3 REDUCEFROM 4 3
        STEP
        FRAC 2 RECVFROM 2, FRAC 3 SENDTO 2""",
}


def test_the_programs_of_figure_3():
    """Four nodes, factors -2, 2, 2, a message of two boxes (Jocksch et al., section 2.1.2)."""
    plan = plan_of(4, "recursive", allreduce(2 * BOX // 8), factors=(-2, 2, 2), whole=0)
    verify([plan, plan])
    for node, expected in FIGURE_3.items():
        assert script(lower(plan, node)) == [
            s.strip() for s in expected.replace(",", "\n").split("\n")
        ]


# ---- messages -----------------------------------------------------------------------------------


def steps_of(program):
    """Return the numbers of messages that a rank starts to send at the same time."""
    found, going = [], 0
    for code in program.code["code"]:
        if code == Code.ISEND:
            going += 1
        elif going and code == Code.TEST:
            found.append(going)
            going = 0
    return found


def test_a_factor_uses_as_many_ports_as_it_has_other_members():
    for factors, ports in {
        (2, 2, 2, 2): [1, 1, 1, 1],
        (4, 4): [3, 3],
        (16,): [15],
        (-4, -4, 4, 4): [3, 3, 3, 3],
        (-4, 4, 4): [3, 3, 3],
    }.items():
        plan = plan_of(16, "recursive", allreduce(16 * 8), factors=factors, whole=0)
        for rank in range(16):
            assert steps_of(lower(plan, rank)) == ports


def test_presets_send_what_is_known_of_them():
    """Messages and bytes of a member; `n` members, a message of 1 block each."""
    for n in (4, 8, 16):
        steps, share = int(log2(n)), 1024
        for algorithm, messages, blocks in (
            ("recursive_doubling", steps, steps * n),
            ("halving", 2 * steps, 2 * (n - 1)),
            ("ring", 2 * (n - 1), 2 * (n - 1)),
        ):
            plan = plan_of(n, algorithm, allreduce(n * share // 8), segment=1 << 20)
            for program in (lower(plan, 0), lower(plan, n - 1)):
                assert sum(steps_of(program)) == messages
                assert sent(program) == blocks * share


@pytest.mark.parametrize("nodes", [2, 3, 5, 7, 8, 13])
def test_barriers_take_as_many_steps_as_their_pattern(nodes):
    """Bruck's barrier is the dissemination barrier: log2(n) steps for any number of members."""
    plan = plan_of(nodes, "bruck", Signature("barrier", 0))
    for rank in range(nodes):
        assert steps_of(lower(plan, rank)) == [1] * ceil(log2(nodes))
    for algorithm in FUSED:
        plan = plan_of(nodes, algorithm, Signature("barrier", 0))
        verify([plan] * 3)
        assert not any(sent(lower(plan, rank)) for rank in range(nodes))


def test_a_root_sends_a_scattered_message_once():
    for nodes in (2, 4, 5, 16):
        nbytes = nodes * 1024
        plan = plan_of(nodes, "scatter", Signature("bcast", nbytes, root=1))
        assert sent(lower(plan, 1)) <= 2 * nbytes
        total = sum(sent(lower(plan, rank)) for rank in range(nodes))
        assert total >= (nodes - 1) * nbytes
        received = [lower(plan, rank).code for rank in range(nodes)]
        for rank, code in enumerate(received):
            arrives = int(code["n"][code["code"] == Code.IRECV].sum())
            assert arrives == (0 if rank == 1 else nbytes)


# ---- proofs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 7, 11])
def test_exchanges_of_any_number_of_nodes_are_proved(nodes):
    for algorithm, (count, segment) in product(FUSED, ((1, None), (40, None), (999, 3000))):
        signature = allreduce(count, ordered=algorithm in ORDERED)
        whole = taken("exchange", algorithm, {"whole": 64})
        plan = plan_of(nodes, algorithm, signature, segment, **whole)
        prove(plan)


def test_classes_of_sizes_are_proved_at_their_edges():
    bounds = bounds_of()
    for algorithm, nodes, bound in product((*FUSED, "scatter"), (3, 4), (48, 6144)):
        signature = class_of(allreduce(bound // 8), bound)
        whole = taken("exchange", algorithm, {"whole": 64})
        plan = plan_of(nodes, algorithm, signature, segment=2000, **whole)
        below = (0, *bounds)[bounds.index(bound)]
        for nbytes in (below + 8 - below % 8, bound):
            verify([plan.of_size(nbytes)] * 2)


def test_uneven_nodes_meet_in_one_exchange():
    topology = topology_of([[0, 0, 0, 1, 2, 2, 3, 4], [0] * 8], 0)
    for algorithm, schedule in product(FUSED, ("dataflow", "lockstep")):
        signature = allreduce(2000, ordered=algorithm in ORDERED)
        levels = level_choice("sm", "flat"), level_choice("exchange", algorithm)
        plan = plan_of_choice(topology, signature, Choice(levels, 4000, schedule), MEMORY)
        assert "ia" in {task.name for task in plan.tasks}
        prove(plan)


def test_groups_of_different_sizes_scatter_with_the_same_factors():
    topology = topology_of([[0, 0, 0, 0, 0, 1, 1, 2], [0] * 8], -1)
    scatter = level_choice("exchange", "scatter", factors=(-2, -2, -2, 5), segment=1000)
    for collective in ("bcast", "reduce", "allreduce"):
        root = 0 if collective == "allreduce" else 6
        signature = signature_of(collective, 16_000, root, ordered=False)
        choice = Choice((scatter, level_choice("adapt", "chain")), 6000)
        verify([planned(topology, signature, choice, MEMORY)] * 2)


# ---- rules --------------------------------------------------------------------------------------


def test_a_rule_whose_factors_do_not_fit_is_passed_over_with_its_place_and_the_numbers(tmp_path):
    level = "{submodule: exchange, algorithm: recursive, factors: [-2, 2, 2]}"
    file = tmp_path / "rules.yaml"
    file.write_text(
        "levels: [{name: level0, scope: shared_memory}, {name: network, scope: all}]\n"
        "rules:\n"
        "  - when: {collective: allreduce}\n"
        f"    use: {{levels: {{network: {level}}}}}\n"
    )
    config = validate_names(load_config(file, {}))
    topology = topology_of([[0, 0, 1, 2, 3, 4], [0] * 6], 0)
    decision = RuleTable(config, topology, NodeTraits()).decide(allreduce(1000))
    ((rule, reason),) = decision.passed
    assert rule == f"rules[0] of {file}:3"
    assert "network: exchange: factors: -2x2x2 bring 4 members together, not the 5" in reason
    ordered = RuleTable(config, topology, NodeTraits()).decide(allreduce(8, ordered=True))
    assert "-2x2x2 bring 4 members together, not the 5 of the level" in ordered.passed[0][1]


def test_operands_that_do_not_commute_keep_their_order_or_are_refused():
    topology = topology_of([[0] * 6], -1)
    table = rules_of(topology)
    for algorithm in FUSED:
        choice = Choice((level_choice("exchange", algorithm),))
        reason = table.objection(allreduce(100, ordered=True), choice)
        refused = f"{algorithm} does not keep the order of operands, which matrix product needs"
        assert reason is None if algorithm in ORDERED else refused in reason
