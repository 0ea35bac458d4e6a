"""Costs of stages from whole calls: calls that differ in one stage tell what it costs."""

from dataclasses import replace
from itertools import product

import pytest
from machines import topology_of

from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.choice import Choice, level_choice
from han.tuning.costs.model import (
    Costs,
    elsewhere,
    in_turn,
    is_single,
    lowered,
    missing,
    predict,
    shared_out,
    told_apart,
)
from han.tuning.costs.stages import pipeline_of
from han.tuning.measured import REACH
from han.tuning.search.task import ends_first

NODES = topology_of([[0, 0, 1, 1], [0, 0, 0, 0]], -1)
INNER = [level_choice("sm", name) for name in ("flat", "kary", "knomial")]
OUTER = [level_choice("adapt", name) for name in ("linear", "chain", "binomial")]
CHOICES = [Choice(pair) for pair in product(INNER, OUTER)]
SECONDS = dict(zip(INNER, (1.0, 3.0, 2.0), strict=True)) | dict(
    zip(OUTER, (4.0, 2.0, 7.0), strict=True)
)


def whole(choice):
    """Return what a call takes whose tasks do not overlap."""
    return sum(SECONDS[one] for one in choice.levels)


def pipeline(choice, nbytes=64):
    return pipeline_of(plan_of_choice(NODES, call_signature("bcast", nbytes), choice, 1 << 24))


def learn(choices):
    """Measure calls in an order; return their costs, and how many were measured."""
    costs, measured = Costs(), 0
    for choice in choices:
        if missing(pipeline(choice), costs):
            measured += 1
            costs.enter(shared_out(pipeline(choice), whole(choice), costs, 4))
    return costs, measured


def test_few_calls_predict_all_others_though_nothing_tells_their_stages_apart():
    costs, measured = learn(ends_first(CHOICES[::-1], CHOICES[0]))
    assert measured == len(INNER) + len(OUTER) - 1
    told = {one: predict(pipeline(one), costs) for one in CHOICES}
    assert told == pytest.approx({one: whole(one) for one in CHOICES})


def test_a_stage_that_makes_a_call_quicker_than_the_first_one_costs_nothing():
    costs, _ = learn([CHOICES[-1], Choice((INNER[0], OUTER[-1]))])
    assert predict(pipeline(Choice((INNER[0], OUTER[-1]))), costs) == whole(CHOICES[-1])


def test_calls_that_differ_from_the_usual_one_in_one_task_come_first():
    ordered = ends_first(CHOICES[::-1], CHOICES[0])
    near = [sum(a != b for a, b in zip(c.levels, CHOICES[0].levels, strict=True)) for c in ordered]
    assert near == sorted(near)
    assert near[:5] == [0, 1, 1, 1, 1]


def test_a_quicker_call_takes_its_gain_from_the_stage_that_costs_most():
    costs, _ = learn(CHOICES[:4])
    found = lowered(pipeline(CHOICES[3]), 3.0, costs, 4)
    assert [(stage.steps[0].choice, cost) for stage, cost in found.items()] == [
        (OUTER[0], pytest.approx((1.0,) * 4))
    ]
    assert lowered(pipeline(CHOICES[3]), 8.0, costs, 4) == {}


def test_a_call_of_one_segment_is_single_and_one_of_several_is_not():
    assert is_single(pipeline(CHOICES[0]))
    several = Choice(CHOICES[0].levels, 16 << 10)
    assert not is_single(pipeline(several, 64 << 10))


def test_costs_of_calls_of_several_segments_do_not_stand_for_those_of_one():
    single = told_apart(pipeline(CHOICES[0], 16 << 10))
    several = told_apart(pipeline(Choice(CHOICES[0].levels, 16 << 10), 64 << 10))
    assert (single.alone, several.alone) == (True, False)
    costs = Costs({stage: (1.0,) * 4 for stage, _ in several.stages()})
    assert predict(single, costs) is None
    assert missing(pipeline(CHOICES[0], 16 << 10), costs) == [], "they would, with one key"


ALONE = topology_of([[0, 0], [0, 0]], -1)


def allreduce(levels, topology):
    call = call_signature("allreduce", 64)
    return told_apart(pipeline_of(plan_of_choice(topology, call, Choice(levels), 1 << 24)))


def test_calls_of_each_kind_of_tasks_tell_about_what_one_takes_that_has_both():
    levels = (level_choice("adapt", "binomial"), OUTER[0])
    both = allreduce(levels, ALONE)
    assert in_turn(both, Costs()) is None
    costs = Costs()
    for collective, seconds in (("bcast", 2.0), ("reduce", 3.0)):
        call = call_signature(collective, 64)
        one = told_apart(pipeline_of(plan_of_choice(ALONE, call, Choice(levels), 1 << 24)))
        costs.enter({stage: (seconds,) * 2 for stage, _ in one.stages()})
    assert in_turn(both, costs) == 5.0
    assert predict(both, costs) is None, "in turn they take longer or shorter than together"
    several = allreduce(levels, NODES)
    known = Costs({stage: (1.0,) * 4 for stage, _ in replace(several, alone=False).stages()})
    assert in_turn(several, known) is None, "costs of pipelines have these keys"


def test_what_is_slow_in_messages_of_another_size_is_told_without_a_measurement():
    def call(name, nbytes):
        choice = Choice((level_choice("adapt", name), OUTER[0]))
        made = plan_of_choice(ALONE, call_signature("bcast", nbytes), choice, 1 << 24)
        return told_apart(pipeline_of(made))

    slow, fast = call("chain", 1024), call("binomial", 1024)
    assert elsewhere(slow, fast, Costs()) is None
    costs = Costs({call("chain", 128).stages()[0][0]: (6.0,) * 2})
    assert elsewhere(slow, fast, costs) is None
    costs.add(call("binomial", 128).stages()[0][0], (2.0,) * 2)
    assert elsewhere(slow, fast, costs) == 3.0
    far = call("chain", 128 * REACH + 8), call("binomial", 128 * REACH + 8)
    assert elsewhere(*far, costs) is None, "too far to tell"
