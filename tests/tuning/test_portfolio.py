"""What the simulator finds for many calls and shapes becomes rows, and its regret."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as some
from machines import simple_machine

from han.config.rules import LevelUse, Use, When
from han.tuning.built_in import machine_classes
from han.tuning.built_in.machine_classes import MachineClass, document, parse
from han.tuning.row import Row
from han.tuning.search.class_rows import _boxes, computed, records
from han.tuning.search.limits import Limits
from han.tuning.search.portfolio import (
    Case,
    Grid,
    Laboratory,
    chosen,
    improved,
    portfolio,
    predicted,
    winners,
)
from han.tuning.search.regret import regret_of, summary
from han.tuning.search.space import options

GRID = Grid(("allreduce", "bcast"), (2, 4), (1, 4), (8, 4096), 16)
OWN = Limits(submodules=("sm", "solo", "adapt", "exchange", "nap", "ring"))
CASE = Case("allreduce", 4, 4, 8)


@pytest.fixture(scope="module")
def lab():
    return Laboratory(simple_machine(cores=8))


@given(some.sets(some.tuples(*[some.integers(0, 3)] * 3)))
def test_boxes_hold_each_cell_once(cells):
    held = [cell for box in _boxes(cells) for cell in product(*box)]
    assert sorted(held) == sorted(cells)


def test_a_search_is_not_worse_than_any_composition(lab):
    found = improved(lab, CASE, OWN)
    assert found[0][0] <= lab.seconds(CASE, lab.built_in(CASE))
    assert [seconds for seconds, _ in found] == sorted(seconds for seconds, _ in found)
    assert len({choice.composition for _, choice in found}) == len(found)
    for use in winners([lab], CASE, OWN):
        assert lab.of_use(CASE, use) < lab.seconds(CASE, lab.built_in(CASE))


def test_choices_that_are_alike_keep_the_built_in_one_or_that_of_neighbours():
    times = {case: {0: 1.05, 1: 1.0, 2: 1.02} for case in GRID.cases()}
    assert set(chosen(times, GRID, 1.06).values()) == {0}
    times = {case: {0: 2.0, 1: 1.02, 2: 1.0} for case in GRID.cases()}
    odd = Case("allreduce", 2, 4, 8)
    times[odd] = {0: 2.0, 1: 1.0, 2: 1.01}
    assert set(chosen(times, GRID, 1.05).values()) == {2}
    assert chosen(times, GRID, 1.0)[odd] == 1


def test_rows_decide_as_was_computed(lab, monkeypatch):
    """Rows of a file decide on each case of the grid for the use that was chosen for it."""
    won = [winners([lab], case, OWN) for case in GRID.cases() if case.ppn > 1]
    uses = dict.fromkeys(GRID.collectives, portfolio(won, 8))
    times = {case: predicted([lab], [case], uses[case.collective])[0] for case in GRID.cases()}
    found = chosen(times, GRID, 1.02)
    assert any(found.values())
    of = MachineClass("big", "about", machine_classes.When.of((), {"cores": (2, 99)}), (), ())
    rows = records(computed(found, times, uses, GRID), GRID)
    import json

    read = parse(json.dumps(document(of, {}, rows)).encode(), "big", "big.json")
    monkeypatch.setattr(machine_classes, "shipped", lambda: (read,))
    for case, number in found.items():
        choice = lab.choice(case)
        assert choice.rule == ("class big" if number else "built-in"), case
        wanted = lab.of_use(case, uses[case.collective][number])
        assert lab.seconds(case, choice) == wanted, case


def test_regret_is_told_beside_that_of_built_in_choices(lab, monkeypatch):
    monkeypatch.setattr(machine_classes, "shipped", tuple)
    found = [regret_of(lab, case, OWN) for case in (CASE, Case("bcast", 2, 4, 4096))]
    for one in found:
        assert one.now == one.before >= 1
        assert one.record()["case"]["collective"] == one.case.collective
    assert "geometric mean" in summary(found)


def test_the_best_of_a_case_is_named_also_if_it_is_a_row(lab, monkeypatch):
    """The row's choice is a ring, which is better here than all built-in choices."""
    case = Case("bcast", 4, 1, 8)
    ring = Use(composition="ring", levels={"network": LevelUse("adapt", "chain", {"radix": 4})})
    row = Row("ring", When.of(("bcast",), {}), ring, rule="class big")
    big = MachineClass("big", "", When.of((), {"cores": (1, 99)}), (), (row,))
    monkeypatch.setattr(machine_classes, "shipped", lambda: (big,))
    found = regret_of(lab, case)
    assert found.now == 1 < found.before
    assert found.winner == "ring"


def test_lists_of_factors_can_be_left_out(lab):
    """They fit one number of ranks only."""
    call, topology = lab.call(CASE), lab.rules(CASE).topology
    for limits, tried in ((OWN, True), (Limits(parameters={"factors": ()}), False)):
        found = options(call, topology, 0, "tree", limits)
        assert any(key == "factors" for one in found for key, _ in one.parameters) == tried


def test_drawn_cases_are_within_the_ends_of_all_axes():
    grid = Grid(("bcast", "reduce"), (2, 64), (1, 32), (8, 1 << 20), 128)
    cases = [*grid.drawn(200)]
    assert cases == [*grid.drawn(200)] != [*grid.drawn(200, seed=2)]
    for name, least, most in (("nodes", 2, 64), ("ppn", 1, 32), ("nbytes", 8, 1 << 20)):
        found = {getattr(case, name) for case in cases}
        assert least <= min(found) < max(found) <= most
        assert len(found) > 6
    assert all(case.nodes * case.ppn <= 128 and case.nbytes % 8 == 0 for case in cases)
    assert len({case.collective for case in cases}) == 2


def test_no_row_of_a_class_has_factors():
    for one in machine_classes.shipped():
        levels = [level for row in one.rows for level in row.use.levels.values()]
        assert not any("factors" in level.parameters for level in levels), one.name


def test_a_use_that_serves_no_call_is_left_out(lab):
    nap = Use(composition="nap")
    assert lab.of_use(Case("bcast", 2, 4, 8), nap) is None
    assert [*map(set, predicted([lab], [Case("bcast", 2, 4, 8)], [None, nap]))] == [{0}]


def test_a_use_that_takes_too_long_is_not_tried_on_more_nodes(lab, monkeypatch):
    slow, tried = Use(segment=64), []
    monkeypatch.setattr(lab, "of_use", lambda case, use: tried.append((case.nodes, use)) or (
        10.0 if use else 1.0
    ))  # fmt: skip
    cases = [Case("bcast", nodes, 4, 4096) for nodes in (2, 4, 8)]
    found = predicted([lab], cases, [None, slow])
    assert found == [{0: 1.0, 1: pytest.approx(10.0)}, {0: 1.0}, {0: 1.0}]
    assert (4, slow) not in tried
