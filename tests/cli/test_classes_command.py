"""``han classes``: the classes that come with han, computed ones, and regret."""

import json

import pytest
from commands import call, refuse

from han.common.errors import HanError
from han.tuning.built_in.machine_classes import parse, shipped

SMALL = ("--machine", "stampede2", "--nodes", "2,4", "--ppn", "2,4", "8,64KiB")

ROW = {
    "when": {"collective": "bcast"},
    "use": {"levels": {"node": {"submodule": "sm", "algorithm": "flat"}}},
}


def test_classes_are_listed():
    listed = call("classes")
    assert "computed on" in listed
    assert all(one.name in listed for one in shipped())


def test_a_class_is_computed(tmp_path):
    file = tmp_path / "mine.json"
    said = call("classes", "compute", str(file), *SMALL, "allreduce", "--cores",
                "8", "--rdma", "--ranks", "8", "--jobs", "1")  # fmt: skip
    made = parse(file.read_bytes(), "mine", str(file))
    assert f"{len(made.rows)} row" in said
    assert [*dict(made.machines)] == ["stampede2"]
    assert made.when.document()["cores"] == {"min": 8}
    assert made.when.document()["rdma"] is True


def test_a_class_of_long_links_is_for_all_adapters(tmp_path):
    file = tmp_path / "mine.json"
    call("classes", "compute", str(file), "--machine", "wide-area", "--nodes", "4", "--ppn", "2",
         "8", "allreduce", "--rdma", "--jobs", "1")  # fmt: skip
    made = parse(file.read_bytes(), "mine", str(file))
    assert made.has_long_links
    assert "rdma" not in made.when.document()


def test_other_calls_of_a_class_are_kept(tmp_path):
    file = tmp_path / "mine.json"
    asked = ("classes", "compute", str(file), *SMALL, "--ranks", "8", "--jobs", "1")
    call(*asked, "allreduce", "--cores", "8", "--about", "mine")
    before = json.loads(file.read_text())
    call(*asked, "reduce_scatter", "--cores", "8")
    after = json.loads(file.read_text())
    assert [*after["grids"]] == ["allreduce", "reduce_scatter"]
    assert after["about"] == "mine"
    assert [r for r in after["rows"] if r["when"]["collective"] == "allreduce"] == before["rows"]
    one = ("--nodes", "1", "--ppn", "8,32", "64KiB,256KiB", "--cores", "8")
    call(*asked, "allreduce", *one)
    both = json.loads(file.read_text())
    assert [*both["grids"]] == ["allreduce", "reduce_scatter", "allreduce on one node"]
    kept = [row for row in both["rows"] if row["when"].get("nodes") != {"min": 1, "max": 1}]
    assert kept == after["rows"]
    other = (*asked, "bcast", "--cores", "16")
    assert "is a class of other machines: when" in refuse(*other, kind=HanError)
    again = (*asked, "bcast", "--cores", "8")
    for change, said in (
        ({"grids": 3}, "grids: expected a grid for each call"),
        ({"grids": {}}, "is of no call in 'grids'"),
    ):
        file.write_text(json.dumps(after | {"rows": after["rows"] or [ROW]} | change))
        assert said in refuse(*again, kind=HanError)


def test_regret_is_printed_drawn_or_written_as_json(tmp_path):
    asked = ("classes", "regret", *SMALL, "bcast", "--jobs", "1")
    picture = tmp_path / "winners.svg"
    assert "geometric mean" in call(*asked, "--plot", str(picture))
    assert "2 x 4" in picture.read_text() or picture.stat().st_size > 10_000
    found = json.loads(call(*asked, "--json"))
    assert len(found) == 8
    assert all(one["now"] >= 1 for one in found)
    drawn = json.loads(call(*asked, "--json", "--sample", "3"))
    assert drawn == json.loads(call(*asked, "--json", "--sample", "3"))
    assert [one["case"]["collective"] for one in drawn] == ["bcast"] * 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["regret", "--machine", "nosuch"], "unknown ready machine"),
        (["regret", "alreduce"], "did you mean 'allreduce'"),
        (["regret", "--nodes", "2,x"], "expected numbers such as 2,4,16"),
        (["regret", "--machine", "two-cores", "--nodes", "2"], "so it is one node"),
        (["regret", "--nodes", "4", "--ranks", "3"], "--ranks 3: no shape has so few"),
        (["regret", "--sample", "9", "--plot", "a.svg"], "a picture of drawn cases has no axes"),
        (["compute"], "compute needs the file to write"),
        (["compute", "a.json", "--nodes", "1,4"], "rows for one node have a grid of their own"),
        (["frob"], "known are list, compute, regret"),
    ],
)
def test_what_is_wrong_is_told_before_work_begins(arguments, text):
    assert text in refuse("classes", *arguments, kind=HanError)
