"""``han bench --programs`` on one rank: rows, mixes, tables and JSON."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from commands import call, refuse
from mpi4py import MPI

from han.common.errors import ArgumentError, WrongResultError
from han.measure.bench import Settings
from han.measure.program_mix import DEFAULT
from han.measure.program_rows import ProgramRow, Work
from han.measure.program_sizes import BLOCKS, CHUNK, LARGE, SMALL, counts_of, passes, repeated_sizes
from han.measure.programs import GROUPS, ProgramResult, Programs, chosen, mean_ratio, summary
from han.model.measurements import Times
from han.model.recorded import BLOCKING, MAKING, NONBLOCKING, PERSISTENT, Mix, Recorded, read_mix

QUICK = ("--rounds", "2", "--time", "0")


def times(median):
    return Times(median, median / 2, median * 2, 10)


def result(group, name, mpi, library_times=1.0):
    return ProgramResult(group, name, {"han": times(library_times), "mpi": times(mpi)})


def test_rows_are_of_known_groups_and_can_be_chosen():
    rows = chosen()
    assert list(dict.fromkeys(row.group for row in rows)) == list(GROUPS)
    names = [name for row in rows for name in (getattr(row, "passes", None) or (row.name,))]
    assert len(names) == len(set(names))
    assert {row.group for row in chosen(["sizes", "mixed"])} == {"sizes", "mixed"}
    with pytest.raises(ArgumentError, match="unknown group of rows"):
        chosen(["spelings"])


def test_sizes_are_different_and_in_the_same_order_on_all_ranks():
    for sizes in (SMALL, LARGE, BLOCKS):
        counts = sizes.counts()
        assert counts == sizes.counts() != sorted(counts)
        assert len(set(counts)) == sizes.count
        assert sizes.least <= 8 * min(counts) <= 8 * max(counts) <= sizes.most


# ---- recorded mixes -----------------------------------------------------------------------------


def record(folder, *rows, **more):
    path = folder / "stats.json"
    keys = ("call", "ranks", "calls", "nbytes")
    data = {"format": "han-stats", "version": 2, "rows": [dict(zip(keys, r)) for r in rows]}  # noqa: B905
    path.write_text(json.dumps(data | more))
    return path


ROWS = (
    ("Allreduce", 2, 10, 80),
    ("Ibcast", 2, 5, 5000),
    ("Allgatherv", 2, 4, 40),
    ("Allreduce_init", 2, 1, 64),
    ("Allreduce_init: Start", 2, 20, 1280),
    ("Ireduce_scatter_block", 2, 2, 2),
    ("Barrier", 2, 3, 0),
    ("Ibarrier", 2, 3, 0),
    ("Alltoallw", 2, 7, 70),
    ("bcast", 2, 6, None),
    ("Allreduce", 1, 9, 72),
)


def test_a_mix_has_the_calls_that_han_knows(tmp_path):
    mix = read_mix(record(tmp_path, *ROWS))
    assert mix.kinds == (
        Recorded("allreduce", BLOCKING, 8, 10),
        Recorded("bcast", NONBLOCKING, 1000, 5),
        Recorded("allgather", BLOCKING, 8, 4),
        Recorded("allreduce", MAKING, 64, 1),
        Recorded("allreduce", PERSISTENT, 64, 20),
        Recorded("reduce_scatter", NONBLOCKING, 8, 2),
        Recorded("barrier", BLOCKING, 0, 3),
        Recorded("barrier", NONBLOCKING, 0, 3),
    )
    assert (mix.name, mix.others) == ("stats", 13)


def test_a_sequence_is_the_same_everywhere_and_has_the_weights():
    often, seldom = Recorded("bcast", BLOCKING, 8, 30), Recorded("barrier", BLOCKING, 0, 10)
    mix = Mix("two", (often, seldom), 0)
    calls = mix.sequence(4000)
    assert calls == mix.sequence(4000)
    assert 2800 < Counter(calls)[often] < 3200


def test_files_that_are_no_records_of_statistics(tmp_path):
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_mix(tmp_path / "none.json")
    with pytest.raises(ArgumentError, match="its format is not han-stats"):
        read_mix(record(tmp_path, format="han-bench"))
    with pytest.raises(ArgumentError, match="version 1"):
        read_mix(record(tmp_path, version=1))
    with pytest.raises(ArgumentError, match=r"rows\.0\.ranks"):
        read_mix(record(tmp_path, ("Bcast", 0, 1, 8)))
    with pytest.raises(ArgumentError, match="no collective of several ranks"):
        read_mix(record(tmp_path, ("Bcast", 1, 1, 8), ("Alltoallw", 2, 1, 8)))


def test_han_has_a_mix():
    assert sum(kind.calls for kind in read_mix(DEFAULT).kinds) > 0


# ---- results ------------------------------------------------------------------------------------


def test_means_and_the_least_ratio():
    rows = [
        result("a", "one", 4.0), result("a", "two", 0.5), result("b", "three", 0.25),
        ProgramResult("b", "four", {}, "the MPI library does not have it"),
    ]  # fmt: skip
    assert mean_ratio(rows) == pytest.approx(0.5 ** (1 / 3))
    assert [row.low for row in rows] == [False, True, True, False]
    assert summary(rows).splitlines() == [
        "# ratios: geometric mean 0.79 (a 1.4, b 0.25)",
        "# 2 of 3 rows below 0.9, the least 0.25: three",
    ]
    assert mean_ratio(rows[3:]) is None
    assert summary(rows[3:]) == "# nothing was measured"


def test_batches_fill_the_time_but_are_not_too_short():
    assert Settings(rounds=10, seconds=0.2).batch_seconds == pytest.approx(0.01)
    assert Settings(seconds=0).batch_seconds == 0.002
    assert Settings(rounds=3, seconds=6).batch_seconds == 1


# ---- on one rank --------------------------------------------------------------------------------


@pytest.fixture
def running():
    with Programs(MPI.COMM_WORLD, None, Settings(rounds=2, seconds=0)) as programs:
        yield programs


def test_a_wrong_result_is_found(running):
    def make(comm):
        return Work(lambda: None, [[1.0, 2.0 if comm is running.han else 3.0]])

    row = ProgramRow("spellings", "wrong", make)
    with pytest.raises(WrongResultError, match=r"spellings, wrong: .* on rank\(s\) 0"):
        running.measure(row)
    running.settings = replace(running.settings, check=False)
    assert running.measure(row)[0].ratio > 0


def test_a_row_that_the_library_does_not_have(running):
    def make(comm):
        raise NotImplementedError

    (found,) = running.measure(ProgramRow("persistent", "unknown", make))
    assert (found.times, found.ratio) == ({}, None)
    assert "does not have it" in found.note


def test_a_pass_ends_in_time_and_the_second_one_has_the_same_calls(running):
    assert passes(running, running.comms, SMALL, 0).calls == CHUNK
    assert passes(running, running.comms, BLOCKS, 0).calls == CHUNK
    assert counts_of(9, 3, 0) == [9, 6, 3]
    assert counts_of(10, 3, 5) == [7, 4, 10]
    assert passes(running, running.comms, LARGE, 1e6).calls == LARGE.count


def test_the_last_pass_repeats_sizes_of_the_same_distribution():
    counts = random.Random(1).sample(range(8 * CHUNK), 8 * CHUNK)
    repeated = repeated_sizes(counts)
    chunks = [repeated[begin : begin + CHUNK] for begin in range(0, len(counts), CHUNK)]
    assert all(len(set(chunk)) == 1 for chunk in chunks)
    assert sorted(repeated[::CHUNK]) == [CHUNK // 2 + CHUNK * group for group in range(8)]
    assert repeated[::CHUNK] != sorted(repeated[::CHUNK])
    assert sum(repeated) == sum(counts)

    assert repeated_sizes([*range(CHUNK), 98, 99]) == [CHUNK // 2] * CHUNK + [98, 98]
    assert repeated_sizes([]) == []


def test_the_table_and_json_have_all_rows(tmp_path):
    path, picture = tmp_path / "programs.json", tmp_path / "programs.png"
    text = call("bench", "--programs", *QUICK, "--json", path, "--plot", picture)
    found = json.loads(path.read_text())
    assert found["settings"] == {
        "rounds": 2, "seconds": 0.0, "check": True, "mix": DEFAULT.name,
    }  # fmt: skip
    assert [row["group"] for row in found["rows"]] == sorted(
        (row["group"] for row in found["rows"]), key=GROUPS.index
    )
    assert all(row["ratio"] > 0 and row["han"]["calls"] > 0 for row in found["rows"])
    assert all(row["name"] in text for row in found["rows"])
    assert "# ratios: geometric mean" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_some_groups_and_a_program_of_the_user(tmp_path):
    path = record(tmp_path, *ROWS)
    more = ("--replay", path, "--json", "-")
    found = json.loads(call("bench", "mixed", "solver", "--programs", *QUICK, *more))
    assert [row["group"] for row in found["rows"]] == ["mixed", "solver"]
    assert found["settings"]["mix"] == "stats.json"


def test_mistakes_are_told_before_anything_is_measured(tmp_path):
    assert "unknown group" in refuse("bench", "--programs", "allreduce")
    assert "sizes (8) are for" in refuse("bench", "--programs", "8")
    assert "cannot be read" in refuse("bench", "--replay", tmp_path / "none.json")
