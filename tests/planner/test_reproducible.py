"""Reproducible reductions: one expression for any machine, cut and algorithm; all else is refused.

The verifier holds every result against the canonical expression, which depends on the ranks alone.
So plans that it accepts give the same bits. HAN_TEST_EXAMPLES=10 makes the sweep ten times as long.
"""

import os
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import PLACEMENTS, topology_of
from plans import rules_of
from random_plans import TARGETS, draw_plan, draw_topology

from han.config.config import load_config
from han.model.collectives import REDUCING
from han.model.splits import blocks
from han.submodules.names import validate_names
from han.submodules.parts.fold import fold
from han.submodules.registry import plan_of_choice, registered
from han.tasks.call import call_signature
from han.tasks.canonical import canonical, depths, linear, matters, rooms
from han.tasks.choice import Choice, level_choice
from han.tasks.signature import Signature
from han.tasks.verify import Refuted, verify
from han.tasks.verify.expressions import Expressions
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.planner import Planner
from han.tuning.rules import RuleTable
from han.tuning.search.space import space_of

SUM = Signature("allreduce", 1000, 8, "sum", "float64", canonical=True)
EACH = max(1, round(3 * float(os.environ.get("HAN_TEST_EXAMPLES", "1"))))
SERVING = {
    (name, algorithm)
    for name, part in registered().items()
    for algorithm, row in part.algorithms.items()
    if row.canonical
}


def by_definition(first: int, width: int, size: int) -> object:
    """Return the expression of a block of ranks as nested pairs; None without ranks."""
    if first >= size or width == 1:
        return first if first < size else None
    left, right = (by_definition(at, width // 2, size) for at in (first, first + width // 2))
    return left if right is None else (left, right)


class Pairs:
    """A stream that combines Python objects: places are keys."""

    def __init__(self, operands):
        self.held = dict(operands)

    def reduce(self, dst, a, b, nbytes, also=None, block=None):
        self.held[dst] = self.held[a], self.held[b]

    def copy(self, dst, src, nbytes, block=None):
        self.held[dst] = self.held[src]


@st.composite
def domains(draw):
    size = draw(st.integers(1, 70))
    width = draw(st.integers(1, 5))
    own = draw(st.lists(st.integers(0, width - 1), min_size=size, max_size=size))
    return sorted(own) if draw(st.booleans()) else own


@given(domains())
def test_blocks_combine_as_the_ranks_do(own):
    """Parts of a node that are whole blocks, combined canonically, give the canonical result."""
    size, found = len(own), blocks(own)
    width = 1 << (size - 1).bit_length()
    wanted = by_definition(0, width, size)
    inner = {}
    for start in sorted(set(found)):
        ranks = [r for r in range(size) if found[r] == start]
        assert len({own[r] for r in ranks}) == 1, "a part is inside a domain"
        inner[start] = folded(canonical(tuple(ranks)), ranks)
    starts = tuple(inner)
    assert folded(canonical(starts), [inner[start] for start in starts]) == wanted
    assert Expressions(size).canonical(tuple(range(size))) == folded_number(size, wanted)


def folded(order, values):
    """Return what `fold` makes of some values."""
    stream = Pairs(("operand", k) for k in ())
    stream.held = {("operand", k): value for k, value in enumerate(values)}
    partials = [("room", k) for k in range(rooms(order))]
    fold(stream, order, list(stream.held), 8, "result", partials)
    assert len(order) == len(depths(order))
    assert depths(order)[0] == 0
    return stream.held["result"]


def folded_number(size, expression):
    """Return the verifier's number of an expression, in numbers that begin anew."""
    numbers = Expressions(size)

    def number(one):
        return one if isinstance(one, int) else numbers.combine(*map(number, one))

    return number(expression)


@given(domains())
def test_parts_of_a_domain_are_as_large_as_they_can_be(own):
    found, size = blocks(own), len(own)
    for start in set(found):
        stop = found.index(start) + found.count(start)
        width = 1 << (stop - start - 1).bit_length()
        above = start // (2 * width) * 2 * width
        ranks = range(above, min(above + 2 * width, size))
        assert len({own[r] for r in ranks}) > 1 or len(ranks) == stop - start


def test_the_linear_order_is_a_stack_of_one_partial_result():
    assert folded(linear(4), [0, 1, 2, 3]) == (((0, 1), 2), 3)
    assert (rooms(linear(2)), rooms(linear(9)), depths(linear(4))) == (0, 1, (0, 1, 1, 1))
    assert folded(canonical((0,)), ["alone"]) == "alone"


def test_which_reductions_depend_on_the_order():
    exact = [
        ("sum", "int32"),
        ("max", "uint8"),
        ("band", "byte"),
        ("lor", "bool"),
        ("min", "int64"),
    ]
    for op, dtype in exact:
        assert not matters(Signature("allreduce", 1, 8, op, dtype)), (op, dtype)
    for op, dtype in (("sum", "float64"), ("max", "float32"), ("prod", "complex64")):
        assert matters(Signature("allreduce", 1, 8, op, dtype)), (op, dtype)
    assert matters(Signature("reduce", 1, 8, "user-defined", "int32", native=False))
    assert not matters(Signature("bcast", 8))
    assert not matters(Signature("barrier"))


@pytest.mark.slow
def test_every_machine_cut_and_algorithm_has_the_canonical_expression():
    """Each algorithm that serves has its turns, others are refused on all machines."""
    proved, refused = Counter(), Counter()
    for target in (one for one in TARGETS if one.collective in REDUCING):
        served = (target.submodule, target.algorithm) in SERVING
        for number in range(EACH if served else 1):
            draw = Random(f"{target} {number}")
            for _ in range(40 if served else 2):
                topology = draw_topology(draw)
                plan = draw_plan(draw, topology, 1 << 20, target, refused, canonical=True)
                if plan is None:
                    continue
                assert plan.signature.canonical
                try:
                    verify([plan, plan])
                except Refuted as problem:
                    pytest.fail(f"{target} {number}, {topology.homes}, {plan.choice}: {problem}")
                for level in plan.levels:
                    for one in plan.choice.levels[level].each:
                        proved[one.submodule, one.algorithm, target.collective] += 1
                break
    for name, algorithm in SERVING:
        assert any(key[:2] == (name, algorithm) for key in proved), f"{name} {algorithm}: no turn"


@pytest.mark.parametrize("collective", ["allreduce", "reduce"])
def test_the_built_in_choice_serves_all_placements(collective):
    for name, nodes in PLACEMENTS.items():
        topology = replace(topology_of([nodes, [0] * 8], 0), attach=True)
        for nbytes in (8, 8000, 400_000):
            table = RuleTable(load_config({"reproducible": True}), topology, NodeTraits())
            wanted = call_signature(collective, nbytes, root=3)
            signature = table.called(wanted)
            assert signature.canonical
            assert not wanted.canonical
            choice = table.decide(wanted).choice
            plan = plan_of_choice(topology, signature, choice, 1 << 20)
            report = verify([plan, plan], in_place=True)
            assert "in the canonical order" in str(report), name


OTHERS = [
    level_choice("sm", "knomial", radix=4),
    level_choice("sm", "knomial", radix=2, skew="right"),
    level_choice("sm", "kary", radix=2),
    level_choice("adapt", "chain"),
    level_choice("adapt", "binary"),
    level_choice("exchange", "cyclic"),
    level_choice("exchange", "ring"),
]


def test_the_verifier_refutes_other_orders():
    """The check looks at programs, so it does not rely on what algorithms say of themselves."""
    topology = topology_of([[0] * 7, [0] * 7], 0)
    for level in OTHERS:
        plan = plan_of_choice(topology, SUM, Choice((level, level)), 1 << 20)
        table = rules_of(topology)
        assert "another order" in str(table.objection(SUM, Choice((level, level))))
        with pytest.raises(Refuted, match="reproducible results are combined") as caught:
            verify([plan])
        assert "(((0 1) (2 3)) ((4 5) 6))" in str(caught.value)


def table_of(nodes, **config):
    loaded = validate_names(load_config(config))
    return RuleTable(loaded, topology_of([nodes, [0] * len(nodes)], 0), NodeTraits())


def test_rules_that_would_change_the_order_are_passed_over_with_the_reason():
    rules = [
        {"use": {"composition": "ring"}},
        {"use": {"composition": "nap", "segment": "whole"}},
        {"use": {"levels": {"network": {"submodule": "exchange", "algorithm": "cyclic"}}}},
        {"use": {"levels": {"network": {"submodule": "libnbc"}}}},
        {"use": {"levels": {"network": {"submodule": "adapt", "order": "arrival"}}}},
        {"use": {"levels": {"node": {"submodule": "sm", "algorithm": "kary"}}}},
        {"use": {"levels": {"network": {
            "submodule": "exchange", "algorithm": "recursive", "factors": [3]}}}},
    ]  # fmt: skip
    levels = [{"name": "node", "scope": "shared_memory"}, {"name": "network", "scope": "all"}]
    loaded = validate_names(load_config({"levels": levels, "rules": rules}))
    nodes = [0, 0, 1, 1, 2, 2]
    topology = replace(topology_of([nodes, [0] * 6], 0), names=("node", "network"))
    for canonical_call in (False, True):
        decision = RuleTable(loaded, topology, NodeTraits()).decide(
            replace(SUM, canonical=canonical_call)
        )
        if not canonical_call:
            assert decision.choice.composition == "ring"
            assert not decision.passed
            continue
        assert decision.choice.rule.startswith("rules[6]"), "three members at once are a block"
        assert len(decision.passed) == 6
        for rule, reason in decision.passed:
            assert "another order than the canonical one" in reason, (rule, reason)


@pytest.mark.parametrize(
    ("nodes", "three"),
    [
        ([0, 0, 1, 1, 2, 2], True),
        ([0, 0, 0, 0, 1, 1, 1, 1, 2], True),  # the last node has less
        ([0, 1, 2], True),
        ([0, 0, 0, 1, 1, 1, 2, 2, 2], False),  # ranks 2 and 3 are a block of two nodes
        ([0, 1, 2, 0, 1, 2], False),
    ],
)
@pytest.mark.parametrize("collective", ["allreduce", "reduce"])
def test_three_blocks_of_ranks_exchange_all_at_once(nodes, three, collective):
    table = table_of(nodes, reproducible=True)
    for nbytes in (8, 32 << 10, (32 << 10) + 8, 1 << 18):
        signature = table.called(call_signature(collective, nbytes))
        choice = table.decide(signature).choice
        exchanges = three and collective == "allreduce" and nbytes >= 32 << 10
        assert (choice.levels[-1].algorithm == "recursive") == exchanges, choice
        verify([plan_of_choice(table.topology, signature, choice, 1 << 20)])


def test_the_first_rule_that_says_something_decides_whatever_runs():
    nodes, big, call = [0, 0, 1, 1], {"bytes": {"min": 4096}}, call_signature("allreduce", 8000)
    small = call_signature("allreduce", 80)
    wish = [{"when": big, "use": {"reproducible": True}}, {"use": {"composition": "flat"}}]
    table = table_of(nodes, rules=wish)
    assert table.called(call).canonical
    assert not table.called(small).canonical
    assert table.decide(call).choice.rule.startswith("rules[0]")
    refused = {"use": {"composition": "ring", "reproducible": True}}
    table = table_of(nodes, rules=[refused, {"use": {"composition": "flat"}}])
    decision = table.decide(call)
    assert decision.choice.composition == "flat"
    assert table.called(call).canonical
    assert decision.passed[0][1].startswith("ring combines in another order")
    table = table_of(
        nodes, reproducible=True, rules=[{"when": big, "use": {"reproducible": False}}]
    )
    assert table.called(small).canonical
    assert not table.called(call).canonical
    assert not table.called(call_signature("allreduce", 80, dtype="i4")).canonical


@pytest.mark.parametrize("mesh", [False, True])
def test_alternatives_and_rivals_are_reproducible(mesh):
    """Trials and shared arrays choose between plans of one expression."""
    config = load_config({"reproducible": True})
    for size in (2, 4):
        topology = replace(topology_of([[0] * size, [0] * size], 1), attach=True)
        planner = Planner(topology, config, NodeTraits(mesh=mesh), 0, maps_arrays=True)
        others = 0
        for nbytes in (64, 256 << 10, 4 << 20):
            planned = planner.planned(call_signature("allreduce", nbytes))
            for plan in (planned.plan, *planned.others):
                assert plan.signature.canonical
                verify([plan.of_size(nbytes)])
            others += len(planned.others)
        assert others


def test_the_tuner_searches_among_reproducible_choices_only():
    table = table_of([0, 0, 1, 1, 1], reproducible=True)
    call, free = call_signature("allreduce", 8000), table_of([0, 0, 1, 1, 1])
    signature = table.called(call)
    found = space_of(table, call).candidates
    assert 10 < len(found) < len(space_of(free, call).candidates) / 2
    for choice in Random(1).sample(found, 10):
        verify([plan_of_choice(table.topology, signature, choice, 1 << 20)])


def test_calls_that_are_the_librarys_do_not_claim_to_be_reproducible():
    call = call_signature("reduce_scatter", 80)
    apart, together = table_of([0, 0, 1], reproducible=True), table_of([0, 0, 0], reproducible=True)
    together = replace(together, topology=topology_of([[0] * 3, [0] * 3], 1))
    assert together.called(call).canonical
    assert not apart.called(call).canonical
    assert not apart.called(replace(call_signature("reduce", 80), device=True)).canonical
