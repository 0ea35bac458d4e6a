"""``han tune shapes`` as a user calls it."""

from dataclasses import replace
from functools import partial

import pytest
from commands import call
from commands import refuse as refuse_as
from simulated_tuner import ShapeLab, steady, tuned_on

from han.common.errors import HanError
from han.tuning.search.limits import Limits
from han.tuning.tuned.files import as_text, read

LIMITS = Limits(
    submodules=("sm", "adapt"), algorithms=("flat", "chain", "binomial", "linear"),
    schedules=("dataflow",), segments=(), compositions=("flat", "lanes"),
)  # fmt: skip
refuse = partial(refuse_as, kind=HanError)


@pytest.fixture(scope="module")
def table():
    lab = ShapeLab(steady("emulated-1gbit"), 2, 2)
    return tuned_on(lab, [("bcast", 8), ("bcast", 4096)], LIMITS, most=20)


@pytest.fixture
def file(table, tmp_path):
    path = tmp_path / "tuned.json"
    path.write_text(as_text(table))
    return path


SMALL = "--nodes", "4", "--ppn", "2", "--jobs", "1"


def test_rows_are_added_to_the_table_or_to_another_file(file, table, tmp_path):
    before, other = file.read_text(), str(tmp_path / "more.json")
    said = call("tune", "shapes", other, "--table", str(file), *SMALL)
    assert file.read_text() == before
    found = read(tmp_path / "more.json")
    assert "# predicted for 4 x 2" in said
    assert "explain the costs of tasks, error" in said
    assert "worth a run" in said
    assert len(found.points) == len(table.points)
    assert len(found.tasks) == len(table.tasks)
    assert found.predicted
    assert all(row.when.may_hold({"nodes": 4, "ppn": 2}) for row in found.predicted)
    call("tune", "shapes", "--table", other, *SMALL)
    again = [row.when for row in read(tmp_path / "more.json").predicted]
    assert again == [row.when for row in found.predicted]


def test_a_table_without_costs_is_told_of(file, table):
    file.write_text(as_text(replace(table, tasks=())))
    said = " ".join(refuse("tune", "shapes", "--table", str(file), *SMALL).split())
    assert "keeps no costs of tasks between nodes" in said


def test_a_table_of_one_node_is_told_of(file, table):
    file.write_text(as_text(replace(table, rows=())))
    said = " ".join(refuse("tune", "shapes", "--table", str(file), *SMALL).split())
    assert "has no measurements between nodes" in said


def test_costs_that_no_model_explains_are_told_of(file, table):
    odd = [replace(one, seconds=one.seconds * 100 ** (k % 2)) for k, one in enumerate(table.tasks)]
    file.write_text(as_text(replace(table, tasks=tuple(odd))))
    said = " ".join(refuse("tune", "shapes", "--table", str(file), *SMALL).split())
    assert "fit no machine model" in said
    assert not read(file).predicted


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--nodes", "2,x"], "expected numbers such as 2,4,16"),
        (["--nodes", "1"], "nodes: predictions are for calls between nodes"),
        (["--nodes", "64", "--ppn", "64"], "no shape"),
        (["--table", "other.json"], "one --table"),
    ],
)
def test_wrong_options_are_told_of(file, more, text):
    said = " ".join(refuse("tune", "shapes", "--table", str(file), *more).split())
    assert text in said
