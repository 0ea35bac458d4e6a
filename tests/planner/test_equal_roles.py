"""Programs of ranks with equal roles are those that each rank lowers by itself."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import topology_of
from strategies import choices, signatures, topologies

from han.submodules.registry import registered
from han.tasks.choice import Choice, level_choice
from han.tasks.equal_roles import roles
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tuning.parts import plan_of_choice

MEMORY = 1 << 18


def differs(one, other):
    """Return the fields in which two programs differ."""
    pairs = {f.name: (getattr(one, f.name), getattr(other, f.name)) for f in fields(one)}
    same = {
        name: np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for name, (a, b) in pairs.items()
    }
    return [name for name, equal in same.items() if not equal]


def check(plan):
    """Compare all programs; return how many were lowered."""
    found = list(roles(plan))
    assert [one.rank for one in found] == list(range(plan.topology.size))
    for one in found:
        assert not differs(one.program, lower(plan, one.rank)), one.rank
    return len({id(one.first) for one in found})


def nodes(count, ppn, sockets=0):
    places = [[k // ppn for k in range(count * ppn)], [0] * (count * ppn)]
    if sockets:
        places.insert(0, [k // sockets for k in range(count * ppn)])
    return topology_of(places, len(places) - 2)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_programs_of_equal_roles_are_those_that_ranks_lower(data):
    topology = data.draw(topologies(st.integers(1, 24)))
    signature = data.draw(signatures(topology.size))
    choice = data.draw(choices(topology, signature))
    check(plan_of_choice(topology, signature, choice, MEMORY))


@pytest.mark.parametrize("collective", ["bcast", "reduce", "allreduce"])
@pytest.mark.parametrize("inner", [("sm", "flat"), ("sm", "knomial"), ("adapt", "chain")], ids=str)
@pytest.mark.parametrize("root", [0, 6])
def test_ranks_that_lead_nothing_share_programs(collective, inner, root):
    if collective == "allreduce":
        root = 0
    reduces = collective != "bcast"
    signature = Signature(collective, 300, 8 if reduces else 1, "sum" * reduces, "f8", root=root)
    choice = Choice((level_choice(*inner), level_choice("adapt", "binomial")), 800)
    lowered = check(plan_of_choice(nodes(6, 4), signature, choice, MEMORY))
    # one of each node leads; of the others three places, and three more beside another root
    assert lowered <= 6 + 3 + 3


def test_ranks_of_sockets_share_programs():
    signature = Signature("allreduce", 300, 8, "sum", "f8")
    inner = level_choice("sm", "flat")
    choice = Choice((inner, inner, level_choice("exchange", "halving")))
    assert check(plan_of_choice(nodes(4, 8, 4), signature, choice, MEMORY)) <= 4 + 1 + 3


def test_uneven_nodes_have_roles_of_their_own():
    topology = topology_of([[0, 0, 0, 1, 1, 2, 2, 2], [0] * 8], 0)
    signature = Signature("allreduce", 300, 8, "sum", "f8")
    choice = Choice((level_choice("sm", "flat"), level_choice("adapt", "binomial")))
    assert check(plan_of_choice(topology, signature, choice, MEMORY)) == 3 + 2 + 1


def test_submodules_say_whether_programs_follow_from_places():
    found = registered()
    assert all(found[name].by_place for name in ("sm", "adapt", "exchange"))
    assert not any(found[name].by_place for name in ("solo", "mpi", "libnbc", "nap"))


def test_a_request_that_receives_and_then_sends_has_no_peer_in_its_second_test():
    topology = replace(topology_of([[0] * 13 + [1] * 5, [0] * 18], 0), attach=False)
    signature = Signature("bcast", 0, 1, root=0)
    inner, outer = level_choice("exchange", "scatter"), level_choice("adapt", "binomial")
    check(plan_of_choice(topology, signature, Choice((inner, outer)), MEMORY))
