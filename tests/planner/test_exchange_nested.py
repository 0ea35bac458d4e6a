"""Exchanges within groups of members and between these, and factors that follow from ports."""

from itertools import product
from math import prod

import pytest
from machines import taken, topology_of
from plans import planned, prove
from test_exchange import objection, plan_of
from test_exchange_halves import signature_of

from han.config.config import load_config
from han.submodules.exchange.patterns import message_steps, pattern_of
from han.submodules.names import validate_names
from han.submodules.parts.factors import cyclic_factors, most_of, primes, recursive_factors
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
        prove(plan)


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
    config = validate_names(load_config("exchange-two-sockets", {}))
    for ppn, inner in ((128, 64), (14, 7), (8, 4)):
        signature = signature_of("allreduce", 8 * KiB, ordered=False)
        plan, decision = ImaginedMachine.even(ppn, ppn).plan(config, signature)
        assert decision.choice.rule.startswith("rules["), str(decision)
        assert dict(plan.choice.levels[0].parameters)["inner"] == inner
        if ppn < 128:
            verify([plan] * 2)


# ---- ports ---------------------------------------------------------------------------------------


def steps(algorithm, members, ports):
    return message_steps(level_choice("exchange", algorithm, ports=ports), members, 1 << 20)


def test_each_factor_is_the_number_of_ports_plus_one():
    for ports in range(1, 8):
        for power in (1, 2, 3):
            members = (ports + 1) ** power
            assert cyclic_factors(members, most_of(ports)) == (ports + 1,) * power
    assert recursive_factors(64, most_of(1)) == (2,) * 6
    assert recursive_factors(64, most_of(3)) == recursive_factors(64) == (4, 4, 4)
    assert recursive_factors(64, most_of(7)) == (8, 8)
    assert recursive_factors(64, most_of(63)) == (64,)
    assert [cyclic_factors(8, most_of(p)) for p in (1, 2, 7)] == [(2, 2, 2), (3, 3), (8,)]


def test_factors_exceed_the_ports_only_where_a_prime_does():
    for members in range(2, 200):
        for ports in (1, 2, 3, 5, 7, 15):
            factors = recursive_factors(members, most_of(ports))
            assert prod(factors) == members
            assert all(f <= ports + 1 or f in primes(members) for f in factors)
            assert max(cyclic_factors(members, most_of(ports))) <= ports + 1


@pytest.mark.parametrize("algorithm", ["recursive", "cyclic"])
def test_no_more_messages_are_under_way_than_ports(algorithm):
    for ports in (1, 2, 3, 7):
        one = steps(algorithm, 16 if algorithm == "recursive" else 15, ports)
        for member in range(one.size):
            for stage in range(1, one.stages + 1):
                assert len(one.readers(member, stage)) <= ports
            for step in range(1, one.gathers + 1):
                assert len(one.takers(member, step)) <= ports


def test_ports_and_factors_exclude_each_other():
    assert "leave one of them out" in objection(8, "recursive", ports=1, factors=(-8, 8))
    assert "copyin does not take ports" in objection(8, "copyin", ports=1, factors=(8,))


def test_exchanges_with_any_number_of_ports_are_proved():
    for algorithm in ("recursive", "cyclic", "tree"):
        for members, ports in ((8, 1), (12, 7), (7, 2)):
            verify([plan_of(members, algorithm, 40_000, ports=ports)] * 2)
    for collective in ("bcast", "reduce"):
        choice = Choice((level_choice("exchange", "scatter", ports=1),))
        signature = signature_of(collective, 40_000, ordered=False)
        verify([planned(topology_of([[0] * 7], -1), signature, choice)] * 2)


def test_groups_of_members_have_factors_for_the_ports_too():
    choice = level_choice("exchange", "recursive", ports=1, inner=8)
    assert message_steps(choice, 32, 1 << 20).scatter == (2, 2, 2, 2, 2)
