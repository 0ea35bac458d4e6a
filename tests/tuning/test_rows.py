"""Tables of rows: tuned choices that a person can read and edit, and what is wrong with them."""

import json
from dataclasses import replace

import pytest
import yaml
from test_tuned import HERE, NODE, TWO, KiB, Times, point, table, told_of, use

from han.config import load_config
from han.config.rules import KindUse, LevelUse, Use
from han.submodules.names import validate_names
from han.tasks.call import call_signature
from han.tuning.built_in.choosing import BUILT_IN, NodeTraits
from han.tuning.explanation import Explanation, described
from han.tuning.planner import Planner
from han.tuning.rules import TUNED, RuleTable
from han.tuning.tuned.export import as_rules, chosen
from han.tuning.tuned.files import TunedError, as_text, read
from han.tuning.tuned.points import Conditions, key_of
from han.tuning.tuned.table import of_points

MiB = 1 << 20
NAMES = TWO.names
CHAIN = use("chain", "adapt", topology=TWO, window=4)
TREE = use("binomial", "adapt", topology=TWO, segment=8 * KiB)
LANES = Use(64 * KiB, "dataflow", {NAMES[0]: LevelUse("sm", "shares"), NAMES[1]: LevelUse(
    "exchange", "halving", {"segment": 32 * KiB})}, "lanes")  # fmt: skip
KINDS = Use(
    "whole", "lockstep",
    {NAMES[0]: LevelUse("sm", "flat", {}, {"reduce": KindUse("kary", {"radix": 2})})},
)  # fmt: skip
GROUPED = replace(TWO, memory=TWO.domains[0], attach=True)


def at(nbytes, best, **more):
    return point(nbytes, Times((best, 10.0), (None, 50.0)), topology=TWO, **more)


def of_call(one, signature):
    return replace(one, key=key_of(signature, TWO))


ORDERED = replace(call_signature("allreduce", 64), commutative=False)
USERS = call_signature("allreduce", 64, op="")
POINTS = (
    at(4 * KiB, TREE), at(16 * KiB, TREE), at(64 * KiB, CHAIN), at(256 * KiB, CHAIN, keeps=True),
    at(8 * MiB, CHAIN), at(512 * MiB, CHAIN),
    at(256 * KiB, LANES, collective="allreduce"), at(1 * KiB, KINDS, collective="allreduce"),
    of_call(at(2 * KiB, KINDS), ORDERED), of_call(at(3 * KiB, KINDS), USERS),
    of_call(at(256 * KiB, TREE), replace(call_signature("bcast", 64), mapped=True)),
)  # fmt: skip


def read_rows(tmp_path, text, name="rows.json"):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return read(path)


def calls():
    sizes = [n + d for k in range(3, 34) for n in (1 << k, 3 << k) for d in (-1, 0, 1)]
    for n in sizes:
        yield replace(call_signature("bcast", 8), count=n)
        yield replace(call_signature("bcast", 8), count=n, mapped=True)
        for one in (call_signature("allreduce", 8), ORDERED, USERS):
            yield replace(one, count=n, element=1)


def test_rows_and_rules_decide_as_the_table_does(tmp_path):
    tuned = table(*POINTS)
    rows = read_rows(tmp_path, as_text(tuned))
    levels = [{"name": NAMES[0], "scope": {"size": 4}}, {"name": NAMES[1], "scope": "all"}]
    document = {**yaml.safe_load(as_rules(tuned)), "levels": levels}
    config = validate_names(load_config(document))
    by_table = RuleTable(None, GROUPED, NodeTraits(), of_points(POINTS, HERE))
    by_rows = RuleTable(None, GROUPED, NodeTraits(), rows)
    by_rules = RuleTable(config, GROUPED, NodeTraits())
    found = set()
    for call in calls():
        wanted = by_table.decide(call).choice
        found.add(wanted.rule)
        decided = by_rows.decide(call).choice
        assert (decided, decided.rule) == (wanted, wanted.rule), call
        assert by_rules.decide(call).choice == wanted, call
    assert found == {TUNED, BUILT_IN}


def test_classes_of_sizes_keep_to_rows(tmp_path):
    rows = read_rows(tmp_path, as_text(table(*POINTS)))
    planner = Planner(GROUPED, load_config({}), NodeTraits(), 0, False, rows)
    low = 0
    for high in planner.bounds:
        ends = [replace(call_signature("bcast", 8), count=n) for n in (low + 1, high)]
        found = [rows.find(one, GROUPED, NodeTraits()) for one in ends]
        assert len({one and one.name for one in found}) == 1, (low + 1, high)
        low = high


def test_adjacent_sizes_with_one_choice_are_one_row_with_all_measurements(tmp_path):
    rows = read_rows(tmp_path, as_text(table(*POINTS))).rows
    assert len({row.name for row in rows}) == len(rows)
    first = rows[0]
    assert first.name == "bcast, 2KiB to 32KiB, 2 x 4"
    assert [m.nbytes for m in first.measured] == [4 * KiB, 16 * KiB]
    assert first.measured[0].best.median == pytest.approx(10e-6)
    assert first.measured[0].default.high == pytest.approx(50.5e-6)


def test_calls_in_place_and_uneven_blocks_have_no_row(tmp_path):
    alike = call_signature("reduce_scatter", 4 * KiB)
    measured = replace(at(4 * KiB, TREE), key=key_of(alike, TWO))
    rows = read_rows(tmp_path, as_text(table(measured)))
    for call, found in (
        (alike, True), (replace(alike, in_place=True), False), (replace(alike, varied=True), False),
    ):  # fmt: skip
        assert (rows.find(call, TWO, NodeTraits()) is not None) == found


def test_rows_hold_for_the_ranks_that_they_name(tmp_path):
    rows = read_rows(tmp_path, as_text(table(*POINTS)))
    assert set(rows.calls_of(TWO)) == {"bcast", "bcast on shared arrays", "allreduce"}
    assert rows.size == 9
    assert chosen(rows).size == 8
    for other in (NODE, replace(GROUPED, names=("node", "network"))):
        call = call_signature("bcast", 4 * KiB)
        decided = RuleTable(None, other, NodeTraits(), rows).decide(call)
        assert decided.choice.rule == BUILT_IN
        assert rows.calls_of(other) == []
    assert {u.composition for u in rows.uses(TWO)} == {None, "lanes"}


def test_an_explanation_names_the_row_and_its_measurement(tmp_path):
    rows = read_rows(tmp_path, as_text(table(*POINTS)))
    planner = Planner(GROUPED, load_config({}), NodeTraits(), 0, False, rows)
    planned = planner.planned(call_signature("bcast", 5 * KiB))
    text = str(Explanation(planned.plan.of_size(5 * KiB), planned.decision))
    for line in (
        "; measured 10.00 us at 4KiB; the built-in choice 50.00 us",
        "rule      tuned table",
        "row       call: bcast, 2KiB to 32KiB, 2 x 4",
        "measured  10.00 us (9.90 to 10.10 us, 40 calls) at 4KiB, for 5KiB",
        "measured  built-in 50.00 us (49.50 to 50.50 us, 40 calls), 5.00 times as long",
        f"measured  in {tmp_path / 'rows.json'}, task",
    ):
        assert line in text


ROW = {"name": "mine", "when": {"collective": "bcast"}, "use": {"levels": {
    NAMES[1]: {"submodule": "adapt", "algorithm": "chain"}}}}  # fmt: skip


def document(*rows, **changes):
    (machine,) = json.loads(as_text(of_points((), HERE)))["machines"]
    found = {"format": "han-choices", "version": 2, "machines": [machine], "calls": list(rows)}
    return {key: value for key, value in (found | changes).items() if value is not None}


def row(**changes):
    return {key: value for key, value in (ROW | changes).items() if value is not None}


def test_a_person_may_write_rows_without_measurements(tmp_path):
    mine = row(when={"collective": ["bcast"], "ranks": {"min": 4}, "bytes": {"min": "1KiB"},
                     "mesh": True})  # fmt: skip
    rows = read_rows(tmp_path, document(mine))
    call = call_signature("bcast", 4 * KiB)
    for mesh in (False, True):
        found = RuleTable(None, GROUPED, NodeTraits(mesh=mesh), rows).decide(call)
        assert (found.choice.rule == TUNED) == mesh
    assert described(found.row, call)[0] == "nothing: the row names no measurement"
    assert 1024 in rows.thresholds(TWO)


MEASURED = {"bytes": 8, "us": [1, 2, 3], "calls": 4, "built_in_us": [1, 2, 3]}
WRONG = [
    (document(version=3), "version 3, this han reads version 2"),
    (document(cells=[]), "unknown key 'cells'"),
    (document(calls=None), "the key 'calls' is missing"),
    (document(machines=[]), "machines: expected the one on which the rows were measured"),
    (document(machines=[{"cpu": "x"}]), "machines[0]: the key 'cores' is missing"),
    (document(calls={}), "calls: expected a list of rows"),
    (document({}), "calls[0]: name: expected a text"),
    (document(row(use=None)), "calls[0] 'mine': the key 'use' is missing"),
    (document(row(wen={})), "calls[0] 'mine': unknown key 'wen'; did you mean 'when'?"),
    (document(row(when={"levles": []})), "when: unknown key 'levles'; did you mean 'levels'?"),
    (document(row(when={"levels": "node"})), "when.levels: expected a list of names"),
    (document(row(when={"outermost": True})), "when: unknown key 'outermost'"),
    (document(row(when={"nodes": "two"})), "when.nodes: 'two' is not a count"),
    (document(row(use={"segment": "half"})), "'half' is not a size"),
    (document(row(use={"segment": 0})), "use.segment: a segment has at least 1 byte"),
    (document(row(use={"schedule": "lock"})), "use.schedule: unknown schedule 'lock'; did you"),
    (document(row(use={"composition": 3})), "use.composition: unknown composition 3"),
    (document(row(use={"levels": []})), "use.levels: expected keys and values"),
    (
        document(row(use={"levels": {"node": {"submodule": "sm", "algorithm": "flt"}}})),
        "use.levels.node: algorithm: unknown algorithm of sm 'flt'; did you mean 'flat'?",
    ),
    (
        document(row(use={"levels": {"node": {
            "submodule": "sm", "algorithm": "flat", "chunk": "bytes / 8, 1KiB to 2KiB"}}})),
        "use.levels.node: chunk: expected a size; rows for one level may have",
    ),
    (document(row(measured={})), "measured: expected a list"),
    (document(row(measured=[{}])), "measured[0]: expected {'bytes': size, 'us': [low, median"),
    (
        document(row(measured=[{"bytes": 8, "us": [3, 2, 1], "calls": 4, "built_in_us": [1] * 3}])),
        "measured[0]: expected",
    ),
    (document(row(measured=[MEASURED | {"calls": 1e400}])), "measured[0]: expected"),
    (document(row(measured=[MEASURED | {"built_in_calls": 1e400}])), "measured[0]: expected"),
    (document(row(measured=[MEASURED | {"us": [1, 10**400, 10**401]}])), "measured[0]: expected"),
    (document(row(measured=[MEASURED | {"bytes": 1e400}])), "measured[0]: inf is not a size"),
    (document(row(when={"bytes": 1e400})), "when.bytes: inf"),
    (document(row(use={"segment": 1e400})), "inf"),
    (document(row(measured=[{"bits": 8}])), "measured[0]: unknown key 'bits'; did you mean"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "said"), WRONG)
def test_what_is_wrong_with_rows_is_named(tmp_path, content, said):
    with pytest.raises(TunedError) as raised:
        read_rows(tmp_path, content)
    assert str(raised.value).startswith(f"{tmp_path / 'rows.json'}: ")
    assert said in str(raised.value)


def test_a_table_that_keeps_everything_has_no_rows(tmp_path):
    kept = table(replace(POINTS[0], keeps=True))
    assert read_rows(tmp_path, as_text(chosen(kept))).rows == ()
    assert "rules: []" in as_rules(kept)


def test_rows_name_the_versions_of_points_that_differ_from_the_table(tmp_path):
    conditions = Conditions("int8", fresh=True)
    older = replace(POINTS[0], machine=replace(HERE, han="0.0.1"), conditions=conditions)
    rows = read_rows(tmp_path, as_text(table(older, *POINTS[1:])))
    told = [m.versions for m in rows.rows[0].measured]
    assert told == ["MPICH 5.0, han 0.0.1", ""]
    told = told_of(rows, 4 * KiB, TWO)[-1]
    assert told.endswith("task, MPICH 5.0, han 0.0.1, int8, data written before each call")


def test_an_edited_row_is_another_table(tmp_path):
    text = as_text(table(*POINTS))
    before, spaced = read_rows(tmp_path, text), read_rows(tmp_path, text + "\n")
    after = read_rows(tmp_path, text.replace('"window": 4', '"window": 8'))
    assert before.digest == spaced.digest != after.digest
