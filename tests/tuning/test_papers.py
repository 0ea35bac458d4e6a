"""Figures of papers: each runs at a small size, and the claims that need no large machine hold."""

import json
import re
from dataclasses import replace
from math import inf

import pytest
from commands import call
from typer.testing import CliRunner

from han.cli import paper
from han.cli.main import app
from han.cli.paper import FIGURES
from han.common.errors import ArgumentError
from han.config.machine import load_machine
from han.tuning import multi_rail
from han.tuning.formulas import faster_up_to
from han.tuning.multi_rail import Hockney
from han.tuning.papers import jocksch, luo
from han.tuning.papers.figure import Printed, Setting, faster, fastest, wins

KiB = 1024
SMALL = {
    "bienz-5": (2, 16, (8, 64 * KiB)),
    "bienz-10": (2048, 16, ()),
    "bienz-11": (2048, 16, (8, 512, 4 * KiB, 64 * KiB)),
    "bienz-12": (8, 4, ()),
    "bienz-13": (8, 4, ()),
    "bienz-14": (16, 16, (8, 64 * KiB)),
    "bienz-15": (16, 4, (8, 16 * KiB)),
    "bienz-crossover": (16, 16, ()),
    "bienz-16": (16, 4, (8, 4 * KiB)),
    "bienz-17": (16, 4, (8, 4 * KiB)),
    "jain-10": (1, 8, (64, 64 * KiB)),
    "jain-11": (1, 40, (64, 512, 8 * KiB, 64 * KiB)),
    "jain-buffers": (1, 8, (64, 64 * KiB)),
    "jain-12": (2, 4, (64, 64 * KiB)),
    "jain-13": (2, 4, (64, 64 * KiB)),
    "jocksch-9": (1, 8, (64, 64 * KiB)),
    "jocksch-10": (1, 12, (64, 64 * KiB)),
    "jocksch-11": (1, 12, (64, 64 * KiB)),
    "jocksch-12": (1, 8, (64, 64 * KiB)),
    "jocksch-13": (4, 4, (64, 64 * KiB)),
    "han-2": (3, 2, (64 * KiB,)),
    "han-3": (3, 2, (64 * KiB,)),
    "han-6": (3, 2, (64 * KiB,)),
    "han-4": (3, 2, (512 * KiB,)),
    "han-7": (3, 2, (512 * KiB,)),
    "han-10": (3, 2, (8, 512 * KiB)),
    "han-12": (3, 2, (8, 512 * KiB)),
    "han-13": (4, 2, (8, 4096 * KiB)),
    "han-14": (4, 2, (8, 4096 * KiB)),
    "tran-11": (1, 8, (1024 * KiB,)),
    "tran-12": (1, 4, (1024 * KiB,)),
    "tran-15": (32, 32, (16, 256 * KiB)),
    "tran-16": (1, 4, (256 * KiB, 1024 * KiB)),
    "tran-17": (2, 4, (256, 64 * KiB)),
    "tran-18": (1, 16, (256 * KiB, 16384 * KiB)),
    "tran-19": (8, 32, (256, 64 * KiB)),
    "tran-20": (32, 32, (256, 64 * KiB)),
    "tran-21": (2, 4, (256, 16 * KiB)),
    "tran-22": (4, 2, (256, 16 * KiB)),
    "tran-23": (4, 4, (256, 16 * KiB)),
    "tran-24": (16, 32, (128 * KiB, 8192 * KiB)),
    "tran-25": (8, 2, (128 * KiB, 1024 * KiB)),
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
    assert found.claims or "Not drawn" in " ".join(found.text)
    assert found.text or found.panels
    for panel in found.panels:
        assert all(len(points) and min(points.values()) > 0 for points in panel.series.values())
    numbers = [one for claim in found.claims for one in claim.numbers]
    assert bool(numbers) == FIGURES[name].printed
    assert all(one.what and one.paper > 0 for one in numbers)


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


def test_nap_wins_up_to_fewer_bytes_with_more_ranks_a_node():
    """More ranks share an adapter, and the crossover of the paper is that of 16."""
    modelled, simulated = (panel.series for panel in made("bienz-crossover").panels)
    assert simulated["4 a node"][16] > simulated["16 a node"][16]
    assert 1024 <= simulated["16 a node"][16] <= 4096
    assert 1024 <= modelled["16 a node"][16] <= 4096


def test_nap_on_top_of_mpi_is_faster_than_smp_inside_it():
    assert holds("bienz-16") == [True, True]


def test_trees_by_sockets_reduce_large_messages_faster():
    first, *_ = made("jain-11").claims
    assert first.holds
    assert 1.4 < first.numbers[0].ours < 2.2
    series = made("jain-11").panels[0].series
    assert wins(series, "topology-aware") == [512, 8 * KiB, 64 * KiB]


@pytest.mark.parametrize("name", ["jain-10", "jain-12", "jain-13"])
def test_release_and_gather_is_faster_than_messages(name):
    for panel in made(name).panels:
        if "RG" in panel.series:
            assert set(fastest(panel.series).values()) == {"RG"}


def test_a_single_buffer_is_slower_than_four_which_two_replace():
    for panel in made("jain-buffers").panels:
        one, two, four = (panel.series[f"{k} buffer{'s' * (k > 1)}"] for k in (1, 2, 4))
        assert all(one[n] > 1.05 * four[n] for n in four)
        assert all(two[n] < 1.3 * four[n] for n in four)


def test_a_number_is_close_within_a_quarter():
    assert Printed("", 2, 2.5).close
    assert Printed("", 2.5, 2).close
    assert not Printed("", 2, 2.6).close
    assert not Printed("", 2, 0).close
    assert Printed("", 2, 3).error == pytest.approx(0.5)


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
    monkeypatch.setattr(luo, "INNER", {"SM": "sm"})
    for with_others, alone in zip(both, made("han-7").panels, strict=True):
        assert alone.series
        for name, points in alone.series.items():
            assert points == with_others.series[name], name


def test_tasks_that_begin_together_overlap():
    """On leaders that receive: both take less than their sum, and no less than the longer one."""
    panels = made("han-2").panels
    assert len(panels) == 8
    for panel in panels:
        ib, sb, both, after = panel.series.values()
        for node in list(ib)[1:]:
            assert max(ib[node], sb[node]) <= both[node] < 0.95 * (ib[node] + sb[node])
            assert after[node] > 0
    for panel in made("han-6").panels:
        ib, ir, both = (max(points.values()) for points in panel.series.values())
        assert max(ib, ir) <= both < 0.9 * (ib + ir)


def test_stages_of_a_full_pipeline_cost_the_same():
    assert holds("han-3") == [True]
    for points in made("han-3").panels[0].series.values():
        assert points[8] == pytest.approx(points[6], rel=0.01)


def test_segments_of_a_broadcast_gain_by_overlap():
    points = made("han-4").panels[0].series["chain, SM"]
    assert min(points.values()) < points[max(points)]


# ---- an allgather over several rails: Tran et al. -----------------------------------------------


ROUND = Hockney(1, 1, 2, 1, 0, 1, 0, adapters=2, memory=4)  # T_C(3) = 4, T_H(3) = 3.5, T_L(3) = 3


def test_equations_1_and_2_by_hand():
    """4 * 3 / (3.5 * 4 + 4) transfers, after which processors and adapters take 28 / 3 each."""
    assert multi_rail.offloaded(ROUND, 3, 4) == pytest.approx(2 / 3)
    assert multi_rail.shares(ROUND, 3, 4, 2 / 3) == pytest.approx((28 / 3, 28 / 3))
    assert multi_rail.allgather_in_node(ROUND, 3, 4, 2 / 3) == pytest.approx(3 + 28 / 3)
    assert multi_rail.allgather_in_node(ROUND, 3, 4, 0) == 3 + 3 * 4


def test_equation_5_by_hand():
    """Three ranks copy out at the rate of one; eight of them share the memory's rate of 4."""
    assert multi_rail.broadcast(ROUND, 12, 3) == 12 + 12
    assert multi_rail.broadcast(ROUND, 12, 8) == 12 + 24


def test_equations_6_and_7_by_hand():
    """Four nodes of four: a node's block of 12 takes 8 on the network, two of them take 14."""
    slow = (3 + 12) + 8 + 3 * 24  # broadcasts of 24 hide the network
    assert multi_rail.allgather_ring(ROUND, 3, 4, 4) == slow
    assert multi_rail.allgather_doubling(ROUND, 3, 4, 4) == slow
    quick = replace(ROUND, bw_l=12, memory=inf)  # broadcasts of 2 are hidden
    assert multi_rail.allgather_ring(quick, 3, 4, 4) == (0.25 + 12) + 3 * 8 + 2
    assert multi_rail.allgather_doubling(quick, 3, 4, 4) == (0.25 + 12) + (8 + 14) + 4


def test_rings_by_hand():
    """Eight ranks on two nodes: seven steps of 4; an allreduce of 24 has parts of 3, twice."""
    assert multi_rail.ring(ROUND, 3, 2, 4) == 7 * 4
    assert multi_rail.allreduce_ring(replace(ROUND, gamma=2), 24, 2, 4) == 2 * 28 + 7 * 3 * 2
    assert multi_rail.doubling(ROUND, 3, 2, 4) == (1 + 3) + (1 + 6) + (2 + 6)


def test_crossovers():
    assert faster_up_to(lambda n: n, lambda _: 100, 1000) == 99
    assert faster_up_to(lambda n: n, lambda _: 1, 1000) == 0
    assert faster_up_to(lambda n: n, lambda _: 5000, 1000) == 1000


def test_leaders_double_until_a_broadcast_takes_longer_than_two_blocks_of_a_node():
    """40 ns + n / 11 GB/s + 31 n / 60 GB/s = 1.9 us + 2 n / 22 GB/s: 3600 B, 112.5 B of a rank."""
    found = made("tran-15")
    assert [min(panel.marks) for panel in found.panels] == [112, 112]
    for panel in found.panels:
        assert set(fastest(panel.series).values()) >= {"recursive doubling"}


def test_offload_falls_with_processes_and_grows_with_rails():
    assert holds("tran-11") == [True, True]
    assert holds("tran-12") == [True]
    for panel in made("tran-18").panels:
        for x in panel.series["no offload"]:
            times = [points[x] for points in panel.series.values()]
            assert times == sorted(times, reverse=True)


def test_equation_2_has_four_copies_where_the_program_has_five():
    series = made("tran-16").panels[0].series
    for nbytes, us in series["han"].items():
        assert series["no offload"][nbytes] == pytest.approx(us * 4 / 5, rel=0.02)


def test_a_ring_is_faster_above_2_kb_and_mha_gains_for_small_messages():
    crossover, small, _ = made("tran-20").claims
    assert small.holds
    assert "B on 512 processes" in crossover.ours
    assert made("tran-19").claims[0].holds
    best = fastest(made("tran-24").panels[1].series)
    assert best == {128 * KiB: "MHA", 8192 * KiB: "ring"}


def test_the_papers_numbers_belong_to_the_papers_processes():
    """Whatever the setting: here it is 16 processes."""
    (claim,) = made("tran-23").claims
    assert claim.paper.startswith("1024 processes")
    assert claim.paper.endswith("61 % and 62 %")
    assert "on 16;" in claim.ours


def test_what_cannot_be_drawn_says_why():
    for name, number in (("tran-26", "1.98"), ("tran-27", "7.83 %")):
        text = call("paper", name)
        assert number in text
        assert "Not drawn" in text
        assert "why" in text


def test_the_command_prints_tables_json_and_pictures(tmp_path):
    listed = call("paper")
    assert all(name in listed for name in FIGURES)
    picture = tmp_path / "figure.svg"
    small = ("paper", "bienz-14", "--nodes", "2", "--ppn", "2", "8,1KiB")
    text = call(*small, "--plot", str(picture))
    assert "as in the paper" in text
    assert "why" in text
    assert picture.read_text().count("<svg") == 1
    found = json.loads(call(*small, "--json"))
    assert found["nodes"] == 2
    assert {*found["panels"][0]["series"]} == {"recursive doubling", "SMP", "NAP"}
    assert all({"paper", "here", "holds"} == {*claim} for claim in found["claims"])
    assert "FRAC 4 RECVFROM 1" in call("paper", "jocksch-3")


def test_a_picture_of_many_panels_has_several_rows(tmp_path):
    picture = tmp_path / "tasks.svg"
    call("paper", "han-2", "--nodes", "3", "--ppn", "2", "--plot", str(picture))
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture.read_text()).groups()
    assert float(width) < 4 * float(height)


def test_check_prints_the_numbers_of_papers_with_errors(monkeypatch):
    shown = call("paper", "jocksch-table-1", "--check")
    assert "1 of 1 are within 1.25 times; median error 0%" in shown
    (one,) = json.loads(call("paper", "jocksch-table-1", "--check", "--json"))
    assert (one["figure"], one["paper"], one["here"], one["close"]) == (
        "jocksch-table-1", 10, 10, True,
    )  # fmt: skip
    few = {name: FIGURES[name] for name in ("jocksch-3", "jocksch-table-1", "jain-11")}
    monkeypatch.setattr(paper, "FIGURES", few)
    rows = json.loads(call("paper", "--check", "--json", "64,512,16KiB"))
    assert {row["figure"] for row in rows} == {"jocksch-table-1", "jain-11"}
    assert all(row["error"] == pytest.approx(row["here"] / row["paper"] - 1) for row in rows)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("jocksch-9", "--check"), "jocksch-9: the paper prints no number about it"),
        (("--check", "--plot", "x.png"), "give one of them"),
    ],
)
def test_check_says_what_it_cannot_do(words, told):
    done = CliRunner().invoke(app, ["paper", *words])
    assert told in str(done.exception)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("han-2 --nodes 1", "--nodes 1: this figure needs 2 or more"),
        ("han-2 --nodes 2 --ppn 1", "--ppn 1: this figure needs 2 or more"),
        ("han-6 --nodes 1", "--nodes 1: this figure needs 2 or more"),
        ("han-4 8", "sizes up to 8: this figure needs 65536 or more"),
    ],
)
def test_a_setting_that_is_too_small_is_told(words, told):
    done = CliRunner().invoke(app, ["paper", *words.split()])
    assert isinstance(done.exception, ArgumentError)
    assert told in str(done.exception)


def test_an_unknown_figure_is_told_with_the_known_ones():
    done = CliRunner().invoke(app, ["paper", "bienz-l0"])
    assert isinstance(done.exception, ArgumentError)
    assert "Known: bienz-10" in str(done.exception)
