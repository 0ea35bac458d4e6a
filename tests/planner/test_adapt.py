"""The trees of ``adapt``: order of operands, the fixed expression, branches, accumulation."""

from dataclasses import replace

import numpy as np
import pytest
from machines import topology_of
from plans import rules_of

from han.model.opcodes import Code
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.verify import Refuted, verify
from han.tasks.verify.verifier import lower_all

SUM = Signature("reduce", 600, 8, "MPI.SUM", "f8")


def plan_of(signature, size=6, algorithm="linear", **parameters):
    level = level_choice("adapt", algorithm, segment=512, **parameters)
    return plan_of_choice(topology_of([[0] * size], -1), signature, Choice((level,)), 1 << 20)


@pytest.mark.parametrize("collective", ["bcast", "reduce"])
def test_each_child_has_a_branch(collective):
    program = lower(plan_of(replace(SUM, collective=collective), window=2), 0)
    assert [s.name for s in program.streams[1:]] == [f"{collective}@network/{k}" for k in range(5)]


def test_branches_fit_into_a_program():
    program = lower(plan_of(SUM, 100, window=2, order="arrival"), 0)
    assert len(program.streams) == 32


@pytest.mark.parametrize("algorithm", ["linear", "binary", "binomial", "by_rank"])
def test_accumulation_in_any_order_is_proved(algorithm):
    plan = plan_of(SUM, algorithm=algorithm, order="arrival")
    verify([plan] * 3)
    verify([plan], in_place=True)
    assert Code.ACCUMULATE in lower(plan, 0).code["code"]


def test_a_result_is_not_sent_before_all_have_been_accumulated():
    plan = plan_of(SUM, 8, "binomial", order="arrival")
    programs = lower_all([plan])
    program = programs[0][4]  # it has a parent and two children
    waits = np.flatnonzero(program.code["code"] == Code.AWAIT)
    waits = waits[waits < program.streams[0].stop]
    peers = program.code["peer"][waits]
    program.code["n"][waits] = [program.streams[peer].start for peer in peers]
    with pytest.raises(Refuted, match=r"not complete|not ordered after its write|never written"):
        verify([plan], programs=programs)


def test_operands_that_do_not_commute_are_not_accumulated():
    plan = plan_of(replace(SUM, commutative=False), algorithm="linear", order="arrival")
    with pytest.raises(Refuted, match="do not commute"):
        verify([plan])


def refused(collective, **kinds):
    signature = Signature(collective, 100)
    if collective == "allreduce":
        signature = replace(SUM, collective=collective)
    level = level_choice("adapt", "binomial", order="arrival")
    for kind, own in kinds.items():
        level = level.where(kind, own)
    table = rules_of(topology_of([[0] * 6], -1))
    return table.objection(signature, Choice((level,)))


def test_an_order_of_arrival_is_refused_for_broadcasts():
    """Alone it would be ignored: a user should hear of it."""
    reason = "network: adapt: order: arrival is for reductions: a broadcast combines nothing"
    assert refused("bcast") == reason
    assert refused("allreduce", bcast=level_choice("adapt", "chain", order="arrival")) == reason
    assert refused("allreduce", reduce=level_choice("adapt", "chain")) == reason
    assert refused("allreduce", bcast=level_choice("adapt", "chain")) is None
    assert refused("allreduce") is None
    assert refused("barrier") is None
