"""The commands ``han setup-costs`` and ``han waits`` on one rank; times are not checked."""

import json
from unittest.mock import Mock

import pytest
from commands import call
from mpi4py import MPI

from han.config.parts import POLICIES
from han.measure import session
from han.measure.setup_costs import PARTS, SetupCosts
from han.measure.waits import MPI_LIBRARY, _after, _rounds
from han.model.collectives import COLLECTIVES
from han.runtime.roots import Roots

QUICK = ("--rounds", "1", "--iterations", "2", "8,1KiB")


def costs(**times):
    return SetupCosts("bcast", 8, **{part: times.get(part, 0.0) for part in PARTS})


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"init": 100, "first": 10, "cached": 10, "persistent": 9}, 101),
        ({"init": 10, "first": 100, "cached": 2, "persistent": 1}, 1),
        ({"init": 10, "first": 10, "cached": 2, "persistent": 2}, None),
        ({"init": 10, "first": 10, "cached": 2, "persistent": 1.95}, None),
        ({"init": 10, "first": 5, "cached": 1, "persistent": 2}, None),
    ],
)
def test_when_a_persistent_request_pays(times, expected):
    found = costs(**times)
    assert found.pays == expected
    if expected is not None and expected > 1:
        before, after = found.per_call(expected - 1), found.per_call(expected)
        assert before["persistent"] >= before["blocking"]
        assert after["persistent"] < after["blocking"]


def test_the_table_has_a_row_for_each_case():
    text = call("setup-costs", *QUICK).splitlines()
    assert text[0].startswith("# han "), "the machine comes first"
    lines = [line for line in text if not line.startswith("#")]
    assert "microseconds" in lines[0]
    found = sorted(line.split()[0] for line in lines[2:])
    assert found == sorted(c for c in COLLECTIVES for _ in range(1 + (c != "barrier")))


def test_json_and_pictures(tmp_path):
    record = json.loads(call("setup-costs", "allreduce", *QUICK, "--json", "-"))
    assert [row["nbytes"] for row in record["rows"]] == [8, 1024]
    assert record["settings"] == {"rounds": 1, "iterations": 2, "seconds": 0.3}
    assert record["parts"] == PARTS
    assert all(row[part] > 0 for row in record["rows"] for part in PARTS)
    call("setup-costs", "allreduce", *QUICK, "--plot", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_each_round_has_room_for_a_root(monkeypatch):
    roots = Roots()
    add = Mock(wraps=roots.add)
    monkeypatch.setattr(roots, "add", add)
    monkeypatch.setattr(session, "ROOTS", roots)
    monkeypatch.setattr("han.runtime.making.ROOTS", roots)
    call("setup-costs", "barrier", "--rounds", "9", "--iterations", "1")
    assert add.call_count >= 10, "a root in each round, and in that before them"
    assert len(roots.made) == 1, "each takes the place of the one before"
    roots.room = 0
    session.begin_anew()
    assert roots.room == 1


# ---- han waits ----------------------------------------------------------------------------------


SHORT = ("--rounds", "2", "--time", "0", "8,1KiB")


def test_every_policy_is_measured():
    record = json.loads(call("waits", *SHORT, "--json", "-"))
    assert [(row["nbytes"], row["policy"]) for row in record["rows"]] == [
        (nbytes, policy) for nbytes in (8, 1024) for policy in (*POLICIES, MPI_LIBRARY)
    ]
    assert all(row["low"] <= row["median"] <= row["high"] for row in record["rows"])
    assert record["settings"] == {"rounds": 2, "seconds": 0, "work": 0}


def test_the_table_says_which_is_best():
    lines = call("waits", "barrier", *SHORT, "--policies", "futex,yield").splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["futex", "yield", "MPI"]
    assert any(line.endswith("1.00x") for line in lines)


def test_rank_0_does_not_work():
    assert _rounds(MPI.COMM_SELF, 0.5) == 0
    done = []
    _after(3, lambda: done.append("called"))()
    assert done == ["called"]


def test_work_is_part_of_every_call_of_the_other_ranks():
    class Other:
        rank = 1

        def bcast(self, value):
            return 12345

    assert _rounds(Other(), 1e-3) == 12345
