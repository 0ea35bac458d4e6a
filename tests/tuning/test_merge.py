"""Merged tables: runs that agree, that contradict each other, and that cannot be merged."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tuned import FLAT, HERE, LARGE, SMALL, TREE, Times, point, table, use

from han.tuning.measured import GAIN
from han.tuning.tuned.files import TunedError, as_text, parse
from han.tuning.tuned.merge import combined, merge
from han.tuning.tuned.points import Conditions

KiB = 1024
OTHER = use("kary", radix=3)


def at(*times, keeps=False):
    return point(4 * KiB, Times(*times), keeps)


def merged(*points):
    return merge([table(one) for one in points])


def choice(found):
    (one,) = found.table.points
    return one.use


def test_runs_of_different_inputs_are_joined():
    found = merged(SMALL, LARGE)
    assert found.table.points == (SMALL, LARGE)
    assert found.notes == ()


def test_a_table_merged_with_itself_is_itself():
    assert merged(SMALL, SMALL).table.points == (SMALL,)


def test_load_that_differs_between_runs_changes_no_choice():
    slow = at((FLAT, 20.0), (TREE, 80.0), (None, 100.0))
    found = merged(SMALL, slow)
    assert found.notes == ()
    (one,) = found.table.points
    assert one.use == FLAT
    assert one.default.median / one.best.median == pytest.approx(5.0)
    assert one.default.count == one.best.count == 80
    assert one.default.low <= SMALL.default.low < slow.default.high <= one.default.high


def test_what_one_run_alone_measured_is_compared_by_how_much_it_gains():
    """TREE is faster than built-in by 2.5 in a slow run, FLAT by 2 in a quick one."""
    found = merged(at((FLAT, 10.0), (None, 20.0)), at((TREE, 40.0), (None, 100.0)))
    assert choice(found) == TREE
    (note,) = found.notes
    assert note == (
        "bcast of 4KiB on 1 x 4: runs differ, network: sm flat (cells 4) (2.00) and network: sm "
        "knomial (chunk 64KiB, radix 2) (2.50); taken: network: sm knomial (chunk 64KiB, radix 2)"
    )


@pytest.mark.parametrize("swapped", [False, True])
def test_a_choice_that_another_run_found_slower_is_not_taken(swapped):
    runs = at((FLAT, 10.0), (None, 20.0)), at((FLAT, 30.0), (None, 20.0), keeps=True)
    found = merged(*(reversed(runs) if swapped else runs))
    assert choice(found) is None
    assert "runs differ" in found.notes[0]
    assert found.notes[0].endswith("taken: built-in")
    third = at((OTHER, 12.0), (FLAT, 30.0), (None, 20.0))
    assert choice(merged(*runs, third)) == OTHER


def test_a_run_that_did_not_measure_a_choice_does_not_contradict_it():
    runs = at((FLAT, 10.0), (None, 20.0)), at((TREE, 30.0), (None, 20.0), keeps=True)
    found = merged(*runs)
    assert choice(found) == FLAT
    assert [c.use for c in found.table.points[0].candidates] == [FLAT, TREE]


def test_a_run_without_candidates_changes_nothing():
    hurried = replace(SMALL, candidates=(), keeps=True)
    for runs in ((SMALL, hurried), (hurried, SMALL)):
        assert merged(*runs).table.points == (SMALL,)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cores": 64}, "another machine: cores: 64 here, 8 there"),
        ({"library": "Open MPI"}, "another machine: library: Open MPI here"),
        ({"transport": "tcp"}, "other conditions: transport tcp here,  there; keep their tables"),
        ({"mesh": True}, "other conditions: mesh True here, False there"),
    ],
)
def test_tables_of_other_machines_and_conditions_are_refused(changes, said):
    with pytest.raises(TunedError, match=said):
        merge([table(SMALL), table(SMALL, machine=replace(HERE, **changes))])


@pytest.mark.parametrize(("name", "value"), [("han", "0.0.9"), ("library_version", "4.0")])
def test_of_other_versions_the_later_point_counts(name, value):
    older = table(at((TREE, 1.0), (None, 50.0)), LARGE, machine=replace(HERE, **{name: value}))
    found = merge([older, table(SMALL)])
    assert found.table.points == (SMALL, replace(LARGE, machine=older.machine))
    assert found.table.machine == HERE
    (note,) = found.notes
    assert f"{name}: {value}, then" in note
    assert note.endswith("the later one counts")


def test_points_of_other_conditions_are_not_combined():
    usual = replace(SMALL, conditions=Conditions("float64", "sum"))
    other = replace(SMALL, conditions=Conditions("int8", "max", fresh=True), keeps=True)
    found = merged(usual, other)
    assert found.table.points == (other,)
    assert found.notes == (
        "tuned.json: dtype: float64, then int8; op: sum, then max; fresh: False, then True: where "
        "both have a point, the later one counts",
    )
    narrower = replace(usual, conditions=replace(usual.conditions, space="0f"))
    for alike in (SMALL, narrower):
        assert merged(usual, alike).table.points[0].default.count == 80


def test_points_of_three_versions_are_told_apart():
    """LARGE is measured twice with the versions of before, SMALL with those and newer ones."""
    old = replace(HERE, han="0.0.1")
    first = table(SMALL, LARGE, machine=old)
    both = merge([first, table(replace(SMALL, keeps=True))]).table
    assert [p.versions for p in both.points] == ["", "MPICH 5.0, han 0.0.1"]
    found = merge([both, table(replace(LARGE, made="later"), machine=old)])
    assert found.notes == ()
    small, large = found.table.points
    assert large.default.count == 80, "what one version measured twice is combined"
    assert small.keeps
    assert found.table.machine == old
    assert (small.machine, large.machine) == (HERE, None)


times = st.floats(1.0, 100.0)
run = st.tuples(times, st.dictionaries(st.sampled_from(["FLAT", "TREE", "OTHER"]), times))


def of_run(default, uses):
    known = {"FLAT": FLAT, "TREE": TREE, "OTHER": OTHER}
    best = min(uses.values(), default=default)
    pairs = [(known[name], us) for name, us in uses.items()]
    return at(*pairs, (None, default), keeps=best > GAIN * default)


@settings(deadline=None, derandomize=True, database=None, max_examples=300)
@given(run, run)
def test_two_runs_give_one_point_in_either_order(a, b):
    first, second = of_run(*a), of_run(*b)
    one, other = combined(first, second), combined(second, first)
    assert one.use == other.use
    every = [c.use for c in (*first.candidates, *second.candidates)]
    assert all(any(c.use == use for c in one.candidates) for use in every), "nothing is lost"
    if one.use is not None:
        assert one.use in (first.use, second.use)
        assert one.best.median <= one.default.median
    assert parse(as_text(table(one)), "").points == table(one).points
