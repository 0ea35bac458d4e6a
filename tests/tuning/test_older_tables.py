"""Tuned tables of earlier versions: read as rows with one line that says so, and what is wrong."""

import copy
import json
from dataclasses import asdict

import pytest
from test_tuned import FLAT, HERE, LARGE, NODE, PLAIN, SMALL, KiB

from han.tasks.call import call_signature
from han.tuning.tuned.files import TunedError, parse, write
from han.tuning.tuned.find import find_table
from han.tuning.tuned.table import of_points
from han.tuning.tuned.uses import use_record


def timed(timing):
    return asdict(timing)


def older(*points):
    """Return the content of a file that holds points, as earlier versions wrote it."""
    return {
        "format": "han-tuned", "version": 1, "machine": asdict(HERE), "digest": "of the content",
        "points": [
            {
                "key": {"collective": "bcast", "operation": "", "nodes": 1, "ppn": 4,
                        "levels": list(NODE.names)},
                "nbytes": point.nbytes, "keeps": point.keeps, "default": timed(point.default),
                "library": timed(point.library), "strategy": "task", "made": "", "seconds": 0.0,
                "tried": 0,
                "candidates": [
                    {"use": use_record(one.use), "timing": timed(one.timing),
                     "predicted": one.predicted} for one in point.candidates
                ],
            } for point in points
        ],
    }  # fmt: skip


OLD = older(SMALL, LARGE)


def changed(change):
    record = copy.deepcopy(OLD)
    change(record)
    return json.dumps(record)


def first_use(record):
    return record["points"][0]["candidates"][0]["use"]["levels"]["network"]


def test_points_are_read_as_rows_that_decide_alike():
    found, wanted = parse(json.dumps(OLD), "old.json"), of_points((SMALL, LARGE), HERE)
    assert found.points == wanted.points
    assert [(row.when, row.use) for row in found.rows] == [
        (row.when, row.use) for row in wanted.rows
    ]
    assert found.find(call_signature("bcast", 4 * KiB), NODE, PLAIN).use == FLAT


def test_one_line_says_so_until_the_file_is_written_again(tmp_path):
    path = tmp_path / "old.json"
    path.write_text(json.dumps(OLD))
    found = find_table(str(path), lambda: HERE)
    assert found.problem == (
        f"{path}: points of an earlier han, read as rows; 'han tune merge' writes them as rows"
    )
    assert found.table.size == 2
    write(path, of_points((), HERE))
    again = find_table(str(path), lambda: HERE)
    assert not again.problem
    assert again.table.points == (SMALL, LARGE)


def test_versions_and_classes_of_operations_are_those_of_the_points():
    def change(record):
        first = record["points"][0]
        first["machine"] = asdict(HERE) | {"library_version": "1.0", "han": "0.0.1"}
        first["key"] |= {"collective": "allreduce", "operation": "native"}
        first["conditions"] = {"dtype": "float16", "op": "sum", "space": "abc"}

    point, _ = parse(changed(change), "old.json").points
    assert point.versions == "MPICH 1.0, han 0.0.1"
    assert point.key.operation == "heavy", "a file from before that class"
    assert (point.conditions.dtype, point.conditions.space) == ("float16", "abc")


WRONG = {
    "": "damaged, not JSON",
    "[" * 100_000: "nested too deep",
    "[]": "not a tuned table",
    '{"format": "han-trace", "version": 1}': "its format is not han-choices",
    changed(lambda r: r.update(version=7)): "version 7, this han reads version 1; tune it again",
    changed(lambda r: r.update(speed=1)): "unknown key 'speed'",
    changed(lambda r: r["points"][0].pop("default")): "points[0]: the key 'default' is missing",
    changed(lambda r: r["points"][0].update(nbytes=-1)): "points[0]: ",
    changed(lambda r: r.update(points=3)): "points: expected a list",
    changed(lambda r: r["points"][0]["default"].update(median=0)): "points[0]: measured[0]",
    changed(lambda r: r["points"][0]["key"].update(collective="cast")): "'cast'",
    changed(lambda r: first_use(r).update(algorithm="flatt")): "did you mean 'flat'",
    changed(lambda r: first_use(r).update(submodule="sn")): "unknown submodule",
    changed(lambda r: first_use(r).update(cels=3)): "did you mean 'cells'",
    json.dumps(older(SMALL, LARGE, SMALL)): "points[2]: bcast of 4KiB on 1 x 4 is there already",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_with_a_file_is_named(text):
    with pytest.raises(TunedError) as error:
        parse(text, "mine.json")
    assert str(error.value).startswith("mine.json: ")
    assert WRONG[text] in str(error.value)
