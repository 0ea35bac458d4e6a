"""The table of built-in choices: its decisions, its rows, and files that cannot be used."""

import json
import warnings
from dataclasses import replace

import pytest
from decisions import DIGESTS, TEXT, digest, machines, shown
from plans import MEMORY, rules_of

from han.common.errors import ConfigError
from han.model.collectives import COLLECTIVES, ROWS
from han.model.facts import COMPOSITIONS
from han.model.topology import virtual
from han.ranks.discover import Settings, check_agreement
from han.submodules.registry import plan_of_choice
from han.tasks.signature import Signature
from han.tasks.verify import verify
from han.tuning.built_in import table as place
from han.tuning.built_in.choosing import BUILT_IN, NodeTraits, choose, rowed
from han.tuning.built_in.table import FILE, SECTIONS, ChoicesError, parse, safe_table, shipped
from han.tuning.explanation import Explanation
from han.tuning.row import amount_of
from han.tuning.tuned.find import find_table

KiB = 1 << 10


def allreduce(nbytes, **more):
    return Signature("allreduce", nbytes // 8, 8, "sum", "f8", **more)


def changed(**changes):
    """Return the content of the shipped file with other values of some keys; None: without it."""
    record = json.loads(FILE.read_bytes()) | changes
    return json.dumps({k: v for k, v in record.items() if v is not None}).encode()


def with_row(section, row):
    return changed(**{section: [row, *json.loads(FILE.read_bytes())[section]]})


# ---- decisions ----------------------------------------------------------------------------------


def test_usual_calls_run_what_a_file_lists():
    """If a change is meant: run tests/helpers/decisions.py, and read the difference."""
    assert shown() == TEXT.read_text(encoding="utf-8")


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_choices_of_a_large_grid_are_as_they_were(collective):
    assert digest(collective) == json.loads(DIGESTS.read_text())[collective]


def test_every_section_of_the_shipped_table_is_right():
    shipped().check()
    for section in SECTIONS:
        names = [row.name for row in shipped().rows(section)]
        assert len(names) == len(set(names)), section
    for section in ("segments", "cells", "messages", "blocks", "nap", "lanes", "ring"):
        assert not shipped().rows(section)[-1].when.collective, "the last row serves all calls"


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_safe_choices_can_serve_all_calls_that_built_in_ones_can(collective):
    row = ROWS[collective]
    for topology in machines().values():
        table = rules_of(topology)
        for nbytes, commutes in ((0, True), (8, False), (100_000, True), (100_000, False)):
            root = topology.size - 1 if row.rooted else 0
            op = "sum" if row.reduces else ""
            call = Signature(collective, nbytes // 8, 8, op, "f8", commutes, True, root)
            for name in COMPOSITIONS:
                usual = choose(call, topology, NodeTraits(), name)
                safe = rowed(call, topology, NodeTraits(), name, safe_table())
                if table.objection(call, usual) is None:
                    assert table.objection(call, safe.choice) is None, (call, topology, name)
                    assert {row for _, row in safe.rows} <= {"safe"}


def test_sizes_follow_from_calls():
    assert amount_of("64KiB") == 64 * KiB
    part = amount_of("bytes / 8, 16KiB to 128KiB")
    assert [part.value(n, 1, 2) for n in (1, 512 * KiB, 1 << 30)] == [
        16 * KiB,
        128 * KiB,
        128 * KiB,
    ]
    assert part.value(300 * KiB, 1, 2) == 64 * KiB
    assert amount_of("piece / 4, 1KiB to 2KiB").value(1, 4 * KiB, 2) == 2 * KiB
    each = amount_of("ranks * 32KiB, at least 128KiB")
    assert [each.value(1, 1, n) for n in (2, 8)] == [128 * KiB, 256 * KiB]
    for text in ("64KiB", "bytes / 8, 16KiB to 128KiB", "ranks * 32KiB, at least 128KiB"):
        found = amount_of(text)
        assert isinstance(found, int) or str(found) == text


def test_explain_names_the_rows():
    topology = virtual(8, 4)
    topology = replace(topology, memory=topology.domains[0])
    decision = rules_of(topology).decide(allreduce(1 << 20))
    where = ("segment", "level0", "network")
    assert tuple(name for name, _ in decision.rows) == where
    assert decision.rows[0] == ("segment", "large allreduce")
    plan = plan_of_choice(topology, allreduce(1 << 20), decision.choice, MEMORY)
    assert "  row       segment: large allreduce\n" in str(Explanation(plan, decision))


# ---- files that a person has changed ------------------------------------------------------------


CELL = {"submodule": "sm", "algorithm": "flat"}


def with_cell(use=CELL, **more):
    """Return the content of the shipped file with one more row for cells."""
    return with_row("cells", {"name": "a", "use": use, **more})


def first_problem(content):
    with pytest.raises(ChoicesError) as raised:
        parse(content, "file.json").check()
    return str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged, not JSON"),
        (b"\xff\xfe", "damaged, not JSON"),
        (b"[]", "its format is not han-choices"),
        (b"[" * 100_000, "nested too deep"),
        (changed(format="other"), "its format is not han-choices"),
        (changed(version=3), "version 3, this han reads version 2"),
        (changed(cell=[]), "unknown key 'cell'; did you mean 'cells'?"),
        (changed(cells=None), "the key 'cells' is missing"),
        (changed(offer="many"), "'many' is not a size"),
        (changed(machines=[{"cpu": "x"}]), "machines[0]: the key 'cores' is missing"),
        (changed(machines=3), "machines[0]: expected keys and values"),
        (changed(cells={}), "cells: expected a list of rows"),
        (with_row("cells", 3), "cells[0]: expected keys and values"),
        (with_row("cells", {"use": CELL}), "cells[0]: name: expected a text"),
        (with_row("cells", {"name": "a"}), "cells[0] 'a': the key 'use' is missing"),
        (with_cell(wen={}), "unknown key 'wen'"),
        (
            with_cell(when={"rnaks": 2}),
            "cells[0] 'a': when: unknown key 'rnaks'; did you mean 'ranks'?",
        ),
        (with_cell(when={"ranks": {"least": 2}}), "when.ranks: unknown key 'least'"),
        (with_cell(when={"bytes": {"min": 2, "max": 1}}), "when.bytes: min is larger than max"),
        (with_cell(when={"mesh": 1}), "when.mesh: expected true or false"),
        (
            with_cell(when={"collective": "bcst"}),
            "when.collective: unknown collective 'bcst'; did you mean 'bcast'?",
        ),
        (with_cell({"submodule": "smm"}), "use.submodule: unknown submodule 'smm'"),
        (
            with_cell(CELL | {"algorithm": "flt"}),
            "use.algorithm: unknown algorithm of sm 'flt'; did you mean 'flat'?",
        ),
        (
            with_cell(CELL | {"algorithm": ["flat"]}),
            "use.algorithm: unknown algorithm of sm ['flat']",
        ),
        (
            with_cell(when={"collective": [["bcast"]]}),
            "when.collective: unknown collective ['bcast']",
        ),
        (with_cell(CELL | {"cell": 2}), "did you mean 'cells'?"),
        (with_cell(CELL | {"cells": 99}), "must be at most 8"),
        (with_cell(CELL | {"chunk": "bytes / 2, 1B to 1KiB"}), "use.chunk: must be at least 64B"),
        (
            with_row("segments", {"name": "a", "segment": "half"}),
            "segments[0] 'a': segment: 'half': expected a size, 'bytes / 8",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(content, said):
    told = first_problem(content)
    assert told.startswith("file.json: ")
    assert said in told


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Let a file take the place of the shipped one."""
    path = tmp_path / "built-in.json"
    monkeypatch.setattr(place, "FILE", path)
    caches = (place.content, place.digest, place.shipped)
    for one in caches:
        one.cache_clear()
    yield path
    for one in caches:
        one.cache_clear()


@pytest.mark.parametrize("content", [None, b"{", changed(version=7), changed(cells=[{}])])
@pytest.mark.parametrize("collective", ["bcast", "allreduce"])
def test_safe_choices_take_the_place_of_a_table_that_cannot_be_used(file, content, collective):
    if content is not None:
        file.write_bytes(content)
    node, call = virtual(3), replace(allreduce(40_000), collective=collective)
    with pytest.warns(UserWarning, match=r"built-in\.json: .*; safe choices are used") as told:
        choice = choose(call, node, NodeTraits())
    assert len(told) == 1
    assert choice.levels[0].describe() == "sm flat"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose(call, node, NodeTraits()) == choice, "it is told once"
    assert verify([plan_of_choice(node, call, choice, MEMORY)] * 2).events


def test_only_the_section_that_is_wrong_is_replaced(file):
    file.write_bytes(changed(blocks=[{}]))
    node = virtual(3)
    assert choose(allreduce(1 << 20), node, NodeTraits()).levels[0].algorithm == "split"
    with pytest.warns(UserWarning, match=r"blocks\[0\]"):
        assert choose(Signature("alltoall", 8), node, NodeTraits()).levels[0].parameters == ()


def ordered_reduce(file, root, **use):
    """Decide a reduce that keeps the order, on ranks that share no memory, with a row of a file."""
    file.write_bytes(with_row("messages", {"name": "mine", "use": {"submodule": "adapt", **use}}))
    apart = replace(virtual(4), memory=(0, 1, 2, 3))
    call = replace(allreduce(1 << 20, commutative=False), collective="reduce", root=root)
    return rules_of(apart).decide(call)


def test_a_row_that_cannot_serve_a_call_is_passed_over_for_the_safe_choice(file):
    decision = ordered_reduce(file, root=2, algorithm="chain")
    assert decision.choice.levels[0].algorithm == "linear"
    ((rule, reason),) = decision.passed
    assert rule == BUILT_IN
    assert "chain" in reason or "order" in reason
    assert decision.rows == (("network", "safe"),)


def test_the_safe_choice_serves_where_a_row_differs_from_it_in_parameters_only(file):
    decision = ordered_reduce(file, root=0, algorithm="binomial", order="arrival")
    assert decision.choice.levels[0].describe() == "adapt binomial"
    assert decision.rows == (("network", "safe"),)


def test_a_row_that_a_person_adds_decides_and_changes_the_digest(file):
    before = place.digest()
    row = {
        "name": "mine", "when": {"ranks": 3, "bytes": {"min": "1KiB"}},
        "use": {"submodule": "sm", "algorithm": "kary", "radix": 3},
    }  # fmt: skip
    file.write_bytes(with_row("cells", row))
    place.content.cache_clear()
    place.digest.cache_clear()
    found = rowed(allreduce(2 * KiB), virtual(3), NodeTraits())
    assert found.rows == (("network", "mine"),)
    assert found.choice.levels[0].describe() == "sm kary (radix 3)"
    assert rowed(allreduce(512), virtual(3), NodeTraits()).rows != found.rows
    assert place.digest() != before


def test_the_shipped_table_is_no_tuned_table():
    def here():
        raise AssertionError("no table to compare with")

    found = find_table("auto", here)
    assert found.table is None
    assert "built-in" not in found.problem


def test_ranks_that_have_different_tables_are_told():
    rows = [Settings("", None, "", False, "", text) for text in ("one", "one", "other")]
    said = (
        r"the table of built-in choices differs between ranks: rank\(s\) 2 .* installation of han"
    )
    with pytest.raises(ConfigError, match=said):
        check_agreement(rows)
    assert check_agreement(rows[:2]) == ()
