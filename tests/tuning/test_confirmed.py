"""What runs of the bench confirm of a tuned table."""

from dataclasses import replace

import pytest
from test_tuned import HERE, LARGE, SMALL, KiB, told_of

from han.common.errors import ArgumentError
from han.model.measurements import Report
from han.tuning.tuned.export import confirmed
from han.tuning.tuned.files import as_text, parse
from han.tuning.tuned.table import of_points

TABLE = of_points((SMALL, LARGE), HERE)


def run(*gains, ranks=4, shared=False, collective="bcast"):
    rows = [
        {"collective": collective, "nbytes": nbytes, "gain": gain}
        for nbytes, gain in zip((4 * KiB, 16 * KiB), gains, strict=True)
    ]
    machine = {"library": "MPICH 5.0", "ranks": ranks, "nodes": 1}
    return Report("bench.json", {"machine": machine, "settings": {"shared": shared}, "rows": rows})


@pytest.mark.parametrize(("runs", "kept"), [
    ([run(1.2, 1.3)], [True, True]),
    ([run(1.2, 1.02)], [True, False]),
    ([run(1.2, 1.3), run(1.1, 0.99)], [True, False]),
    ([run(1.2, 1.3), run(1.01, 1.3), run(1.02, 1.3)], [False, True]),
    ([run(1.2, 1.3, ranks=2)], [False, False]),
    ([run(1.2, 1.3, shared=True)], [False, False]),
    ([run(1.2, 1.3, collective="reduce")], [False, False]),
])  # fmt: skip
def test_choices_that_all_runs_find_faster_stay(runs, kept):
    found = confirmed(TABLE, runs)
    assert [point.use is not None for point in found.points] == kept
    assert [point.candidates for point in found.points] == [p.candidates for p in TABLE.points]


def test_a_run_without_gains_is_an_error():
    plain = run(1.2, 1.3)
    for row in plain.data["rows"]:
        del row["gain"]
    with pytest.raises(ArgumentError, match=r"bench\.json: has no gains: .*--tuned"):
        confirmed(TABLE, [plain])


def test_the_gains_are_kept_and_told():
    found = confirmed(TABLE, [run(1.2, 1.3), run(1.1, 1.25)])
    again = parse(as_text(found), "tuned.json")
    assert again.points == found.points
    assert [point.gains for point in again.points] == [(1.2, 1.1), (1.3, 1.25)]
    told = told_of(again, 4 * KiB)
    assert "built-in 1.20, 1.10 times as long by han bench --tuned" in told


def test_the_built_in_choice_is_not_asked_about():
    kept = of_points((replace(SMALL, keeps=True),), HERE)
    assert confirmed(kept, [run(0.5, 0.5)]) == kept
