"""Exchanges that follow sockets: first within groups of members, then between these."""

from __future__ import annotations

from itertools import product

import pytest
from machines import taken, topology_of
from test_exchange import objection, plan_of
from test_exchange_halves import planned, signature_of

from han.config.config import load_config, validate_names
from han.submodules.catalogue import catalogue
from han.submodules.exchange.patterns import pattern_of
from han.tasks.choice import Choice, level_choice
from han.tasks.verify import verify
from han.tuning.imagined import ImaginedMachine

KiB = 1024


def pattern(members, inner, algorithm="cyclic"):
    return pattern_of(level_choice("exchange", algorithm, inner=inner), members, whole=False)


def crossing(one, inner, members):
    """Return how many blocks of `members` a message move between groups, in all steps."""
    apart = [
        len(blocks)
        for stage in range(1, one.stages + 1)
        for m in range(members)
        for blocks, sources in one.folds(m, stage)
        for p, _ in sources
        if p // inner != m // inner
    ]
    taken = [
        len(blocks)
        for step in range(1, one.gathers + 1)
        for m in range(members)
        for p, blocks in one.takes(m, step)
        if p // inner != m // inner
    ]
    return sum(apart) + sum(taken)


def test_only_what_a_whole_group_has_combined_moves_between_groups():
    """Each of two groups of seven combines half of the message of the other one, and takes half."""
    nested, flat = pattern(14, 7), pattern(14, 0)
    assert crossing(nested, 7, 14) == 2 * 14
    assert crossing(flat, 7, 14) > 3 * crossing(nested, 7, 14)


def test_recursive_factors_follow_the_groups():
    assert pattern(12, 6, "recursive").scatter == (3, 2, 2)
    assert pattern(12, 0, "recursive").scatter == (4, 3)
    assert pattern(12, 12, "recursive").scatter == (4, 3)
    assert pattern(12, 6, "recursive").gather == (2, 2, 3)


@pytest.mark.parametrize("algorithm", ["cyclic", "recursive", "tree"])
def test_nested_exchanges_are_proved(algorithm):
    for (members, inner), nbytes, writes in product(
        [(6, 3), (14, 7), (12, 4), (8, 2)], (0, 8, 1000, 40_000), (False, True)
    ):
        more = taken("exchange", algorithm, {"writes": writes, "chunk": 8 * KiB})
        plan = plan_of(members, algorithm, nbytes, inner=inner, **more)
        for in_place in (False, True):
            verify([plan] * 2, in_place=in_place)


def test_messages_between_switches_nest_too():
    signature = signature_of("allreduce", 10_000, ordered=False)
    for algorithm in ("cyclic", "recursive"):
        choice = Choice((level_choice("exchange", algorithm, inner=3),))
        plan = planned(topology_of([[0] * 6], -1), signature, choice)
        verify([plan] * 2)


def test_groups_that_do_not_fit_are_refused():
    assert "7 members are not groups of 3" in objection(7, "cyclic", inner=3)
    assert "7 members are not groups of 3" in objection(7, "recursive", shared=-1, inner=3)
    assert "leave one of them out" in objection(8, "recursive", inner=4, factors=(-8, 8))
    assert objection(7, "cyclic", inner=16) is None
    assert "copyin does not take inner" in objection(7, "copyin", inner=3)


def test_the_ready_configuration_for_sockets_of_a_node():
    config = validate_names(load_config("exchange-two-sockets", {}), catalogue())
    for ppn, inner in ((128, 64), (14, 7), (8, 4)):
        signature = signature_of("allreduce", 8 * KiB, ordered=False)
        plan, decision = ImaginedMachine.even(ppn, ppn).plan(config, signature)
        assert decision.choice.rule.startswith("rules["), str(decision)
        assert dict(plan.choice.levels[0].parameters)["inner"] == inner
        if ppn < 128:
            verify([plan] * 2)
