"""Tables answer for other numbers of nodes and ranks than those measured."""

import json
from dataclasses import replace

import pytest
from simulated_tuner import HERE, ShapeLab, answering, regrets, steady, tuned_on

from han.cli.imagined import explanation_record
from han.config.config import Config
from han.config.rules import LevelUse, Use
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.explanation import Explanation, described
from han.tuning.prediction import Where
from han.tuning.rules import RuleTable
from han.tuning.search.limits import Limits
from han.tuning.search.portfolio import Case, Grid
from han.tuning.shapes.costs import MOST, chosen_costs, usable
from han.tuning.shapes.machine import fitted
from han.tuning.shapes.rows import grid_of, measured_shapes
from han.tuning.shapes.worth import worth_a_run
from han.tuning.tuned.files import TunedError, as_text, merged, parse
from han.tuning.tuned.table import with_points
from han.tuning.tuned.tasks import TaskCost, joined

KiB = 1024
SIZES = (8, 64 * KiB)
LIMITS = Limits(
    submodules=("sm", "adapt", "exchange", "nap", "ring"), segments=(16 * KiB, 64 * KiB),
    algorithms=("flat", "shares", "chain", "binomial", "linear", "recursive_doubling", "halving",
                "pairs", "pieces", "direct", "scatter"),
    schedules=("dataflow",), compositions=("lanes", "ring", "nap"),
    parameters={"adapt.segment": (16 * KiB, 32 * KiB), "window": (), "radix": (), "chunk": (),
                "factors": (), "cells": (), "ports": (), "skew": (), "trailing": ()},
)  # fmt: skip
OTHERS = (4, 2), (4, 4), (8, 1)
USE = Use("whole", "dataflow", {"network": LevelUse("adapt", "chain")})
COST = TaskCost("bcast", 8, 2, 2, ("node", "network"), USE, 1e-4)


STEADY = steady("emulated-1gbit")


@pytest.fixture(scope="module")
def measured():
    lab = ShapeLab(STEADY, 2, 2)
    return tuned_on(lab, [(c, n) for c in ("bcast", "allreduce") for n in SIZES], LIMITS, most=60)


@pytest.fixture(scope="module")
def told(measured):
    grid = Grid(("bcast", "allreduce"), (2, 4, 8), (1, 2, 4), SIZES, 16)
    return answering(measured, grid, LIMITS)


def test_a_table_of_two_nodes_decides_for_others_nearly_as_well_as_their_own(told):
    cases = [Case(c, *shape, n) for c in ("bcast", "allreduce") for shape in OTHERS for n in SIZES]
    found = regrets(told[0], STEADY, cases, LIMITS)
    good = sum(one.told <= 1.15 for one in found)
    assert good >= 0.9 * len(found), [one for one in found if one.told > 1.15]
    assert good > sum(one.built_in <= 1.15 for one in found)
    assert max(one.told for one in found) < 2


def test_costs_of_tasks_tell_the_machine(measured):
    best = fitted(measured.tasks, HERE.cores, HERE.link)[0]
    assert best.error < 0.05
    (_, found), (_, true) = best.machine.levels, STEADY.levels
    assert found.latency + found.overhead == pytest.approx(true.latency + true.overhead, rel=0.6)
    assert best.machine.node.injection == pytest.approx(STEADY.node.injection, rel=0.1)


def test_predicted_rows_say_so_and_come_behind_measured_ones(told):
    table, *_ = told
    rows = table.predicted
    assert rows
    assert table.rows[-len(rows) :] == rows
    assert all(row.predicted.shapes == ("2 x 2",) for row in rows)
    assert all(row.predicted.gains[1] > 1 for row in rows)
    line = described(rows[0], call_signature("bcast", 8))[0]
    assert line.startswith("nothing on so many nodes and ranks; predicted from 2 x 2: ")


def rules_on(table, nodes, ppn):
    topology = Where(STEADY, nodes, ppn).imagined().topology(Config())
    return RuleTable(None, topology, NodeTraits(), table)


def test_an_explanation_tells_from_where_a_choice_is_predicted(told):
    table, *_ = told
    for shape, expected in ((4, 2), {"from": ["2 x 2"]}), ((2, 2), None):
        rules, call = rules_on(table, *shape), call_signature("bcast", 8)
        decision = rules.decide(call)
        plan = plan_of_choice(rules.topology, call, decision.choice, 1 << 24)
        found = explanation_record(Explanation(plan, decision))["predicted"]
        assert found == expected or {**found, **expected} == found
        assert ("predicted from 2 x 2" in str(Explanation(plan, decision))) == bool(expected)


def test_measured_rows_decide_where_they_were_measured(told):
    table, *_ = told
    decided = rules_on(table, 2, 2).decide(call_signature("bcast", 8))
    assert decided.tuned.predicted is None
    assert decided.tuned.measured


def test_trials_compare_a_predicted_choice_with_the_built_in_one(told):
    table, *_ = told
    row = next(row for row in table.predicted if row.when.collective == ("bcast",))
    sizes = [n for n in SIZES if row.when.may_hold({"bytes": n})]
    shape = next(s for s in OTHERS if row.when.may_hold({"nodes": s[0], "ppn": s[1]}))
    rules, call = rules_on(table, *shape), call_signature("bcast", sizes[0])
    found = rules.decide(call)
    assert found.tuned.predicted
    assert rules.rival(call, found) is not None


def test_a_table_says_what_it_knows_of_ranks(told, measured):
    table, *_ = told
    topology = {shape: rules_on(table, *shape).topology for shape in [(1, 4), (2, 2), *OTHERS]}
    assert table.says_of(topology[1, 4]) == ""
    assert table.says_of(topology[2, 2]) == "measured on 2 x 2"
    assert table.says_of(topology[4, 2]) == "predicted for 4 x 2 from 2 x 2"
    assert "han tune shapes predicts them" in measured.says_of(topology[4, 2])
    older = replace(measured, tasks=())
    assert older.says_of(topology[4, 2]) == "nothing for 4 x 2: it keeps no costs of tasks"
    decided = rules_on(older, 4, 2).decide(call_signature("bcast", 8))
    assert decided.other_class() == (("tuned table", older.says_of(topology[4, 2])),)


def test_files_keep_costs_and_predictions(told):
    table, *_ = told
    text = as_text(table)
    again = parse(text, "t.json")
    assert as_text(again) == text
    assert len(again.predicted) == len(table.predicted)
    assert len(again.tasks) == len(table.tasks) <= MOST


def test_more_points_leave_predictions_and_costs_of_other_shapes(told, measured):
    table, *_ = told
    more = replace(measured, tasks=(replace(COST, nodes=4),))
    both = merged(table, more)
    assert len(both.predicted) == len(table.predicted)
    assert both.rows[-1].predicted
    assert len(both.tasks) == len(table.tasks) + 1
    assert with_points(table, table.points).predicted == table.predicted


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"us": 0}, "tasks[0]: expected a collective, positive numbers"),
        ({"us": "x"}, "tasks[0]: "),
        ({"collective": "cast"}, "tasks[0]: when.collective: "),
        ({"use": "built-in"}, "tasks[0]: expected a collective"),
        ({"more": 1}, "tasks[0]: unknown key 'more'"),
        ({"nodes": None}, "tasks[0]: expected collective, bytes"),
    ],
)
def test_damaged_costs_are_refused(measured, change, expected):
    record = json.loads(as_text(replace(measured, tasks=(COST,))))
    record["tasks"][0] |= change
    with pytest.raises(TunedError) as error:
        parse(json.dumps(record), "t.json")
    assert expected in str(error.value)


@pytest.mark.parametrize(
    "told", [1, {"from": ["2 x 2"]}, {"from": 1, "gain": [1, 2]}, {"from": [], "gain": 1}]
)
def test_a_damaged_prediction_is_refused(measured, told):
    record = json.loads(as_text(measured))
    record["calls"][0]["predicted"] = told
    with pytest.raises(TunedError, match="predicted"):
        parse(json.dumps(record), "t.json")


def test_few_costs_are_kept_that_differ():
    same = [replace(COST, seconds=1e-4 * k, nbytes=8 * k) for k in range(1, 3 * MOST)]
    other = replace(COST, collective="reduce")
    kept = chosen_costs([*same, other])
    assert len(kept) == MOST
    assert other in kept
    assert chosen_costs(kept) == kept
    assert len(joined(same, same)) == len(same)
    assert usable([replace(COST, nodes=1), replace(COST, nbytes=12)]) == []
    library = Use("whole", "dataflow", {"network": LevelUse("libnbc", "default")})
    assert usable([replace(COST, use=library), COST]) == [COST]


def test_shapes_are_predicted_around_those_measured(measured):
    assert measured_shapes(measured) == [(2, 2)]
    grid = grid_of(measured)
    assert (grid.nodes, grid.ppn, grid.nbytes) == ((2, 4, 8), (1, 2, 4), SIZES)
    assert grid_of(measured, (16,), (8,), 128).nodes == (16,)


def test_few_shapes_are_worth_a_run():
    agreed, far = {0: [1.0, 1.0], 1: [1.5, 1.4]}, {0: [1.0, 1.6], 1: [1.4, 1.0]}
    ratios = {
        Case("bcast", 2, 2, 8): far, Case("bcast", 4, 2, 8): agreed, Case("bcast", 4, 4, 8): far,
        Case("bcast", 8, 4, 8): far, Case("bcast", 8, 1, 8): {0: [1.0, 1.2], 1: [1.2, 1.0]},
    }  # fmt: skip
    found = worth_a_run(ratios, [(2, 2)], 0.0)
    assert [one.shape for one in found] == [(4, 4), (8, 1)]
    assert found[0].doubt == pytest.approx(1.6)
    assert worth_a_run({Case("bcast", 4, 2, 8): agreed}, [(2, 2)], 0.0) == []
    (one,) = worth_a_run({Case("bcast", 8, 2, 8): agreed}, [(2, 2)], 0.1)
    assert one.doubt > 1.2
