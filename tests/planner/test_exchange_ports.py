"""Factors that follow from a number of ports (Jocksch et al., section 2.1.3)."""

from __future__ import annotations

from math import prod

import pytest
from machines import topology_of
from test_exchange import objection, plan_of
from test_exchange_halves import planned, signature_of

from han.submodules.exchange.factors import cyclic_factors, most_of, primes, recursive_factors
from han.submodules.exchange.patterns import message_steps
from han.tasks.choice import Choice, level_choice
from han.tasks.verify import verify


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
