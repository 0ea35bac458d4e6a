"""The table of collectives: every row has what a collective needs elsewhere."""

import pytest

import han
from han.message import parsers
from han.model.collectives import (
    BY_BLOCKS,
    COLLECTIVES,
    FLAT,
    REDUCING,
    ROWS,
    SPREADING,
    TREE,
    Collective,
    add,
    calls,
    carried,
    carried_as,
    problem_of,
)
from han.model.program import MAX_STREAMS, Coll
from han.model.topology import MAX_LEVELS
from han.neighbours import CALLS
from han.submodules.registry import registered
from han.tasks.spec import SPECS
from han.tasks.spec import UNEVEN as UNEVEN_SPECS

PARSERS = {p.name.lower(): p for p in vars(parsers).values() if isinstance(p, parsers.Parser)}


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_a_collective_has_specification_parsers_and_methods(row):
    assert row.name in SPECS
    assert (row.name in UNEVEN_SPECS) == (row.uneven or row.own)
    for call in (row.method, *row.carries):
        method = call.capitalize()
        neighbours = method in CALLS  # each communicator has parsers of its own
        assert neighbours or call.lower() in PARSERS
        own = "vector_collectives" if row.own else "scans" if row.prefix else "collectives"
        for name in (method, f"I{method.lower()}", f"{method}_init"):
            found = getattr(han.Topocomm, name).__module__
            assert found == ("han.neighbours" if neighbours else f"han.{own}")


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_a_submodule_serves_it(row):
    kinds = [set(a.kinds) for part in registered().values() for a in part.algorithms.values()]
    assert any(set(row.task_kinds) <= served for served in kinds)


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_what_a_row_says_fits_together(row):
    assert problem_of(row) is None
    assert not row.by_blocks or row.letter or row.own


def test_names_letters_and_codes_are_of_one_collective_each():
    assert len({row.code for row in ROWS.values()}) == len(ROWS)
    letters = [row.letter for row in ROWS.values() if row.letter]
    assert len(set(letters)) == len(letters)
    assert not set(carried_as()) & set(ROWS)


def test_an_added_collective_is_in_every_table(monkeypatch):
    monkeypatch.setattr("han.model.collectives.ROWS", dict(ROWS))
    row = Collective(
        "everything", "Everything", Coll.ALLTOALL, "each", "each", letter="v", reduces=True,
        carries=("everythingv",),
    )  # fmt: skip
    add(row)
    for names in (COLLECTIVES, BY_BLOCKS, SPREADING, REDUCING):
        assert "everything" in names
        assert names[-1] == "everything"
    assert carried("everythingv") == "everything"
    assert {"everything", "everythingv"} <= {*calls()}
    for taken in (row, row._replace(name="other"), row._replace(name="other", letter="o")):
        with pytest.raises(ValueError, match=r"'other'|'everything'"):
            add(taken)
    good = row._replace(name="other", letter="o", carries=())
    for change in (
        {"name": "Other2"}, {"kinds": ("scan",)}, {"kinds": ("reduce",)}, {"letter": ""},
        {"at_root": "recv"}, {"replaces": True, "send": "once"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"'[Oo]ther2?': "):
            add(good._replace(**change))
    large = good._replace(
        name="large", send="once", recv="once", letter="l", carries=(), kinds=("reduce",)
    )
    streams = MAX_LEVELS * (len(TREE) + 1) + len(FLAT)
    with pytest.raises(ValueError, match=f"{streams} streams, at most {MAX_STREAMS}"):
        add(large)
    assert "large" not in COLLECTIVES
