"""How often the lab observes calls: long ones once, and busy ranks do not repeat observations."""

import math
import statistics
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest
from mpi4py import MPI

from han.measure import measured
from han.measure.bench_calls import Case
from han.measure.measured import (
    BUSY_MOST_OBSERVED,
    CLEAR,
    CONNECTED,
    RECENT_SERIES,
    SINGLE,
    TIMED,
    TIMED_IN_ROW,
)
from han.measure.tune import windows
from han.measure.tune.lab import Lab
from han.measure.tune.session import tuned_config
from han.measure.tune.windows import Series, Windows, durations, joined, typical
from han.model.topology import virtual
from han.ranks.discover import outnumber_processors
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.choice import Choice, level_choice
from han.tuning.costs.model import told_apart
from han.tuning.costs.stages import Operands, Pipeline, Step, pipeline_of_choice
from han.tuning.search.results import Cold

FLAT = Choice((level_choice("sm", "flat"), level_choice("adapt", "chain")))
ONE_TASK = Pipeline((Step("sb", "bcast", 0, FLAT.levels[0]),), 64, 1.0, Operands())
((STAGE, _),) = ONE_TASK.stages()


class Clockless:
    """Windows whose observations take `seconds` each; `busy` as in Windows."""

    crowded = False

    def __init__(self, seconds, good=True, busy=False):
        self.seconds, self.good, self.busy, self.counts = seconds, good, busy, []

    def observe(self, call, count, expected, before=None):
        """Say what `count` calls took, without any call."""
        self.counts.append(count)
        found = np.full(count, self.seconds)
        return Series(found, np.full(count, self.good), np.zeros(count))


@pytest.fixture
def lab():
    with Lab(MPI.COMM_SELF, tuned_config(None), partial(Case, dtype="float64", op="sum")) as made:
        made.give(1e9)
        yield made


def visits(lab, limit=math.inf, times=3):
    signature = call_signature("bcast", 64)
    return [[*lab.observe(signature, FLAT, limit)] for _ in range(times)]


def test_a_visit_of_a_long_call_is_one_run_and_the_first_run_counts(lab):
    for busy in (True, False):
        lab.windows = Clockless(2 * SINGLE, busy=busy)
        lab.recall(lab.memory())
        assert visits(lab) == [[2 * SINGLE]] * 3
        assert lab.windows.counts == [1, 1, 1]
    lab.windows = Clockless(2 * SINGLE, good=False)
    lab.recall(lab.memory())
    assert visits(lab, times=1) == [[]], "a disturbed run says nothing"


class Warming(Clockless):
    """Windows in which the first run takes twice as long."""

    def observe(self, call, count, expected, before=None):
        """Say what `count` calls took, without any call."""
        found = super().observe(call, count, expected, before)
        return replace(found, seconds=found.seconds * (2 if len(self.counts) == 1 else 1))


def test_the_first_run_of_a_long_call_is_told_from_later_ones(lab):
    lab.windows = Warming(2 * SINGLE)
    signature = call_signature("bcast", 64)
    found = [lab.observe(signature, FLAT, math.inf) for _ in range(3)]
    assert [[*one] for one in found] == [[4 * SINGLE], [2 * SINGLE], [2 * SINGLE]]
    assert [isinstance(one, Cold) for one in found] == [True, False, False]


@pytest.mark.parametrize("seconds", [1.5 * SINGLE, 2 * CONNECTED])
def test_a_first_run_without_hope_is_repeated_if_connections_explain_it(lab, seconds):
    lab.windows = Warming(seconds / 2)
    (found,) = visits(lab, limit=seconds / 10, times=1)
    late = seconds < CONNECTED
    assert found[0] == (seconds / 2 if late else seconds)
    assert len(lab.windows.counts) == (3 if late else 1)


@pytest.mark.parametrize(("again", "cold"), [(5.0, True), (0.5, False)])
def test_a_repeat_that_is_no_quicker_does_not_confirm_a_first_run(lab, again, cold):
    class Disturbed(Clockless):
        def observe(self, call, count, expected, before=None):
            self.good = not self.counts or again < 1
            found = super().observe(call, count, expected, before)
            return replace(found, seconds=found.seconds * (1 if len(self.counts) == 1 else again))

    lab.windows = Disturbed(2.5 * SINGLE)
    found = lab.observe(call_signature("bcast", 64), FLAT, SINGLE)
    assert [*found] == [2.5 * SINGLE * min(1, again)]
    assert isinstance(found, Cold) == cold
    assert lab.windows.counts == [1, 1]


class Drowsy(Clockless):
    """Windows of busy ranks, whose first series find calls slower than they are."""

    def __init__(self, seconds):
        super().__init__(seconds[-1], good=False, busy=True)
        self.left = list(seconds)

    def observe(self, call, count, expected, before=None):
        """Say what `count` calls took, without any call."""
        if self.left:
            self.seconds = self.left.pop(0)
        return super().observe(call, count, expected, before)


def test_busy_ranks_find_out_about_a_call_before_its_first_visit(lab):
    lab.windows = Drowsy([9e-3, 5e-3, 1e-3, 3e-4, 1e-4])
    assert visits(lab, times=1) == [[1e-4] * BUSY_MOST_OBSERVED]


def test_a_slow_visit_of_busy_ranks_is_longer_and_all_of_it_counts(lab):
    lab.windows = Drowsy([1e-4] * 3 + [3e-4] * 2 + [1e-4])
    found = visits(lab, times=3)
    assert [len(one) for one in found] == [
        BUSY_MOST_OBSERVED,
        2 * BUSY_MOST_OBSERVED,
        BUSY_MOST_OBSERVED,
    ]
    assert set(found[1]) == {3e-4}
    lab.windows = Drowsy([3e-4, 1e-4])
    lab._ready[call_signature("bcast", 64), FLAT].expected = 1e-4
    (mixed,) = visits(lab, times=1)
    assert sorted(mixed) == [1e-4] * BUSY_MOST_OBSERVED + [3e-4] * BUSY_MOST_OBSERVED


def test_visits_of_busy_ranks_are_fair_to_candidates_whose_times_do_not_vary(lab):
    """Medians of many visits: a call that is slow in half of them is not taken for a quick one."""
    lab.windows = Drowsy([1e-4] * 3 + 200 * [3e-4, 1e-4, 3e-4, 3e-4])
    found = [statistics.median(one) for one in visits(lab, times=200)]
    assert statistics.mean(found) > 1.9e-4


def test_costs_of_tasks_are_not_those_of_first_runs(lab):
    lab.windows = Warming(2 * SINGLE)
    lab.pipeline = lambda *call: ONE_TASK
    lab.learn(call_signature("bcast", 64), FLAT)
    assert lab.costs.find(STAGE) == (2 * SINGLE,)
    assert lab.windows.counts == [1, 1]


def test_a_cost_is_learnt_again_only_if_it_was_measured_itself(lab):
    signature = call_signature("bcast", 64)
    lab.pipeline = lambda *call: ONE_TASK
    lab.windows = Drowsy([3e-3])
    lab.learn_again(signature, FLAT)
    assert lab.costs.find(STAGE) is None
    lab.learn(signature, FLAT)
    assert lab.costs.find(STAGE) == (3e-3,)
    for seconds in (2e-5, 3e-3):
        lab.windows = Drowsy([seconds])
        lab.learn_again(signature, FLAT)
        assert lab.costs.find(STAGE) == (2e-5,)


def test_a_cost_of_which_two_runs_were_disturbed_is_not_theirs(lab):
    class Taken(Clockless):
        """Windows in which another program takes a processor for a time slice, twice."""

        def observe(self, call, count, expected, before=None):
            self.good = len(self.counts) > 1
            self.seconds = 2e-5 if self.good else 4e-3
            return super().observe(call, count, expected, before)

    lab.pipeline = lambda *call: ONE_TASK
    lab.windows = Taken(4e-3)
    lab.learn(call_signature("bcast", 64), FLAT)
    assert lab.costs.find(STAGE) == (2e-5,)


def test_ranks_on_few_processors_make_calls_in_a_row():
    clock = partial(next, iter([0.0, 1.0, 2.0, 4.0, 5.0, 5.5, 6.0, 6.5, 7.0]))
    found = Windows(MPI.COMM_SELF, lambda: math.nan, clock, crowded=True)
    calls = []
    series = found.observe(lambda: calls.append(1), 8, 1.0)
    assert len(calls) == 8
    assert [*series.seconds] == [1.0, 1.0, 1.5, 1.5, 0.5, 0.5, 0.5, 0.5], "means of four parts"
    assert [*series.begins] == [0.0, 1.0, 2.0, 4.0, 5.0, 5.5, 6.0, 6.5]
    assert series.usable == [*series.seconds]


class Rested(Clockless):
    """Windows of calls in a row, on links that carry some messages at once after a pause."""

    crowded = True

    def observe(self, call, count, expected, before=None):
        """Say what `count` calls took, without any call."""
        found = super().observe(call, count, expected, before)
        return replace(found, seconds=found.seconds * (1 if count < TIMED_IN_ROW else 40))


def test_links_that_have_rested_do_not_make_rows_too_long(lab):
    lab.windows = Rested(1e-5, busy=True)
    assert visits(lab, times=1) == [[4e-4] * 50]
    assert lab.windows.counts == [1, TIMED, TIMED_IN_ROW, 50], "20 ms in the visit"


def test_stages_of_calls_in_a_row_add_up_to_what_a_call_takes():
    assert typical([(1.0, 2.0), (1.0, 4.0)]) == (1.0, 3.0)
    assert typical([(1.0, 2.0), (1.0, 4.0)], 8.0) == (2.0, 6.0)


def test_a_slow_candidate_is_observed_once_in_a_visit(lab):
    lab.windows = Clockless(2 * CLEAR)
    assert visits(lab, limit=CLEAR, times=2) == [[2 * CLEAR]] * 2
    assert lab.windows.counts == [1, 1, 1, 1], "the first run also made what later ones find"
    lab.windows.counts.clear()
    visits(lab, times=1)
    assert lab.windows.counts == [3]


def test_busy_ranks_do_not_repeat_disturbed_observations(lab):
    lab.windows = Clockless(1e-5, good=False, busy=True)
    assert all(visits(lab))
    assert len(lab.windows.counts) == 5, "the first run, three more, and one series a visit"


def test_ranks_are_busy_while_nearly_all_observations_are_disturbed(monkeypatch):
    clock, switches = partial(next, count(0.0, 1e-6)), count()
    found = Windows(MPI.COMM_SELF, lambda: 0.0, clock)
    monkeypatch.setattr(windows, "_switches", lambda: next(switches))
    assert not found.observe(lambda: None, 1, 0.0).good.any()
    for _ in range(RECENT_SERIES - 2):
        found.observe(lambda: None, 1, 0.0)
        assert not found.busy
    assert found.observe(lambda: None, 9, 0.0).good.any(), "what nearly all are counts"
    assert found.busy
    monkeypatch.setattr(windows, "_switches", lambda: 0)
    for _ in range(RECENT_SERIES):
        found.observe(lambda: None, 9, 0.0)
    assert not found.busy


def test_nodes_of_one_system_share_its_processors():
    both, other = frozenset({0, 1}), frozenset({2, 3})
    assert not outnumber_processors([("a", both), ("a", both), ("b", both), ("b", both)])
    assert outnumber_processors([("a", both), ("a", both), ("a", both), ("b", both)])
    assert not outnumber_processors([("a", both), ("a", both), ("a", other), ("a", other)])


@pytest.mark.parametrize("links", [False, True])
def test_a_series_begins_soon_while_no_rank_is_late(monkeypatch, links):
    """On one node; where messages leave it, they rest before a series."""
    monkeypatch.setattr(windows, "_switches", lambda: 0)
    clock, late, moments = partial(next, count(0.0, 1e-9)), [0.0], []
    found = Windows(MPI.COMM_SELF, lambda: 0.0, clock, links=links)
    monkeypatch.setattr(found, "_wait", lambda moment: moments.append(moment) or moment + late[0])

    def lead():
        rest = measured.ROOM * 1e-3 * found._wider if links else 0.0
        found.observe(lambda: None, 3, 1e-3)
        return moments[-3] - rest

    first, *_, last = [lead() for _ in range(6)]
    assert first == pytest.approx(measured.LEAD, abs=1e-6)
    assert last == pytest.approx(measured.SHORT_LEAD, abs=1e-6)
    late[0] = 1.0
    lead()
    late[0] = 0.0
    assert lead() == pytest.approx(measured.LEAD, abs=1e-6), "after a late rank"


def test_the_stages_of_whole_messages_are_planned_once_for_all_sizes(lab):
    small, large = (call_signature("allreduce", nbytes) for nbytes in (64, 1 << 20))
    lab.plan = lambda signature, choice: plan_of_choice(virtual(4, 2), signature, choice, 1 << 20)
    first = lab.pipeline(small, FLAT)
    assert lab.pipeline(large, FLAT) == told_apart(pipeline_of_choice(large, FLAT, lab.plan))
    lab.plan = None
    assert lab.pipeline(small, FLAT) == first


def test_a_late_rank_does_not_make_an_observation_short():
    first, last, end = np.array([0.0, 0.0]), np.array([0.1, 5.0]), np.array([1.1, 5.01])
    found = durations(first, last, end, np.array([True, False]))
    assert found == pytest.approx([1.0, 5.01])
    alone = [Series(found, np.array(good), first) for good in ([True, False], [False, False])]
    assert [one.usable for one in alone] == [pytest.approx([1.0]), pytest.approx([1.0])]
    assert [one.is_disturbed for one in alone] == [False, True]
    assert joined(alone).usable == pytest.approx([1.0])
    assert len(joined(alone).seconds) == 4
