"""Trials: what a tuned table's decision is compared with, and when first."""

from dataclasses import replace

import pytest
from machines import topology_of

from han.config import load_config
from han.config.rules import LevelUse, Use
from han.ranks.machine import fingerprint
from han.runtime.native_plans import trial_class
from han.tasks.call import call_signature
from han.tuning.built_in.choosing import BUILT_IN, NodeTraits
from han.tuning.costs.estimates import Estimate
from han.tuning.measured import LEAST_BURST, MOST_BEFORE_TRIAL, MOST_BURST, UNKNOWN_RATIO
from han.tuning.planner import Planner
from han.tuning.rules import TUNED
from han.tuning.trials import burst_of, first_trial
from han.tuning.tuned.files import as_text, read
from han.tuning.tuned.points import Candidate, Point, key_of
from han.tuning.tuned.table import of_points, with_points

NODES = topology_of([[0, 0, 1, 1], [0] * 4], 0)
CHAIN, BINARY, CANONICAL = (
    Use("whole", "dataflow", {NODES.names[-1]: LevelUse("adapt", name, {"segment": 8192})})
    for name in ("chain", "binary", "by_rank")
)
SIZE = 4096


def timing(us):
    return Estimate(us * 1e-6, us * 0.9e-6, us * 1.1e-6, 14)


def call(collective="allreduce", **more):
    return replace(call_signature(collective, SIZE, dtype="i8"), **more)


def table(keeps=False, best=CHAIN, built_in=20.0):
    found = tuple(Candidate(use, timing(us)) for use, us in ((best, 10.0), (BINARY, 30.0)))
    points = [
        Point(key_of(call(name), NODES), SIZE, keeps, found, timing(built_in))
        for name in ("bcast", "reduce", "allreduce")
    ]
    return of_points(tuple(points), fingerprint())


def planned(tuned, signature=None, topology=NODES, **config):
    planner = Planner(topology, load_config(config), NodeTraits(), 0, True, tuned)
    return planner.planned(signature or call())


def algorithm(plan):
    return plan.choice.levels[-1].algorithm


def test_a_tuned_choice_is_compared_with_the_built_in_one():
    found = planned(table())
    assert found.decision.choice.rule == TUNED
    assert found.rival.choice.rule == BUILT_IN
    assert found.rival.choice.levels == planned(None).decision.choice.levels
    assert found.talks


@pytest.mark.parametrize("collective", ["bcast", "reduce"])
def test_ranks_that_run_ahead_of_each_other_meet_before_and_after_a_burst(collective):
    found = planned(table(), call(collective))
    assert found.decision.choice.rule == TUNED
    assert found.rival.choice.rule == BUILT_IN
    assert burst_of(call()) == 0
    assert burst_of(call(collective)) == MOST_BURST
    assert burst_of(replace(call(collective), count=1 << 20)) == LEAST_BURST
    twice = (timing(10.0), timing(20.0))
    assert found.first == first_trial(twice, MOST_BURST) == 100 * (MOST_BURST + 4 * 3)


def test_a_built_in_choice_that_a_table_keeps_is_compared_with_the_runner_up():
    found = planned(table(keeps=True, built_in=5.0))
    assert found.decision.choice.rule == BUILT_IN
    assert algorithm(found.rival) == "chain"


def test_calls_of_which_nobody_knows_what_to_try_have_no_rival():
    for tuned, signature, config in (
        (None, call(), {}),
        (table(), call(), {"trials": False}),
        (table(), call(), {"rules": [{"use": {"segment": "1KiB"}}]}),
        (with_points(table(), ()), call(), {}),
    ):
        found = planned(tuned, signature, **config)
        assert found.rival is None


def test_a_sum_whose_bits_depend_on_the_order_is_not_tried_unless_it_is_reproducible():
    floating = call_signature("allreduce", SIZE, dtype="f8")
    assert planned(table(), floating).decision.choice.rule == TUNED
    assert planned(table(), floating).rival is None
    found = planned(table(True, CANONICAL), floating, reproducible=True)
    assert found.decision.choice.rule == BUILT_IN
    assert found.rival is not None
    assert found.plan.signature.canonical
    assert found.rival.signature.canonical


def test_the_first_trial_costs_a_hundredth_if_the_table_is_right():
    assert planned(table(built_in=10.0)).first == 200
    assert planned(table(built_in=20.0)).first == 700
    assert planned(table(keeps=True, built_in=5.0)).first == 700
    assert first_trial(None) == first_trial((timing(1), timing(UNKNOWN_RATIO)))
    assert first_trial((timing(10), timing(1))) == 111
    assert first_trial((timing(1), timing(1e9))) == MOST_BEFORE_TRIAL


def test_a_table_of_rows_is_compared_with_the_built_in_choice(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(as_text(table()))
    found = planned(read(path))
    assert found.rival.choice.rule == BUILT_IN
    assert found.first == 700


def test_a_class_of_trials_is_a_call_with_two_plans():
    numbers = {
        trial_class(planned(tuned, signature))
        for tuned in (table(), table(keeps=True))
        for signature in (call(), call_signature("allreduce", SIZE, dtype="i4"))
    }
    assert len(numbers) == 4
    assert 0 not in numbers
    assert trial_class(planned(table())) == trial_class(planned(table()))
