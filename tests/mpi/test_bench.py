"""Benchmarks on several ranks: their calls, checks and reports, but not their times."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from _support import WORLD
from commands import call, refuse
from mpi4py import MPI

from han.common.errors import ArgumentError, WrongResultError
from han.measure.ablation import BUILT_IN, VARIANTS
from han.measure.bench import Bench, Settings
from han.measure.bench_calls import Buffers, prepare
from han.measure.limits import MOVING
from han.measure.modes import Mode
from han.measure.program_rows import ProgramRow, Work
from han.measure.programs import GROUPS, Programs
from han.model.collectives import COLLECTIVES, DATALESS
from han.ranks.machine import fingerprint
from han.tuning.tuned.files import as_text, write
from han.tuning.tuned.find import user_folder
from han.tuning.tuned.table import of_points

usual = pytest.mark.mpi(ranks=2, timeout=120, unit="s")
on_ranks = pytest.mark.mpi(ranks=[2, 3], timeout=120, unit="s")


def rows_of(bench, collective, *sizes):
    wanted = (0,) if collective in DATALESS else sizes
    return [bench.measure(bench.settings.case(collective, nbytes)) for nbytes in wanted]


ALL_VARIANTS = True  # the first MPI library runs all of them, the others none
QUICK = Settings(rounds=2, iterations=2, seconds=0)
CONFIG = {"levels": [{"name": "node", "scope": {"size": 2}}, {"name": "network", "scope": "all"}]}


@on_ranks
@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_every_collective_is_measured_on_both_sides(mpi_ranks, mode):
    settings = Settings(mode, rounds=2, iterations=2, root=mpi_ranks - 1)
    with Bench(MPI.COMM_WORLD, CONFIG, settings) as bench:
        for collective in COLLECTIVES:
            rows = rows_of(bench, collective, 0, 8, 4096)
            assert [row.nbytes for row in rows] == (
                [0] if collective == "barrier" else [0, 8, 4096]
            )
            for row in rows:
                assert set(row.times) == {"han", "mpi"}
                assert all(t.low <= t.median <= t.high for t in row.times.values())
                assert all(t.calls == 2 for t in row.times.values())


@on_ranks
@pytest.mark.parametrize(
    ("dtype", "op"), [("int32", "max"), ("complex64", "prod"), ("bool", "lxor")]
)
def test_types_and_operations(mpi_ranks, dtype, op):
    settings = Settings(dtype=dtype, op=op, rounds=1, iterations=1)
    with Bench(MPI.COMM_WORLD, None, settings) as bench:
        for collective in ("reduce", "allreduce"):
            assert [row.nbytes for row in rows_of(bench, collective, 64)] == [64]


def test_batches_are_as_long_on_every_rank(mpi_ranks):
    with Bench(WORLD, None, Settings(rounds=1, seconds=0)) as bench:
        (row,) = rows_of(bench, "bcast", 8)
    assert len(set(WORLD.allgather(tuple(t.calls for t in row.times.values())))) == 1


def test_a_ratio_lies_in_its_interval(mpi_ranks):
    with Bench(WORLD, None, Settings(rounds=7, seconds=0, iterations=1)) as bench:
        (row,) = rows_of(bench, "bcast", 8)
        (alone,) = rows_of(bench, "barrier", 0)
    for one in (row, alone):
        assert one.interval[0] <= one.ratio <= one.interval[1]
        assert one.record()["ratio_low"] == one.interval[0]


def test_a_wrong_result_is_found_on_all_ranks(mpi_ranks, monkeypatch):
    bench = Bench(MPI.COMM_WORLD, None, QUICK)
    right = Buffers.result

    def result(self):
        found = right(self).copy()
        if self.rank == 1 and not hasattr(self, "spoilt"):
            self.spoilt = True
            found[5] ^= 1
        return found

    monkeypatch.setattr(Buffers, "result", result)
    with pytest.raises(WrongResultError, match="rank 1: 1 bytes differ, the first at offset 5"):
        bench.measure(QUICK.case("allreduce", 64))


def test_no_comparison_when_it_is_not_wanted(mpi_ranks, monkeypatch):
    monkeypatch.setattr(Buffers, "result", None)
    settings = Settings(rounds=1, iterations=1, check=False, only="han")
    with Bench(MPI.COMM_WORLD, None, settings) as bench:
        (row,) = rows_of(bench, "bcast", 8)
    assert list(row.times) == ["han"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", r"damaged, not JSON: .*; tune it again$"),
        (None, "cannot be read: No such file or directory; make one with han tune$"),
        (as_text(of_points((), replace(fingerprint(), cores=99))), "cores: .* there; make one"),
    ],
)
def test_a_table_that_is_no_use_is_told_of_once(tmp_path, text, said):
    path = tmp_path / "mine.json"
    if text is not None:
        path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ArgumentError, match=f"no tuned table: {path}: .*{said}") as error:
            Bench(MPI.COMM_SELF, {"tuned": str(path)}, Settings(tuned=True))
    assert "built-in" not in str(error.value)


def test_other_tables_that_are_no_use_are_told_of(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = user_folder()
    write(folder / "good.json", of_points((), fingerprint()))
    (folder / "bad.json").write_text("{")
    with pytest.warns(UserWarning, match="bad.json: damaged"):
        bench = Bench(MPI.COMM_SELF, None, Settings(tuned=True))
    with bench:
        assert bench.han._han.parts.given.tuned.table.source == str(folder / "good.json")


def test_tuned_choices_are_measured_beside_the_built_in_ones(mpi_ranks, tmp_path):
    settings = Settings(rounds=1, iterations=2, tuned=True)
    with pytest.raises(ArgumentError, match="no tuned table: none in"):
        Bench(MPI.COMM_WORLD, None, settings)
    path = MPI.COMM_WORLD.bcast(tmp_path / "tuned.json")
    if not MPI.COMM_WORLD.rank:
        write(path, of_points((), fingerprint()))
    MPI.COMM_WORLD.Barrier()
    with Bench(MPI.COMM_WORLD, {"tuned": str(path)}, settings) as bench:
        (row,) = rows_of(bench, "bcast", 8)
        assert list(row.times) == ["han", "default", "mpi"]
        assert row.gain.median == row.record()["gain"]
        assert row.gain.median == row.times["default"].median / row.times["han"].median
        assert row.record()["gain_low"] <= row.gain.median <= row.record()["gain_high"]
        assert bench.comms["default"]._han.parts.given.tuned.table is None
    with Bench(MPI.COMM_WORLD, {"tuned": str(path)}, replace(settings, tuned=False)) as bench:
        assert bench.han._han.parts.given.tuned.table is None
        (row,) = rows_of(bench, "bcast", 8)
        assert row.gain is None


def test_a_library_without_persistent_collectives_is_measured_blocking(mpi_ranks):
    class Old(MPI.Intracomm):
        def Allreduce_init(self, *_):
            raise NotImplementedError

    buffers = Buffers(QUICK.case("allreduce", 64), MPI.COMM_WORLD.rank, 2)
    prepared = prepare(Old(MPI.COMM_WORLD), buffers, Mode.PERSISTENT)
    prepared.call()
    assert "no persistent allreduce" in prepared.note
    np.testing.assert_array_less(1, buffers.recv)


def osu_tables(*arguments):
    """Return the rows of each table that rank 0 prints, and the whole text."""
    text = call("bench", *arguments, "--osu", "--iterations", "3")
    tables = {}
    for part in text.split("\n# OSU MPI ")[1:]:
        title, *lines = part.splitlines()
        rows = [line.split() for line in lines if line and line[0] != "#"]
        tables[title.partition(" Latency")[0]] = rows
    return tables, text


@pytest.mark.parametrize("side", ["han", "mpi"])
def test_tables_are_those_of_osu(mpi_ranks, side):
    wanted = "allreduce,bcast,barrier,reduce_scatter"
    tables, text = osu_tables(wanted, "4,16KiB", "--only", side)
    if MPI.COMM_WORLD.rank:
        return
    heads = ["Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations"]
    assert "# Size    " + "".join(f"{one:>{20 if '(' in one else 12}}" for one in heads) in text
    sizes = {name: [row[0] for row in rows] for name, rows in tables.items()}
    assert sizes["Allreduce"] == sizes["Broadcast"] == ["4", "16384"]
    assert sizes["Reduce_scatter_block"] == ["8", "32768"]  # of the whole vector
    for rows in tables.values():
        for *_, average, least, greatest, calls in rows:
            assert 0 <= float(least) <= float(average) <= float(greatest)
            assert calls == "3"
    assert len(tables["Barrier"][0]) == 4
    assert ("of han bench: han on" in text) == (side == "han")


def test_tables_of_osu_for_persistent_calls_and_types(mpi_ranks):
    tables, text = osu_tables("allreduce", "8", "--mode", "persistent", "--dtype", "f8")
    if not MPI.COMM_WORLD.rank:
        assert [*tables] == ["Allreduce Persistent"]
        assert "# Datatype: float64." in text


def test_what_says_nothing_about_tables_of_osu_is_refused(mpi_ranks):
    assert "--rounds has no meaning with --osu" in refuse("bench", "--osu", "--rounds", "2")
    assert "overlap" in refuse("bench", "--osu", "--mode", "nonblocking")
    assert "did you mean 'allreduce'" in refuse("bench", "--osu", "alreduce")


def test_rank_0_alone_prints(mpi_ranks):
    arguments = ["bench", "allreduce", "8,64KiB", "--rounds", "1", "--iterations", "1"]
    text = call(*arguments, "--shared", "--mode", "persistent", "--json", "-")
    if MPI.COMM_WORLD.rank:
        assert text == ""
    else:
        found = json.loads(text)
        assert found["machine"]["ranks"] == 2
        assert found["settings"]["shared"]
        assert not found["settings"]["fresh"]


def test_data_that_is_written_anew_before_each_call(mpi_ranks):
    for name in ("bcast", "scatter", "allgather"):
        buffers = Buffers(QUICK.case(name, 64), MPI.COMM_WORLD.rank, 2)
        buffers.write()
        prepare(MPI.COMM_WORLD, buffers, Mode.BLOCKING).call()
        np.testing.assert_array_equal(buffers.recv, 1)
    with Bench(MPI.COMM_WORLD, None, replace(QUICK, fresh=True)) as running:
        for name in ("bcast", "allreduce"):
            assert all(row.ratio > 0 for row in rows_of(running, name, 64, 1 << 17))


def test_info_shows_the_groups(mpi_ranks):
    text = call("info", "--config", "virtual-2x2")
    assert ("ranks [0-1]" in text) == (MPI.COMM_WORLD.rank == 0)


def test_info_shows_rails_and_adapters_that_contradict_them(mpi_ranks, tmp_path, monkeypatch):
    monkeypatch.setenv("FI_TCP_IFACE", "lo")
    (tmp_path / "rails.yaml").write_text("rails: {count: 2}")
    text = call("info", "--config", tmp_path / "rails.yaml")
    if not MPI.COMM_WORLD.rank:
        assert "2 rails a node; 0: ranks 0; 1: ranks 1" in text
        assert "lo: ranks 0-1" in text
        assert "have rails 0 and 1, but FI_TCP_IFACE is lo for both" in text


@on_ranks
def test_limits_of_all_collectives_and_what_has_none(mpi_ranks, tmp_path):
    record = tmp_path / "limits.json"
    arguments = ["limits", *MOVING, "8,256KiB", "--rounds", "2", "--time", "0"]
    call(*arguments, "--json", record)
    if not MPI.COMM_WORLD.rank:
        rows = json.loads(record.read_text())["rows"]
        kinds = [(row["collective"], row["nbytes"], row["shared"]) for row in rows]
        sizes = (8, 256 << 10)
        assert kinds == [(c, n, s) for s in (True, False) for c in MOVING for n in sizes]
        moved = {kind: row["moved"] for kind, row in zip(kinds, rows, strict=True)}
        assert moved["bcast", 256 << 10, True] == (mpi_ranks - 1) * 256 << 10
    config = tmp_path / "rules.yaml"
    config.write_text("rules: [{use: {levels: {node: {submodule: mpi}}}}]")
    said = refuse("limits", "bcast", "8", "--config", config)
    assert "the MPI library moves a part of the data" in said


@pytest.mark.mpi(ranks=5, timeout=120, unit="s")
def test_an_ablation_measures_all_that_can_be_left_out(mpi_ranks, tmp_path):
    record = tmp_path / "ablation.json"
    arguments = ["ablation", "8,64KiB", "--rounds", "1", "--iterations", "1"]
    config = tmp_path / "sockets.yaml"
    config.write_text("sockets: {size: 2}\nmemory: 1MiB\n")
    written = ["--json", record, "--plot", tmp_path / "a.png", "--config", config]
    text = call(*arguments, *written)
    if MPI.COMM_WORLD.rank:
        return
    rows = json.loads(record.read_text())["rows"]
    names = {row["variant"] for row in rows}
    assert names == {BUILT_IN, *(variant.name for variant in VARIANTS)}
    assert all(row["low"] <= row["ratio"] <= row["high"] for row in rows)
    assert {row["ratio"] for row in rows if row["variant"] == BUILT_IN} == {1.0}
    assert all(name in text for name in names)


def programs(folder, *options):
    """Measure programs; return what is printed, and the rows that rank 0 writes."""
    record = folder / "found.json"
    text = call("bench", *options, "--rounds", "1", "--time", "0", "--json", record)
    rows = [] if MPI.COMM_WORLD.rank else json.loads(record.read_text())["rows"]
    assert all(row["ratio"] > 0 or row["note"] for row in rows)
    return text, rows


@on_ranks
def test_programs_are_measured_on_both_sides(mpi_ranks, tmp_path):
    text, rows = programs(tmp_path, "--programs")
    if not MPI.COMM_WORLD.rank:
        assert {row["group"] for row in rows} == {*GROUPS}
        assert all(row["name"] in text for row in rows)


def test_calls_that_stay_mpis_are_measured_on_both_sides(mpi_ranks, tmp_path):
    apart = tmp_path / "apart.yaml"
    apart.write_text("levels:\n- {name: node, scope: {size: 1}}\n- {name: network, scope: all}\n")
    _, rows = programs(tmp_path, "--left", "--config", apart)
    if not MPI.COMM_WORLD.rank:
        assert {row["group"] for row in rows} == {"left"}
        names = " ".join(row["name"] for row in rows)
        assert all(method in names for method in ("Alltoall of", "Iscatter of", "Barrier_init"))


def test_a_wrong_result_of_a_program_is_found_on_all_ranks(mpi_ranks):
    def make(comm):
        return Work(lambda: None, [np.ones(2) * (comm is bench.han and comm.rank)])

    bench = Programs(MPI.COMM_WORLD, None, Settings(rounds=1, seconds=0))
    with pytest.raises(WrongResultError, match=r"spellings, odd: .* on rank\(s\) 1"):
        bench.measure(ProgramRow("spellings", "odd", make))
