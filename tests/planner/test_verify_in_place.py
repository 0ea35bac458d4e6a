"""One proof for reductions in place and with two buffers: what it says holds."""

from dataclasses import replace
from random import Random

import pytest
from random_plans import example

from han.model.program import Base, Code
from han.model.topology import virtual
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.verify import Refuted, lower_all, verify

SUM = Signature("allreduce", 8, 8, "sum", "f8")


def one_rank():
    """Return a plan of one rank, which copies its operand, and its programs for two runs."""
    plan = plan_of_choice(virtual(1), SUM, Choice((level_choice("sm", "knomial"),)), 1 << 16)
    return [plan] * 2, [[replace(p, code=p.code.copy())] for p in [lower(plan, 0)] * 2]


def test_proofs_in_place_hold_for_two_buffers():
    """Those of scans do not: in place, the operand of rank 0 is its result, or stays there."""
    proved = 0
    for number in range(200):
        plans = example(number).plans
        calls = [plan.signature for plan in plans]
        if all(call.reduces and not call.prefix for call in calls):
            assert verify(plans, in_place=True).apart, number
            assert verify(plans).events
            proved += 1
    assert proved > 9


def test_a_result_that_is_there_in_place_has_to_be_copied_from_another_buffer():
    plans, programs = one_rank()
    assert verify(plans, in_place=True, programs=programs).apart
    programs[1][0].code["n"] = 0
    assert not verify(plans, in_place=True, programs=programs).apart
    with pytest.raises(Refuted, match="never written"):
        verify(plans, programs=programs)


def test_nothing_is_written_to_a_send_buffer():
    plans, programs = one_rank()
    programs[1][0].code["base"][:, 0] = Base.SEND
    assert not verify(plans, in_place=True, programs=programs).apart
    with pytest.raises(Refuted, match="a write into the send buffer"):
        verify(plans, programs=programs)


def outcome(plans, programs, in_place):
    try:
        return verify(plans, in_place=in_place, programs=programs).apart
    except Refuted:
        return None


def test_programs_with_a_mistake_are_told_apart():
    """Where a proof in place says that it holds for two buffers, a proof of its own agrees."""
    draw, found = Random(1), set()
    for number in range(250):
        plans = example(number).plans[:2]
        if not all(plan.signature.reduces for plan in plans):
            continue
        programs = [[replace(p, code=p.code.copy()) for p in ps] for ps in lower_all(plans)]
        code = draw.choice([p.code for ps in programs for p in ps if len(p.code)] or [None])
        if code is None:
            continue
        row = code[draw.randrange(len(code))]
        match draw.randrange(3):
            case 0:
                row["code"], row["n"] = Code.COPY, 0
            case 1:
                row["base"][row["base"] == Base.SEND] = Base.RECV
            case _:
                row["base"][row["base"] == Base.RECV] = Base.SEND
        one, two = (outcome(plans, programs, form) for form in (True, False))
        assert not one or two is not None, number
        found.add((one, two is not None))
    assert {(True, True), (None, False), (False, False)} <= found
