"""The command ``han waits`` on one rank; times are not checked."""

import json

from commands import call, refuse
from mpi4py import MPI

import han
from han.config.parts import POLICIES
from han.measure.waits import MPI_LIBRARY, _after, _rounds

QUICK = ("--rounds", "2", "--time", "0", "--sizes", "8,1KiB")


def test_every_policy_is_measured():
    record = json.loads(call("waits", *QUICK, "--json", "-"))
    assert [(row["nbytes"], row["policy"]) for row in record["rows"]] == [
        (nbytes, policy) for nbytes in (8, 1024) for policy in (*POLICIES, MPI_LIBRARY)
    ]
    assert all(row["low"] <= row["median"] <= row["high"] for row in record["rows"])
    assert record["machine"]["ranks"] == 1
    assert (record["format"], record["version"], record["unit"]) == ("han-waits", 1, "us")
    assert record["han"] == han.__version__
    assert record["settings"] == {"rounds": 2, "seconds": 0, "work": 0}


def test_the_table_says_which_is_best():
    lines = call("waits", "barrier", *QUICK, "--policies", "futex,yield").splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["futex", "yield", "MPI"]
    assert any(line.endswith("1.00x") for line in lines)


def test_unknown_policies_are_refused():
    assert "unknown policy 'snooze'" in refuse("waits", "--policies", "snooze")


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
