"""What won at two sizes is measured between them, and nothing else."""

from functools import partial

from test_search import LIMITS, RULES, KiB, SimulatedLab, best

from han.tasks.call import call_signature
from han.tasks.choice import Choice, level_choice
from han.tuning.measured import APART, NEAR
from han.tuning.search.race import UNTRIED, among_winners
from han.tuning.search.results import Errors, Winners
from han.tuning.search.space import space_of
from han.tuning.search.strategies import STRATEGIES, run

CALL = call_signature("bcast", 256 * KiB)
SPACE = space_of(RULES, CALL, LIMITS)


def searched(*sizes):
    """Return a lab that has searched some sizes, and forgotten what won."""
    lab = SimulatedLab()
    for nbytes in sizes:
        call = call_signature("bcast", nbytes)
        run(STRATEGIES["task"], lab, call, space_of(RULES, call, LIMITS))
    lab.winners = Winners()
    return lab


def entered(lab, *choices):
    """Enter one winner for the sizes around that of the call."""
    for nbytes, choice in zip((128 * KiB, 512 * KiB), choices, strict=True):
        lab.winners.add(call_signature("bcast", nbytes), {choice: 1.0})


def test_between_two_sizes_with_one_winner_only_this_one_is_measured():
    alone = run(STRATEGIES["exhaustive"], SimulatedLab(), CALL, SPACE)
    won = alone.measured[0].choice
    lab = searched(64 * KiB, 1 << 20)
    entered(lab, won, won)
    costs, calls = lab.pipelines, lab.whole_calls
    found = run(STRATEGIES["task"], lab, CALL, SPACE)
    assert lab.pipelines == costs, "no cost is measured"
    assert lab.whole_calls - calls < 10
    assert {r.choice for r in found.measured} == {won, SPACE.candidates[0]}
    assert best(found) <= NEAR * best(alone)
    known = {r.choice for r in found.results if r.predicted is not None}
    assert len(known) > 2
    assert (UNTRIED in found.pruned) == (known != set(SPACE.candidates))
    assert lab.winners.around(call_signature("bcast", 384 * KiB)) == [won]


def test_the_built_in_choice_and_a_runner_up_are_measured_if_it_won_too():
    lab, built_in = searched(64 * KiB, 1 << 20), SPACE.candidates[0]
    other = run(STRATEGIES["exhaustive"], SimulatedLab(), CALL, SPACE).measured[0].choice
    for nbytes in (128 * KiB, 512 * KiB):
        lab.winners.add(call_signature("bcast", nbytes), {other: 1.0, built_in: 0.99 * NEAR})
    lab.errors = Errors()
    found = among_winners(lab, CALL, SPACE)
    told = {r.choice: r.predicted for r in found.results if r.predicted is not None}
    told.pop(built_in, None)
    measured = {r.choice for r in found.measured}
    assert built_in in measured
    (runner_up,) = measured - {built_in}
    assert told[runner_up] == min(told.values()), "trials between nodes compare it with the best"


def test_predictions_that_another_choice_is_faster_count_more_than_winners():
    lab = searched(64 * KiB, 1 << 20)
    expected = run(STRATEGIES["task"], lab, CALL, SPACE)
    slowest = max(expected.results, key=lambda r: r.predicted or 0.0).choice
    lab.errors = Errors()
    for _ in range(20):
        lab.errors.add(1.0, 1.0)
    entered(lab, slowest, slowest)
    assert among_winners(lab, CALL, SPACE) is None
    entered(lab, slowest, expected.results[0].choice)
    assert among_winners(lab, CALL, SPACE) is None, "no choice won at both"


def test_winners_of_distant_sizes_and_of_other_calls_say_nothing():
    one, other = (Choice((level_choice("sm", name),)) for name in ("flat", "chain"))
    winners, call = Winners(), partial(call_signature, "bcast")
    winners.add(call(1024), {one: 1.0, other: 0.99 * NEAR})
    winners.add(call(4096), {one: 2.0, other: 1.0})
    winners.add(call(APART * 8192), {other: 1.0})
    assert winners.around(call(2048)) == [other]
    assert winners.around(call(8192)) == [], "too far apart"
    assert winners.around(call(1024)) == winners.around(call(8)) == []
    assert winners.around(call_signature("reduce", 2048)) == []
