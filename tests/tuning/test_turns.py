"""Races in turns and their statistics, with candidates whose times come from a seeded clock."""

import math
from random import Random
from statistics import median

import pytest

from han.tuning.costs.ratios import Ratios
from han.tuning.measured import FAR, FIRST_MARGIN, GUARD, LEAST_MARGIN, LEAST_TURNS
from han.tuning.search.results import Cold, Errors, OutOfTime
from han.tuning.search.turns import QUICK, THOROUGH, Turns


class Machine:
    """A machine whose speed drifts, with noise and now and then a long gap; `most`: visits."""

    def __init__(self, times, seed=1, drift=0.0, noise=0.01, gaps=0.0, most=10**9):
        self.times, self.random = times, Random(seed)
        self.drift, self.noise, self.gaps, self.most = drift, noise, gaps, most
        self.visits = dict.fromkeys(times, 0)
        self.now = 0

    def visit(self, one, limit):
        if self.now >= self.most:
            raise OutOfTime
        self.now += 1
        self.visits[one] += 1
        speed = math.exp(self.drift * math.sin(self.now / 40))
        return [
            self.times[one] * speed * math.exp(abs(self.random.gauss(0, self.noise)))
            * (100 if self.random.random() < self.gaps else 1)
            for _ in range(7)
        ]  # fmt: skip


def race(machine, **more):
    first, *others = machine.times
    turns = Turns(machine.visit, first, others, **more)
    return turns, turns.run()


def winner(turns):
    found = turns.estimates()
    return min(found.keys() & {turns.reference, *turns.left}, key=lambda one: found[one].median)


def test_the_best_candidate_wins_on_a_machine_that_drifts_by_more_than_they_differ():
    wrong = 0
    for seed in range(40):
        random = Random(seed)
        times = {"built-in": 1.2e-5} | {k: 1e-5 * random.uniform(1.05, 3) for k in range(30)}
        times["best"] = 1e-5
        machine = Machine(times, seed, drift=0.3, noise=0.03, gaps=0.02)
        turns, complete = race(machine)
        assert complete
        assert times[winner(turns)] <= 1.1e-5
        wrong += winner(turns) != "best"
    assert wrong <= 2


@pytest.mark.parametrize(("noise", "share", "far"), [(0.02, 0.8, 0), (0.05, 0.5, 6)])
def test_a_race_of_near_candidates_is_short_and_its_winner_hardly_slower(noise, share, far):
    endings, quick, thorough = (QUICK, THOROUGH), 0, 1
    lost, visits = ([], []), [0, 0]
    for seed in range(100):
        random = Random(seed)
        times = {"built-in": 1.05e-5} | {k: 1e-5 * random.uniform(1, 1.1) for k in range(12)}
        for k, ending in enumerate(endings):
            machine = Machine(times, seed, drift=0.3, gaps=0.02)
            turns, _ = race(Visited(machine, noise), ending=ending)
            lost[k].append(times[winner(turns)] / min(times.values()))
            visits[k] += sum(machine.visits.values())
    assert visits[quick] < share * visits[thorough]
    assert sum(one > 1.05 for one in lost[quick]) <= far
    assert max(lost[quick]) < 1.15


class Visited:
    """A machine on which whole visits vary, not only their observations."""

    def __init__(self, machine, noise):
        self.machine, self.times, self.noise = machine, machine.times, noise
        self.random = Random(99)

    def visit(self, one, limit):
        factor = math.exp(self.random.gauss(0, self.noise))
        return [factor * seconds for seconds in self.machine.visit(one, limit)]


def test_ratios_do_not_follow_the_drift_but_plain_medians_do():
    times = {"reference": 1e-5, "a": 1e-5, "b": 1.1e-5}
    ratios, machine = Ratios("reference"), Machine(times, drift=0.5)
    seen = {one: [] for one in times}
    for turn in range(12):
        machine.now = 25 * turn
        middle = {one: machine.visit(one, 0)[3] for one in times}
        for one in ("a", "b"):
            seen[one].append(middle[one])
            ratios.add(one, middle[one], middle["reference"])
    assert max(seen["a"]) > 1.5 * min(seen["a"])
    a, b = ratios.of("a"), ratios.of("b")
    assert a.median == pytest.approx(1.0, abs=0.03)
    assert b.median == pytest.approx(1.1, abs=0.05)
    assert a.high < b.low


def test_two_turns_share_no_visit_of_the_reference():
    times = {"built-in": 1e-5, "a": 1e-5, "b": 1e-5}
    machine = Machine(times, noise=0.05)
    turns, _ = race(machine)
    assert machine.visits["built-in"] == 2 * turns.count


def test_intervals_after_a_few_turns_hold_the_truth_though_the_reference_varies():
    missed = 0
    for seed in range(1000):
        random = Random(seed)

        def visit(one, limit, random=random):
            return [math.exp(random.gauss(0, 0.03))]

        turns = Turns(visit, 0, range(1, 6), drops=False)
        while turns.count < LEAST_TURNS:
            turns.turn()
        found = turns.ratio(1)
        missed += not found.low <= 1 <= found.high
    assert missed / 1000 < 0.085


def test_a_race_of_equal_candidates_ends_when_their_difference_is_known():
    counts = []
    for seed in range(20):
        turns, _ = race(Machine(dict.fromkeys(range(4), 1e-5), seed, noise=0.03))
        counts.append(turns.count)
    assert median(counts) <= THOROUGH.most / 2


def test_the_interval_of_a_quotient_holds_both_errors_but_not_one_of_the_reference():
    random, ratios = Random(3), Ratios("reference")
    for _ in range(9):
        ratios.add("reference", 1.0, 1.0)
        for one in range(6):
            ratios.add(one, math.exp(0.1 * one + random.gauss(0, 0.01)), 1.0)
    one, two = ratios.of(1), ratios.of(2)
    quotient = two.median / one.median
    most = ratios.most(2, 1)
    assert most == pytest.approx(quotient**2 / ratios.least(2, 1))
    assert max(one.high / one.median, two.high / two.median) < most / quotient
    assert most < two.high / one.low
    assert ratios.most(2, "reference") == pytest.approx(two.high)


def test_intervals_are_open_while_deviations_are_unknown():
    ratios = Ratios("reference")
    ratios.add("reference", 1.0, 1.0)
    ratios.add("a", 2.0, 1.0)
    found = ratios.of("a")
    assert (found.median, found.low, found.high) == (pytest.approx(2.0), 0.0, math.inf)
    assert ("a" in ratios, "b" in ratios) == (True, False)
    assert (ratios.least("a", "reference"), ratios.most("a", "reference")) == (0.0, math.inf)


def test_slow_candidates_drop_out_early_and_the_race_ends():
    times = {"built-in": 1e-5, "near": 0.9e-5, "slow": 1.4e-5, "far": 3e-5}
    machine = Machine(times)
    turns, complete = race(machine)
    assert complete
    assert machine.visits["far"] == 1
    assert machine.visits["slow"] < THOROUGH.most
    assert turns.count >= LEAST_TURNS
    assert {"far", "slow"}.isdisjoint(turns.left)
    found = turns.estimates()
    assert list(found)[-2:] == ["slow", "far"] or list(found)[-2:] == ["far", "slow"]
    assert found["far"].median == pytest.approx(3e-5, rel=0.1)
    assert found["near"].high < found["built-in"].low


def test_a_crowd_of_equal_candidates_is_cut_and_costs_a_bounded_number_of_visits():
    machine = Machine(dict.fromkeys(range(200), 1e-5), noise=0.02)
    turns, _ = race(machine)
    assert turns.count <= THOROUGH.most
    assert len(turns.left) <= max(THOROUGH.crowd.values())
    assert sum(machine.visits.values()) < 1.3 * (200 + 200 + 16 * 2 + 8 * 10)


class FirstRuns(Machine):
    """A machine of long calls, whose first runs take so many times as long."""

    def __init__(self, times, first, **more):
        super().__init__(times, **more)
        self.first = first

    def visit(self, one, limit):
        (seconds, *_) = super().visit(one, limit)
        cold = self.visits[one] == 1
        return Cold([seconds * self.first[one]]) if cold else [seconds]


def test_a_candidate_does_not_drop_out_because_of_its_first_run():
    times = {"built-in": 0.11, "good": 0.1, **{k: 0.12 + 0.001 * k for k in range(4)}}
    machine = FirstRuns(times, {**dict.fromkeys(times, 1.0), "good": 2.0})
    turns, complete = race(machine)
    assert complete
    assert winner(turns) == "good"
    assert turns.estimates()["good"].median == pytest.approx(0.1, rel=0.05)


def test_a_first_run_beyond_all_hope_is_the_only_one():
    times = {"built-in": 0.1, "near": 0.1, "far": 0.4}
    machine = FirstRuns(times, dict.fromkeys(times, 1.0))
    turns, _ = race(machine)
    assert machine.visits["far"] == 1
    assert "far" not in turns.left
    assert turns.estimates()["far"].median == pytest.approx(0.4, rel=0.05)


def test_first_runs_count_only_if_later_ones_agree():
    times = {"built-in": 0.1, **{k: 0.1 + 0.001 * k for k in range(9)}}
    slow, alike = (FirstRuns(times, dict.fromkeys(times, f), noise=1e-3) for f in (1.3, 1.0))
    for machine, counted in ((slow, False), (alike, True)):
        turns, _ = race(machine)
        found = turns.estimates()
        for one, visits in machine.visits.items():
            assert found[one].median == pytest.approx(times[one], rel=0.01)
            assert found[one].count == visits - (not counted)


class Silent(FirstRuns):
    """A machine on which the second visit of the good candidate says nothing."""

    def visit(self, one, limit):
        found = super().visit(one, limit)
        return [] if one == "good" and self.visits[one] == 2 else found


@pytest.mark.parametrize("others", [6, 30])
def test_a_candidate_known_by_its_first_run_neither_drops_out_nor_lets_the_race_end(others):
    times = {"built-in": 0.11, "good": 0.1, **{k: 0.105 + 1e-4 * k for k in range(others)}}
    turns, _ = race(Silent(times, {**dict.fromkeys(times, 1.0), "good": 2.0}, noise=1e-3))
    assert winner(turns) == "good"
    assert turns.estimates()["good"].median == pytest.approx(0.1, rel=0.01)


def test_a_race_goes_on_while_of_one_that_is_left_only_the_first_run_is_known():
    times = {"built-in": 0.1, "good": 0.08, **dict.fromkeys(range(5), 0.1)}

    class Muted(FirstRuns):
        def visit(self, one, limit):
            found = super().visit(one, limit)
            return [] if one == "good" and 2 <= self.visits[one] <= 5 else found

    turns, _ = race(Muted(times, {**dict.fromkeys(times, 1.0), "good": 2.0}, noise=1e-3))
    assert turns.count > 5
    assert winner(turns) == "good"


class Forgetful(Machine):
    """A machine that keeps the last prepared calls; each other one runs for the first time."""

    def __init__(self, times, first, kept, **more):
        super().__init__(times, **more)
        self.first, self.kept, self.ready = first, kept, []

    def visit(self, one, limit):
        (seconds, *_) = super().visit(one, limit)
        cold = one not in self.ready
        self.ready = [*(k for k in self.ready if k != one), one][-self.kept :]
        return Cold([seconds * self.first[one]]) if cold else [seconds]


def test_first_runs_do_not_confirm_each_other():
    times = {"built-in": 0.1, **{k: 0.1 + 1e-4 * k for k in range(40)}, "good": 0.08}
    first = {**dict.fromkeys(times, 1.0), "good": 2.0}
    machine = Forgetful(times, first, kept=32, noise=1e-3)
    turns, complete = race(machine)
    assert complete
    assert winner(turns) == "good"
    assert turns.estimates()["good"].median == pytest.approx(0.08, rel=0.01)
    assert turns.count < THOROUGH.most


def test_of_first_runs_alone_the_quickest_is_kept():
    factors = iter([1.5, 1.3, 1.2, 1.4, 1.4])
    turns = Turns(
        lambda one, limit: [0.1] if one == "built-in" else Cold([0.1 * next(factors)]),
        "built-in", ["other"],
    )  # fmt: skip
    for _ in range(3):
        turns.turn()
    assert turns.left == ["other"]
    assert turns.ratio("other").median == pytest.approx(1.2)
    assert turns.estimates()["other"].count == 1


def test_candidates_are_not_compared_with_the_first_run_of_the_reference():
    times = {"built-in": 0.1, "other": 0.12}
    machine = FirstRuns(times, {"built-in": 3.0, "other": 1.0}, noise=1e-3)
    turns, _ = race(machine)
    assert turns.ratio("other").median == pytest.approx(1.2, rel=0.02)


def test_a_candidate_that_a_gap_delayed_stays():
    times = {"built-in": 1e-5, "good": 0.9e-5, **dict.fromkeys(range(4), 1e-5)}

    class Delayed(Machine):
        def visit(self, one, limit):
            found = super().visit(one, limit)
            first = one == "good" and self.visits[one] == 1
            return [50 * x for x in found[:6]] + found[6:] if first else found

    turns, _ = race(Delayed(times))
    assert winner(turns) == "good"


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    held = 0
    for seed in range(200):
        random = Random(seed)
        ratios = Ratios("reference")
        for _ in range(8):
            for one in range(5):
                ratios.add(one, math.exp(random.gauss(0.1, 0.05)), 1.0)
        found = ratios.of(0)
        assert found.low < found.median < found.high
        held += found.low <= math.exp(0.1) <= found.high
    assert 0.85 <= held / 200 <= 0.99


def test_what_varies_more_than_the_others_has_a_wider_interval():
    random, ratios = Random(3), Ratios("reference")
    for _ in range(10):
        for one in range(6):
            ratios.add(one, math.exp(random.gauss(0, 0.01)), 1.0)
        ratios.add("wild", math.exp(random.gauss(0, 0.3)), 1.0)
    assert ratios.noise < 0.02
    wild, calm = ratios.of("wild"), ratios.of(0)
    assert math.log(wild.high / wild.low) > 5 * math.log(calm.high / calm.low)


@pytest.mark.parametrize("most", [0, 1, 2, 4, 9, 30])
def test_a_race_without_time_returns_what_it_has(most):
    machine = Machine({k: 1e-5 * (1 + 0.01 * k) for k in range(12)}, most=most)
    turns, complete = race(machine)
    found = turns.estimates()
    assert complete == (most >= 15), "12 candidates, and the reference after each block"
    assert set(found) == {one for one, times in machine.visits.items() if times}
    assert all(0 < one.low <= one.median <= one.high < math.inf for one in found.values())


def test_a_visit_that_was_disturbed_says_nothing_about_its_candidate():
    times = {"built-in": 1e-5, "good": 0.9e-5, "never": 0.1e-5, **dict.fromkeys(range(4), 1e-5)}

    class Disturbed(Machine):
        def visit(self, one, limit):
            found = super().visit(one, limit)
            silent = one == "never" or (one in ("good", "built-in") and self.visits[one] < 3)
            return [] if silent else found

    machine = Disturbed(times)
    turns, complete = race(machine)
    assert winner(turns) == "good"
    assert not complete, "one candidate was never measured"
    assert turns.count == THOROUGH.most, "as it might be the best one"
    assert "never" not in turns.estimates()


def test_nothing_drops_out_of_a_comparison():
    machine = Machine({"built-in": 1e-5, "a": 0.9e-5, "mpi": 9e-5})
    turns, _ = race(machine, drops=False)
    assert turns.left == ["a", "mpi"]
    assert len({machine.visits[one] for one in turns.left}) == 1
    assert turns.count <= THOROUGH.most
    assert turns.estimates()["mpi"].median == pytest.approx(9e-5, rel=0.05)


def test_visits_know_from_when_on_a_candidate_is_hopeless():
    limits = []

    def visit(one, limit):
        limits.append(limit)
        return [1e-5 if one == 0 else 5e-5]

    Turns(visit, 0, range(1, 8)).turn()
    assert limits[0] == math.inf
    assert limits[1:] == [pytest.approx(2 * FAR * 1e-5)] * (len(limits) - 1)


def test_the_margin_of_predictions_follows_from_their_errors():
    errors = Errors()
    assert errors.margin() == FIRST_MARGIN
    for _ in range(10):
        errors.add(1.0, 3.0)
        errors.add(0.0, 3.0)
    assert errors.margin() == LEAST_MARGIN, "one factor changes no order"
    for k in range(40):
        errors.add(1.0, 3.0 * 1.2 ** (-1) ** k)
    assert errors.margin() == pytest.approx(1.2 ** (2 * 1.4826), rel=0.01)
    for k in range(200):
        errors.add(1.0, 10.0 ** (-1) ** k)
    assert errors.margin() == 2.0
    assert errors.margin(measured=True) == FIRST_MARGIN, "of other predictions"


def test_a_first_turn_that_is_late_leaves_time_for_the_candidates_that_it_reached():
    machine = Machine({k: 1e-5 * (1 + 0.01 * k) for k in range(30)})
    asked = []

    def late():
        asked.append(len(machine.visits))
        return len(asked) > 2

    turns, complete = race(machine, late=late)
    assert not complete
    assert len(asked) == 3, "later turns have no new candidates"
    assert turns.count >= GUARD
    seen = {one for one, times in machine.visits.items() if times}
    assert seen == set(range(16)), "the reference and three blocks"
    assert winner(turns) in range(4)
