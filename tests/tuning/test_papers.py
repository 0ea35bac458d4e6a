"""Figures of papers: each runs at a small size, and the claims that need no large machine hold."""

import json
from itertools import product

import pytest
from commands import call
from typer.testing import CliRunner

from han.cli.main import app
from han.cli.paper import FIGURES
from han.common.errors import ArgumentError
from han.config.machine import load_machine
from han.tuning.papers import jocksch, luo
from han.tuning.papers.figure import Setting, faster, fastest, wins

KiB = 1024
SMALL = {
    "bienz-5": (2, 16, (8, 64 * KiB)),
    "bienz-10": (2048, 16, ()),
    "bienz-11": (2048, 16, (8, 512, 4 * KiB, 64 * KiB)),
    "bienz-12": (8, 4, ()),
    "bienz-13": (8, 4, ()),
    "bienz-14": (16, 16, (8, 64 * KiB)),
    "bienz-15": (16, 4, (8, 16 * KiB)),
    "bienz-16": (16, 4, (8, 4 * KiB)),
    "bienz-17": (16, 4, (8, 4 * KiB)),
    "jocksch-9": (1, 8, (64, 64 * KiB)),
    "jocksch-10": (1, 12, (64, 64 * KiB)),
    "jocksch-11": (1, 12, (64, 64 * KiB)),
    "jocksch-12": (1, 8, (64, 64 * KiB)),
    "jocksch-13": (4, 4, (64, 64 * KiB)),
    "han-4": (3, 2, (512 * KiB,)),
    "han-7": (3, 2, (512 * KiB,)),
    "han-10": (3, 2, (8, 512 * KiB)),
    "han-12": (3, 2, (8, 512 * KiB)),
    "han-13": (4, 2, (8, 4096 * KiB)),
    "han-14": (4, 2, (8, 4096 * KiB)),
}


def made(name):
    row = FIGURES[name]
    nodes, ppn, sizes = SMALL.get(name, (1, 1, ()))
    return row.make(Setting(load_machine(row.machine or "two-cores"), nodes, ppn, sizes))


def holds(name):
    return [claim.holds for claim in made(name).claims]


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_has_values_and_claims(name):
    found = made(name)
    assert found.claims
    assert found.text or found.panels
    for panel in found.panels:
        assert all(len(points) and min(points.values()) > 0 for points in panel.series.values())


def test_messages_cost_more_with_distance_and_with_senders():
    assert holds("bienz-5") == [True, True]


def test_nap_is_the_fastest_for_small_sizes_and_smp_for_large_ones():
    for name in ("bienz-11", "bienz-14"):
        series = made(name).panels[0].series
        best = fastest(series)
        assert best[8] == "NAP", name
        assert best[max(best)] == "SMP", name


def test_nap_gains_with_more_ranks():
    series = made("bienz-12").panels[0].series
    gains = list(faster(series, "NAP")["than SMP"].values())
    assert gains[-1] > gains[0]
    assert max(series["NAP"]) in wins(series, "NAP")


def test_nap_on_top_of_mpi_is_faster_than_smp_inside_it():
    assert holds("bienz-16") == [True, True]


@pytest.mark.parametrize("name", ["jocksch-9", "jocksch-10", "jocksch-11"])
def test_flexible_factors_beat_messages_inside_a_node(name):
    for panel in made(name).panels:
        assert set(fastest(panel.series).values()) == {jocksch.OURS}


def test_figure_3_and_table_1():
    assert holds("jocksch-3") == [True]
    assert holds("jocksch-table-1") == [True, True, True]


def test_counts_of_factorisations_are_those_of_lists():
    for tasks in range(2, 40):
        assert jocksch.count_recursive(tasks) == len({*jocksch.recursive(tasks)})
        assert jocksch.count_cyclic(tasks) == len({*jocksch.cyclic(tasks)})
    assert jocksch.count_recursive(1) == 1


def test_the_cost_model_estimates_what_the_simulator_finds():
    simulated, estimated = made("han-7").panels
    for name, points in simulated.series.items():
        assert estimated.series[name] == pytest.approx(points, rel=0.1)


def test_a_line_of_ordinary_arrays_does_not_depend_on_lines_of_mapped_ones(monkeypatch):
    both = made("han-7").panels
    monkeypatch.setattr(luo, "product", lambda names, _, sizes: product(names, ("sm",), sizes))
    for with_others, alone in zip(both, made("han-7").panels, strict=True):
        assert alone.series
        for name, points in alone.series.items():
            assert points == with_others.series[name], name


def test_segments_of_a_broadcast_gain_by_overlap():
    points = made("han-4").panels[0].series["chain, sm"]
    assert min(points.values()) < points[max(points)]


def test_the_command_prints_tables_json_and_pictures(tmp_path):
    listed = call("paper")
    assert all(name in listed for name in FIGURES)
    picture = tmp_path / "figure.svg"
    small = ("paper", "bienz-14", "--nodes", "2", "--ppn", "2", "--bytes", "8,1KiB")
    text = call(*small, "--plot", str(picture))
    assert "as in the paper" in text
    assert "why" in text
    assert picture.read_text().count("<svg") == 1
    found = json.loads(call(*small, "--json"))
    assert found["nodes"] == 2
    assert {*found["panels"][0]["series"]} == {"recursive doubling", "SMP", "NAP"}
    assert all({"paper", "here", "holds"} == {*claim} for claim in found["claims"])
    assert "FRAC 4 RECVFROM 1" in call("paper", "jocksch-3")


def test_an_unknown_figure_is_told_with_the_known_ones():
    done = CliRunner().invoke(app, ["paper", "bienz-l0"])
    assert isinstance(done.exception, ArgumentError)
    assert "Known: bienz-10" in str(done.exception)
