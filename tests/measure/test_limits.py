"""The command ``han limits`` on one rank, and the bytes of a call; times are not checked."""

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import call, refuse
from machines import topology_of

from han import _native
from han.explain import make_signature
from han.measure.limits import OWN, WAYS, MovedBytes, pieces_of
from han.model.element_types import kernel
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower

QUICK = ("--rounds", "2", "--time", "0")
NBYTES = 3 << 20


def work(collective, submodule, algorithm, rank, mapped=False, size=3):
    signature = replace(make_signature(collective, NBYTES), mapped=mapped)
    choice = Choice((level_choice(submodule, algorithm),))
    plan = plan_of_choice(topology_of([[0] * size], 0), signature, choice, 64 << 20)
    return pieces_of(lower(plan, rank), signature.element, [range(size)])


def test_work_is_what_a_rank_copies_and_combines():
    assert work("bcast", "sm", "flat", 0) == work("bcast", "sm", "flat", 1)
    assert work("bcast", "sm", "flat", 1) == [MovedBytes(False, OWN, NBYTES)]
    assert work("bcast", "solo", "pull", 0) == []
    assert work("bcast", "solo", "pull", 1) == [MovedBytes(False, OWN, NBYTES)]


def test_work_on_shared_arrays_is_done_from_those_of_the_same_peers():
    assert work("bcast", "solo", "pull", 2, mapped=True) == [MovedBytes(False, 0, NBYTES)]
    everyone = [work("allreduce", "solo", "split", rank, mapped=True) for rank in range(3)]
    for combines in (True, False):
        shares = [p.nbytes for pieces in everyone for p in pieces if p.combines == combines]
        assert sum(shares) == 2 * NBYTES
    assert {p.peer for p in everyone[1]} == {0, 2}


def test_all_ways_do_the_same():
    a, b, out = np.arange(64.0), np.ones(64), np.zeros(64)
    raw = [x.view(np.uint8) for x in (out, a, b)]
    for way in WAYS.values():
        out[:] = 0
        way(*raw)
        np.testing.assert_array_equal(out, a + b)
        way(*raw[:2])
        np.testing.assert_array_equal(out, a)


def test_buffers_that_do_not_fit_are_refused():
    add, out = kernel("sum", "float64"), bytearray(16)
    with pytest.raises(ValueError, match="8 bytes, 16 expected"):
        _native.plain_copy(out, bytes(8))
    with pytest.raises(ValueError, match="24 bytes, 16 expected"):
        _native.plain_combine(out, bytes(16), bytes(24), add)
    with pytest.raises(ValueError, match=r"no kernel for \(99, 0\)"):
        _native.plain_combine(out, out, out, (99, 0))
    with pytest.raises(BufferError):
        _native.plain_copy(bytes(16), out)
    assert out == bytes(16)


def test_a_rank_alone_is_measured_and_written(tmp_path):
    path = tmp_path / "limits.json"
    text = call("limits", "allreduce", "8,4KiB", *QUICK, "--json", path)
    record = json.loads(path.read_text())
    assert [(row["nbytes"], row["shared"]) for row in record["rows"]] == [
        (n, shared) for shared in (True, False) for n in (8, 4096)
    ]
    assert [row["moved"] for row in record["rows"]] == [8, 4096] * 2
    assert all(row["by"] in WAYS and row["share"] > 0 for row in record["rows"])
    assert "reached" in text
    assert text.count("allreduce") == 4


def test_what_has_no_limit_is_refused():
    assert "moves nothing on 1 rank(s)" in refuse("limits", "bcast", "8", *QUICK)
