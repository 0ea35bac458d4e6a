"""The examples give the same results with MPI's calls and with han's, on any number of ranks."""

import itertools
import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import asp
import fft
import grid_solver
import kmeans
import matvec
import pca
import sample_sort
import train_digits
from _common import CommKind, Stopwatch, open_comm, part_of

ROOT = Path(__file__).resolve().parents[2]
ALL_VARIANTS = True  # the first MPI library runs all of them, the others none
CONFIG = ROOT / "configs" / "virtual-2x2.yaml"
KINDS = [CommKind.MPI, CommKind.HAN]

on_ranks = pytest.mark.mpi(ranks=[1, 3, 4], timeout=120, unit="s")
usual = pytest.mark.mpi(ranks=3, timeout=120, unit="s")
with_each = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)


def config_for(kind):
    return CONFIG if kind is CommKind.HAN else None


def open_kind(kind):
    return open_comm(kind, config_for(kind))


def watch():
    return Stopwatch("total", "compute", "communicate")


def check_found(said, capsys, main, **options):
    """Run an example that finds a wrong result on all ranks; one rank says so."""
    with pytest.raises(typer.Exit) as leaving:
        main(kind=CommKind.MPI, **options)
    assert leaving.value.exit_code == 1
    assert (said in capsys.readouterr().err) == (MPI.COMM_WORLD.rank == 0)


@on_ranks
@with_each
def test_training_learns_the_same_as_one_rank(mpi_ranks, kind):
    settings = train_digits.Settings()
    outcome = train_digits.train(open_kind(kind), settings)
    alone = train_digits.train(MPI.COMM_SELF, settings)
    assert outcome.accuracy > 0.95
    assert outcome.same_on_all_ranks
    assert outcome.allreduce == "persistent"
    assert outcome.steps == alone.steps
    assert outcome.accuracy == pytest.approx(alone.accuracy, abs=0.01)
    tolerance = train_digits.TOLERANCE[settings.dtype]
    np.testing.assert_allclose(outcome.weights, alone.weights, rtol=0, atol=tolerance)


@with_each
def test_training_in_float32_with_batches_smaller_than_the_ranks(mpi_ranks, kind):
    settings = train_digits.Settings(
        epochs=1, batch=2, hidden=8, rate=0.01, dtype=train_digits.DType.FLOAT32
    )
    outcome = train_digits.train(open_kind(kind), settings)
    assert outcome.weights.dtype == np.float32
    assert outcome.same_on_all_ranks
    assert outcome.accuracy > 0.8


def test_different_weights_are_found_on_all_ranks(mpi_ranks, monkeypatch, capsys):
    right = train_digits.descend

    def descend(WORLD, network, weights, *rest):
        result = right(WORLD, network, weights, *rest)
        weights[-1] += WORLD.rank == 1
        return result

    monkeypatch.setattr(train_digits, "descend", descend)
    check_found("different weights", capsys, train_digits.main, epochs=1, hidden=8)


def test_check_finds_weights_that_differ_from_those_of_mpi(mpi_ranks):
    settings = train_digits.Settings(epochs=1, hidden=8)
    outcome = train_digits.train(MPI.COMM_WORLD, settings)
    assert train_digits.compare(outcome, outcome, settings)["agrees_with_mpi"]
    other = train_digits.train(MPI.COMM_WORLD, train_digits.Settings(epochs=1, hidden=8, rate=0.2))
    assert not train_digits.compare(outcome, other, settings)["agrees_with_mpi"]


def test_blocking_sums_stand_in_for_persistent_ones(mpi_ranks, monkeypatch):
    settings = train_digits.Settings(epochs=1, hidden=8)
    persistent = train_digits.train(MPI.COMM_WORLD, settings)
    monkeypatch.setattr(train_digits, "prepare_sum", train_digits.BlockingSum)
    blocking = train_digits.train(MPI.COMM_WORLD, settings)
    assert blocking.allreduce.startswith("blocking")
    assert train_digits.compare(blocking, persistent, settings)["agrees_with_mpi"]


@on_ranks
@with_each
def test_shortest_paths_are_those_of_scipy(mpi_ranks, kind):
    comm = open_kind(kind)
    for n, dtype in itertools.product((1, 2, 101), asp.DType):
        graph = asp.random_graph(n, 3, seed=n, dtype=dtype)
        assert asp.is_right(comm, graph, asp.solve(comm, graph, watch()))


@on_ranks
@with_each
def test_transforms_are_those_of_numpy(mpi_ranks, kind):
    comm = open_kind(kind)
    for n in (1, 3, 64, 65):
        grid = fft.waves(n, n)
        rows = fft.transform(comm, grid[part_of(comm, n)].astype(complex), n, watch(), 2)
        assert fft.is_right(comm, grid, rows)
        assert not fft.is_right(comm, grid + 1, rows)


@on_ranks
@with_each
def test_numbers_are_sorted(mpi_ranks, kind):
    comm = open_kind(kind)
    for count in (0, 1, 5, 20_000):
        given = sample_sort.numbers(comm.rank, count * (comm.rank != 1), count)
        mine = sample_sort.sort(comm, given, watch())
        assert sample_sort.is_right(comm, given, mine)
        assert not sample_sort.is_right(comm, given, np.append(mine, 1.0))


@on_ranks
@with_each
def test_the_solution_is_that_of_scipy(mpi_ranks, kind):
    comm = open_kind(kind)
    for side in (1, 2, 7):
        found = grid_solver.solve(comm, side, 200, watch())
        assert grid_solver.is_right(comm, side, found)
        assert not grid_solver.is_right(comm, side, found._replace(part=found.part + 1))


@on_ranks
@with_each
def test_centres_are_those_of_sklearn(mpi_ranks, kind):
    comm, samples = open_kind(kind), kmeans.load_digits().data
    for clusters, most in ((1, 5), (10, 300), (7, 3)):
        first = kmeans.first_centres(samples, clusters, seed=1)
        mine = samples[part_of(comm, len(samples))]
        found = kmeans.cluster(comm, mine, first, most, watch())
        assert kmeans.is_right(comm, samples, first, most, found)
        wrong = found._replace(centres=found.centres + 0.1)
        assert not kmeans.is_right(comm, samples, first, most, wrong)


@on_ranks
@with_each
def test_components_are_those_of_sklearn(mpi_ranks, kind):
    comm, samples = open_kind(kind), pca.load_digits().data
    mine = samples[part_of(comm, len(samples))]
    for number in (1, 10, pca.MOST):
        found = pca.analyse(comm, mine, len(samples), number, 1, watch())
        assert pca.is_right(comm, samples, found)
        assert found.projected.shape == (len(mine), number)
        assert not pca.is_right(comm, samples, found._replace(rows=found.rows[:, ::-1]))


@on_ranks
@with_each
def test_the_eigenvalue_is_that_of_numpy(mpi_ranks, kind):
    comm = open_kind(kind)
    for n in (1, 3, 64, 65):
        matrix = matvec.symmetric(n, n)
        found = matvec.power(comm, matrix[part_of(comm, n)], 200, watch())
        assert matvec.is_right(comm, matrix, found)
        assert not matvec.is_right(comm, matrix + 1, found)


REPORTING = [fft, grid_solver, kmeans, matvec, pca, sample_sort]


@pytest.mark.parametrize("example", REPORTING, ids=lambda e: e.__name__)
def test_they_report_what_they_found(mpi_ranks, capsys, example):
    example.main(kind=CommKind.HAN, config=CONFIG, as_json=True)
    printed = capsys.readouterr().out
    if MPI.COMM_WORLD.rank == 0:
        record = json.loads(printed)
        assert record["ranks"] == 3
        assert record["communicate_s"] > 0


def test_they_compare_both_communicators_in_turns(mpi_ranks, capsys):
    matvec.main(config=CONFIG, n=64, steps=100, compare=3, as_json=True)
    printed = capsys.readouterr().out
    if MPI.COMM_WORLD.rank == 0:
        record = json.loads(printed)
        assert record["turns"] == 3
        assert record["agrees_with_numpy"]
        assert 0 < record["mpi_communicate_share"] < 1
        assert 0 < record["gain_least"] <= record["gain"] <= record["gain_greatest"]


def test_a_wrong_result_in_one_turn_ends_a_comparison(mpi_ranks, monkeypatch, capsys):
    answers = iter([True, False, True, True])
    monkeypatch.setattr(matvec, "is_right", lambda *_: next(answers))
    check_found("NumPy", capsys, matvec.main, n=8, steps=2, compare=2)


@with_each
def test_asp_reads_a_graph_and_prints_json(mpi_ranks, kind, tmp_path, capsys):
    path = tmp_path / "edges.txt"
    path.write_text("# u v w\n0 1 0\n0 1 5\n1 2 3\n4 0 2\n2 2 9\n")
    asp.main(kind=kind, config=config_for(kind), edges=path, as_json=True)
    printed = capsys.readouterr().out
    if MPI.COMM_WORLD.rank > 0:
        assert not printed
        return
    record = json.loads(printed)
    assert record["agrees_with_scipy"]
    assert (record["vertices"], record["edges"]) == (5, 4)
    assert (record["connected_pairs"], record["longest_distance"]) == (6, 5)


def test_wrong_paths_are_found_on_all_ranks(mpi_ranks, monkeypatch, capsys):
    right = asp.relax

    def relax(rows, row, k, scratch):
        right(rows, row, k, scratch)
        if MPI.COMM_WORLD.rank == 1:
            rows[0, 0] = 1

    monkeypatch.setattr(asp, "relax", relax)
    check_found("SciPy", capsys, asp.main, n=20)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("0 1 -5", "negative"), ("0 1 2.5", "float64"), ("0 1.5 2", "whole"), ("0 1", "u v w")],
    ids=["negative", "fraction", "vertex", "columns"],
)
def test_a_wrong_edge_list_is_refused_on_all_ranks(mpi_ranks, line, reason, tmp_path, capsys):
    path = tmp_path / "edges.txt"
    path.write_text(line)
    check_found(reason, capsys, asp.main, edges=path)


def test_the_costs_of_a_first_call_are_told(mpi_ranks, capsys):
    runpy.run_path(str(ROOT / "examples" / "first_call.py"))
    said = capsys.readouterr().out
    shape = r"import [\d.]+ ms, han.Comm [\d.]+ ms, first call [\d.]+ ms\n"
    assert re.fullmatch(shape if MPI.COMM_WORLD.rank == 0 else "", said), said
