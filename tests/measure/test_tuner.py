"""What the tuner takes from its measurements."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from machines import topology_of
from plans import rules_of

from han.common.errors import ArgumentError
from han.measure.tune.confirm import confirmation
from han.measure.tune.tuner import Input, Plans, Tuner, served, sparse_first
from han.model.topology import Topology
from han.tasks.choice import Choice, LevelChoice
from han.tasks.signature import Signature
from han.tuning.costs.estimates import estimate
from han.tuning.search.results import Found, Result
from han.tuning.search.space import LATE, PREDICTED

CALL = Signature("bcast", 512)
BASE, FIRST, SECOND = (
    Choice((LevelChoice("adapt", name),)) for name in ("binomial", "linear", "chain")
)


def tuner(ratios):
    """Return a tuner whose choices take some times as long as the built-in one, back to back."""
    left = iter(ratios)

    def confirm(signature, built_in, other, expected):
        return confirmation([1.0] * 12, [next(left)] * 12)

    state = SimpleNamespace(parts=SimpleNamespace(topology=topology_of([[0, 0]], -1)))
    rules = SimpleNamespace(objection=lambda signature, choice: None)
    lab = SimpleNamespace(confirm=confirm, state=state, rules=rules)
    return Tuner(lab, Plans((Input("bcast", 512),)))


@pytest.mark.parametrize(
    ("ratios", "left"),
    [((1.5, 0.9), [SECOND]), ((0.9,), [FIRST, SECOND]), ((1.0, 0.98), [])],
)
def test_choices_that_are_not_faster_in_a_row_are_left_out_with_the_reason(ratios, left):
    found = tuner(ratios)
    times = dict.fromkeys((BASE, FIRST, SECOND), estimate([1e-4]))
    assert found._confirmed(CALL, BASE, [FIRST, SECOND], times) == (left, times)
    said = [one.reason for one in found.pruned]
    assert len(said) == 2 - len(left)
    assert all("times the built-in choice in 12 pairs of calls" in one for one in said)


def test_a_simpler_choice_that_is_known_is_listed_once_with_its_own_time():
    """The winner with the built-in choice's segment is another finalist, or one that failed."""
    first, second = replace(FIRST, segment=64), FIRST
    times = {c: estimate([t]) for c, t in ((BASE, 1e-4), (first, 7e-5), (second, 8e-5))}
    found = tuner((0.7, 1.0))
    assert found._confirmed(CALL, BASE, [first, second], times) == ([second, first], times)
    assert not found.pruned
    new = tuner((0.7, 1.0))
    del times[second]
    assert new._confirmed(CALL, BASE, [first], times) == (
        [second, first], {**times, second: estimate([7e-5])},
    )  # fmt: skip
    times[second] = estimate([6e-5])
    refused = tuner((1.0, 0.7, 1.5))
    assert refused._confirmed(CALL, BASE, [second, first], times) == ([first], times)
    assert len(refused.pruned) == 1


def test_candidates_that_were_not_measured_are_listed_with_the_reason():
    one = tuner(())
    results = Result(BASE, estimate([1e-6]), 1e-6), Result(FIRST, None, 3e-6), Result(SECOND)
    one.tell_unmeasured(CALL, Found(results, complete=False))
    assert [(p.what, p.reason, p.group) for p in one.pruned] == [
        ("bcast of 512B: network: adapt linear", "predicted to take 3.00 us", PREDICTED),
        ("bcast of 512B: network: adapt chain", "the time was over before it was measured", LATE),
    ]
    one.pruned.clear()
    one.tell_unmeasured(CALL, Found(results[:1]))
    assert not one.pruned


def test_what_is_left_to_the_mpi_library_is_told_and_left_out():
    many = Topology(("node",), ("s",), ((0,) * 5000,), (0,) * 5000)  # whose blocks fit into no cell
    rules, told = rules_of(many), []
    lab = SimpleNamespace(rules=rules)
    inputs = tuple(Input(name, n) for name in ("bcast", "reduce_scatter") for n in (8, 64))
    plans, lines = served(lab, Plans(inputs), told.append)
    assert plans.inputs == inputs[:2]
    assert told == [f"# left out: {lines[0]}"]
    assert lines[0].what == "reduce_scatter"
    assert "do not fit into a cell" in lines[0].reason
    with pytest.raises(ArgumentError, match="nothing to tune: reduce_scatter: "):
        served(lab, Plans(inputs[2:]), told.append)


def test_sizes_far_apart_come_first():
    inputs = [Input("bcast", 1 << k) for k in range(7)] + [Input("reduce", 8)]
    found = sparse_first(inputs)
    assert sorted(found, key=inputs.index) == inputs
    assert [one.nbytes for one in found[:7]] == [1, 4, 64, 8, 2, 16, 32], "64 follows from 4"
    few = [one.nbytes for one in sparse_first([Input("bcast", 8**k) for k in range(1, 8)])]
    assert few[:4] == [8, 8**6, 8**7, 8**4], "the largest follows from the one before"
    many = [one.nbytes for one in sparse_first([Input("bcast", 2**k) for k in range(3, 22)])]
    assert many[:3] == [8, 1 << 17, 1 << 21], "the largest follows from a sixteenth"
    assert found[7] == Input("reduce", 8)
    assert sparse_first([]) == []
