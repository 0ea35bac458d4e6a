"""Statistics of collectives: classes of sizes, bytes of calls, rows of all ranks, the report."""

import json

import numpy as np
import pytest
from mpi4py import MPI
from tensors import GPU, OnDevice, Tensor

from han import statistics_report as report
from han.config.environment import PRINTED, statistics_output
from han.config.rc import rc
from han.counted_calls import OBJECTS, UNFIT, methods
from han.model.statistics import UNKNOWN, CountedCalls, Counts, Statistics, size_range

TEN = np.zeros(10)
TENS = MPI.DOUBLE.Create_contiguous(10)


class Four:
    """Stands for a communicator of four ranks."""

    def Get_size(self):
        return 4


def method(name):
    (found,) = (m for m in methods() if m.name == name)
    return found


def test_classes_of_sizes_are_powers_of_four():
    sizes = {None: UNKNOWN, 0: 0, 1: 64, 64: 64, 65: 256, 256: 256, 4096: 4096, 4097: 16384}
    assert {n: size_range(n) for n in sizes} == sizes
    assert [CountedCalls("Bcast", n, 2).size for n in (UNKNOWN, 0, 64, 4096)] == [
        "?",
        "0B",
        "<= 64B",
        "<= 4KiB",
    ]


def test_bytes_are_written_as_sizes_are():
    found = [report._short(n) for n in (8000, 65536, 1 << 20, 1.5e6, 1234.5, 80_000_000)]
    assert found == ["8000B", "64KiB", "1MiB", "1.43MiB", "1.21KiB", "76.3MiB"]


def test_the_size_of_a_call_is_that_of_its_message_or_of_one_block():
    in_place, none = MPI.IN_PLACE, None
    forty = np.zeros(40)
    cases = [
        (80, "Bcast", (TEN,), {}),
        (80, "Bcast", (), {"buf": TEN, "root": 1}),
        (24, "Bcast", ([TEN, 3],), {}),
        (12, "Bcast", ([TEN, 3, MPI.INT],), {}),
        (80, "Bcast", ([TEN, MPI.DOUBLE],), {}),
        (24, "Bcast", ([TEN, 3, "d"],), {}),
        (7, "Bcast", (bytearray(7),), {}),
        (80, "Bcast", (OnDevice(TEN),), {}),
        (80, "Allreduce", (MPI.IN_PLACE, Tensor(TEN, device=GPU)), {}),
        (0, "Barrier", (), {}),
        (80, "Iallreduce", (TEN, TEN), {}),
        (80, "Allreduce", (in_place, TEN), {}),
        (80, "Reduce", (TEN, none), {}),
        (80, "Gather", (TEN, none), {}),
        (80, "Gather", (in_place, forty), {}),
        (80, "Scatter", (none, TEN), {}),
        (80, "Scatter_init", (forty, in_place), {}),
        (80, "Alltoall", (forty, forty), {}),
        (80, "Alltoall", ([forty, 10, MPI.DOUBLE], forty), {}),
        (80, "Alltoall", ([forty, (10, 0), MPI.DOUBLE], forty), {}),
        (80, "Allgather", (in_place, [forty, 10, MPI.DOUBLE]), {}),
        (80, "Reduce_scatter_block", (in_place, forty), {}),
        (80, "Reduce_scatter_block", ([forty, 10, MPI.DOUBLE], TEN), {}),
        (80, "Reduce_scatter", ([forty, 40, MPI.DOUBLE], TEN, [10] * 4), {}),
        (80, "Allgatherv", (TEN, [forty, (10, 10, 10, 10)]), {}),
        (80, "Alltoallv", ([forty, ([10, 10, 10, 10], [0, 10, 20, 30])], forty), {}),
        (80, "Alltoallw", ([forty, ([1] * 4, [0] * 4), [TENS] * 4], forty), {}),
        (80, "Exscan", (TEN, TEN), {}),
        (80, "Neighbor_allgather", (TEN, forty), {}),
        (None, "allreduce", ({"a": 1},), {}),
        (None, "Bcast", (object(),), {}),
        (None, "Bcast", (), {}),
    ]
    for nbytes, name, args, more in cases:
        assert method(name).nbytes(Four(), args, more) == nbytes, (name, args, more)


def test_reasons():
    assert (
        method("Ineighbor_alltoallw").why
        == method("Ialltoallv").why
        == method("Gatherv_init").why
        == method("Scan").why
        == ""
    )
    assert method("neighbor_allgather").why == OBJECTS
    assert method("allreduce").why == ""
    assert method("Reduce_scatter_init").why == method("Ibcast").why == ""


RECORDS = [
    {
        CountedCalls("Bcast", 64, 2): Counts(5, 40, 2.0),
        CountedCalls("Bcast", 64, 1): Counts(7, 56, 0.5),
        CountedCalls("bcast", UNKNOWN, 1, OBJECTS): Counts(1, 0, 1.0),
    },
    {
        CountedCalls("Bcast", 64, 2): Counts(3, 90, 4.0),
        CountedCalls("Scan", 1024, 1, UNFIT): Counts(2, 2000, 1.0),
    },
]
SOME = Statistics.merged(dict(zip((0, 2), RECORDS, strict=True)), [3, 1])


def test_rows_of_all_ranks():
    first = SOME.rows[0]
    assert (first.key.call, first.key.ranks, first.callers) == ("Bcast", 2, 2)
    assert (first.least, first.median, first.most, first.seconds) == (2.0, 3.0, 4.0, 6.0)
    assert (SOME.ranks, SOME.missing) == (4, (1, 3))


def test_a_call_counts_once_however_many_ranks_make_it():
    first = SOME.rows[0]
    assert (first.calls, first.nbytes) == (4, 65)
    assert (SOME.calls, SOME.of_han().calls, SOME.seconds) == (14, 11, 8.5)
    assert {why: part.calls for why, part in SOME.reasons().items()} == {OBJECTS: 1, UNFIT: 2}
    uneven = [
        {CountedCalls("Gatherv", 64 * 4**rank, 3, UNFIT): Counts(10, 0, 1.0)} for rank in range(3)
    ]
    found = Statistics.merged(dict(enumerate(uneven)))
    assert found.calls == pytest.approx(10)
    assert [report.number(row.calls) for row in found.rows] == ["3.3"] * 3


def test_the_document_names_its_format_and_has_plain_rows():
    record = json.loads(json.dumps(SOME.document()))
    assert (record["format"], record["version"], record["ranks"]) == ("han-stats", 2, 4)
    assert (record["calls"], record["calls_of_han"], record["missing"]) == (14, 11, [1, 3])
    _, first, *_, last = sorted(record["rows"], key=lambda row: (row["call"], row["ranks"]))
    assert first == {
        "call": "Bcast", "most_bytes": 64, "ranks": 2, "by": "han", "why": "", "callers": 2,
        "calls": 4, "nbytes": 65, "seconds": 6.0, "least": 2.0, "median": 3.0, "most": 4.0,
        "late": None,
    }  # fmt: skip
    assert (last["by"], last["why"]) == ("mpi", OBJECTS)
    assert last["most_bytes"] is last["nbytes"] is None


def test_the_text_has_a_table_and_says_who_served():
    lines = report.as_text(SOME).splitlines()
    row, alone = (line.split() for line in lines if line.startswith("Bcast"))
    times = ["2.000000", "3.000000", "4.000000"]
    assert row == ["Bcast", "<=", "64B", "2", "han", "4", "65B", *times]
    assert alone[:6] == ["Bcast", "<=", "64B", "1", "han", "7"]
    assert "# han served 11 of 14 calls (76.5 % of the seconds)" in lines
    assert f"# the MPI library's own: 2 calls (11.8 % of the seconds): {UNFIT}" in lines
    assert f"# the MPI library's own: 1 call (11.8 % of the seconds): {OBJECTS}" in lines
    assert lines[-1] == "# without rank(s) 1,3, which did not end in time"
    assert "\x1b" not in "".join(lines)
    assert report.as_text(Statistics.merged({0: {}})) == "# han: no collectives on 1 rank"


def waited(call, *seconds, ranks=4):
    """Return the statistics of 20 calls, in which each rank spent some seconds."""
    key = CountedCalls(call, 16384, ranks)
    return Statistics.merged({r: {key: Counts(20, 160000, s)} for r, s in enumerate(seconds)})


def test_the_rank_that_waited_least_came_last():
    found = waited("Allreduce", 2.005, 2.004, 0.004, 2.004)
    assert (
        "# Allreduce <= 16KiB: rank 2 came last, by 100 ms in an average call; then 0.2 ms. "
        "100 % of the seconds were waiting for it"
    ) in report.as_text(found)
    late = found.document()["rows"][0]["late"]
    assert (late["rank"], late["late"]) == (2, pytest.approx(0.1))


@pytest.mark.parametrize(
    "found",
    [
        waited("Bcast", 2.0, 2.0, 0.004, 2.0),  # a root does not wait
        waited("Iallreduce", 2.0, 2.0, 0.004, 2.0),  # a rank that computes does not either
        waited("Allreduce", 2.0, 1.9, 1.8, 2.0),  # each rank is late now and then
        waited("Allreduce", 2.0, 2.0, 0.004, 2.0, ranks=2),  # two communicators
        waited("Barrier", 2e-6, 2e-6, 1e-6, 2e-6),  # not worth a word
    ],
)
def test_who_came_last_is_not_said_where_the_seconds_do_not_tell(found):
    text = report.as_text(found)
    assert "came last, by" not in text
    assert report.WHO in text


@pytest.mark.parametrize(("value", "place"), [("1", PRINTED), ("on", PRINTED), ("0", ""), ("", "")])
def test_the_variable_is_a_truth(value, place):
    assert statistics_output({"HAN_STATS": value}) == (place, None)


def test_the_variable_may_be_a_file_and_the_program_comes_first(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert statistics_output({"HAN_STATS": "s.json"}) == (str(tmp_path / "s.json"), None)
    assert "HAN_STATS = 'maybe': expected 1" in statistics_output({"HAN_STATS": "maybe"})[1]
    monkeypatch.setattr(rc, "stats", False)
    assert statistics_output({"HAN_STATS": "1"}) == ("", None)
    monkeypatch.setattr(rc, "stats", "maybe")
    assert "han.rc.stats = 'maybe'" in statistics_output({})[1]
