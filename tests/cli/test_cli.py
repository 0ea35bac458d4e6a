"""The command line on one rank, the tables that it prints and the pictures that it draws."""

import itertools
import json
import re
from dataclasses import replace

import matplotlib
import pytest
from commands import call, refuse
from typer.testing import CliRunner

from han.cli import plan as plan_command
from han.cli import progress as bars
from han.cli.imagined import imagine
from han.cli.info import submodule_uses
from han.cli.main import app
from han.common.errors import ArgumentError, HanError
from han.common.units import parse_sizes, spans
from han.config.rc import VARIABLES
from han.measure import merged
from han.measure.bench import BenchRow, Settings
from han.measure.bench_calls import Buffers, Case, check_case
from han.measure.bench_machine import described, settings
from han.model.channel_layout import INLINE
from han.model.collectives import COLLECTIVES
from han.model.measurements import Report, Times
from han.model.topology import Topology, virtual
from han.plots import plots, style
from han.plots import tasks as plot_tasks
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.graph import Task
from han.tasks.signature import Signature
from han.tasks.steps import chain_of_steps
from han.tasks.task_graph import TaskGraph
from han.tasks.verify import Refuted, Unproved, verify

QUICK = ["--time", "0", "--rounds", "2", "--iterations", "2"]
PNG = b"\x89PNG"


# ---- info and explain ---------------------------------------------------------------------------


def test_info_tells_versions_levels_and_submodules():
    text = call("info", "--config", "virtual-2x2")
    for word in ("library", "node (s)", "network (i)", "virtual-2x2.yaml", "sm ", "kernels",
                 "lines are"):  # fmt: skip
        assert word in text
    assert "groups of one" in text


def test_info_as_json_lists_levels_and_submodules():
    found = json.loads(call("info", "--json"))
    assert [level["name"] for level in found["levels"]] == ["node", "network"]
    assert found["submodules"]["null"]["levels"]["node"]["algorithms"]


def test_info_says_why_a_submodule_cannot_be_used():
    domains, memory = ((0, 0, 1, 1), (0, 0, 0, 0)), (0, 0, 1, 1)
    use = submodule_uses(Topology(("node", "network"), ("s", "i"), domains, memory))["sm"]["levels"]
    assert "flat" in use["node"]["algorithms"]
    assert use["network"] == {
        "algorithms": [], "reasons": ["members of a group do not share memory"]
    }  # fmt: skip


def test_info_asks_algorithms_about_calls_that_they_are_for():
    topology = Topology(("node", "network"), ("s", "i"), ((0,) * 4,) * 2, (0,) * 4, attach=True)
    uses = submodule_uses(topology)
    assert uses["sm"]["levels"]["node"]["reasons"] == []
    assert {"pairs", "prefix", "blocks", "shares"} <= {*uses["sm"]["levels"]["node"]["algorithms"]}
    assert uses["bundle"]["levels"]["node"]["algorithms"] == []


def test_explain_plans_for_a_machine_that_is_not_here():
    text = call("explain", "bcast", "1MiB", "--nodes", 4, "--ppn", 2)
    assert "8 ranks on 4 nodes of up to 2" in text
    assert "sbib" in text
    opening, names = text.splitlines()[1], text.partition("  legend    ")[2].splitlines()[0]
    assert opening.startswith("  in short  shared memory (node), messages (network); each byte ")
    assert opening.endswith("; not measured here: han bench compares it with the MPI library")
    assert "ib: bcast on network, sb: bcast on node; a stage of several names" in names


def test_explain_takes_the_class_of_a_machine_file():
    where = ("explain", "allreduce", "8", "--nodes", 8, "--ppn", 32)
    assert "rule      class fabric" in call(*where, "--machine", "thor")
    assert "rule      class ethernet" in call(*where, "--machine", "ethernet-25gbit")
    assert "on thor" not in call("explain", "bcast", "8", "--machine", "thor")
    assert "no other option" in refuse(*where, "--machine", "thor", "--cores", 4)


def test_explain_takes_the_levels_of_a_configuration():
    text = call("explain", "allreduce", "4MiB", "--ppn", 16, "--config", "four-levels-virtual")
    assert "level     pair (p)" in text
    assert "level     network (i)" in text


@pytest.mark.parametrize(
    ("call_name", "carried"),
    [("allgatherv", "allgather"), ("reduce_scatter_block", "reduce_scatter")],
)
@pytest.mark.parametrize("where", [(), ("--ppn", 4)])
def test_explain_takes_names_of_calls(call_name, carried, where):
    assert call("explain", call_name, "1KiB", *where) == call("explain", carried, "1KiB", *where)


def test_calls_by_blocks_on_several_nodes_are_explained_with_their_steps():
    machine = ("--nodes", "4", "--ppn", "2")
    for name, size, stages in (
        ("gather", "4KiB", "sg, ig"),
        ("scatter", "4KiB", "is, ss"),
        ("alltoall", "8B", "sx, ix, ss"),
        ("allgather", "8B", "sg, iag, sag"),
        ("allgather", "1MiB", "iag, sag"),
    ):
        assert f"stages    {stages}\n" in call("explain", name, size, *machine), name


def test_explain_as_json_has_tasks_and_edges():
    found = json.loads(call("explain", "bcast", "1MiB", "--nodes", 2, "--ppn", 2, "--json"))
    labels = [task["label"] for task in found["tasks"]]
    assert {"ib(0)", "sb(0)"} <= set(labels)
    assert {why for _, _, why in found["edges"]} == {"data", "order"}
    assert found["levels"]["node"]["submodule"]


def test_plan_lists_the_operations_of_a_rank():
    arguments = ["plan", "bcast", "64KiB", "--nodes", 2, "--ppn", 2, "--disassemble", 1]
    text = call(*arguments)
    assert text.startswith("rank 1 of 4, bcast of 64KiB (root 0): ")
    assert "\nbcast@node\n" in text
    assert re.search(r"WAIT +released\[0\] >= 1\n", text)
    assert "buffer <- cells[0]\n" in text
    found = json.loads(call(*arguments, "--json"))
    assert found["rank"] == 1
    assert {op["code"] for op in found["operations"]} == {"WAIT", "COPY"}
    assert sum(op["bytes"] for op in found["operations"] if op["code"] == "COPY") == 64 << 10


def test_plan_proves():
    text = call("plan", "allreduce", "64KiB", "--nodes", 2, "--ppn", 2, "--verify")
    assert text.startswith("proved for 4 ranks and all interleavings")
    assert "no deadlock" in text
    assert "MPI.IN_PLACE" in text
    assert "\nproved for all sizes of its class, above 49152 and up to 65536 bytes (" in text


def test_plan_says_which_sizes_are_not_proved(monkeypatch):
    arguments = ["plan", "bcast", "8", "--ppn", 2, "--verify"]

    def fail(kind):
        def verify_class(plan, **form):
            raise kind("the proof holds", "rank 1", "two frames", "one")

        monkeypatch.setattr(plan_command, "verify_class", verify_class)

    fail(Unproved)
    said = "the proof holds: rank 1: found two frames; expected one"
    assert (
        f"\nnot proved for all sizes of its class, above 0 and up to {INLINE} bytes: {said}"
        in call(*arguments)
    )
    found = json.loads(call(*arguments, "--json"))["class"]
    assert found == {"above": 0, "largest": INLINE, "events": 0, "why": said, "sampled": 0}
    fail(Refuted)
    assert refuse(*arguments, kind=HanError) == f"refuted: {said}"


def test_plan_proves_as_json():
    arguments = ["plan", "reduce", "64KiB", "--nodes", 2, "--ppn", 2, "--verify", "--json"]
    found = json.loads(call(*arguments))
    assert found["ranks"] == 4
    assert found["in_place"]
    assert len(found["runs"]) == 3
    assert any("deadlock" in text for text in found["checked"])
    assert found["events"] > 0
    assert found["seconds"] > 0
    assert found["class"]["largest"] == 64 << 10
    assert found["class"]["events"] > 0
    assert not found["class"]["why"]


def test_a_bar_shows_the_phases_of_a_proof_on_a_terminal(monkeypatch, capfd):
    told = []
    plan = plan_of_choice(
        virtual(4), Signature("bcast", 8), Choice((level_choice("sm", "flat"),)), 1 << 18
    )
    verify([plan], progress=lambda *step: told.append(step))
    assert ("lowering", 4, 4) in told
    assert all(0 <= done <= total for _, done, total in told)
    assert {phase for phase, _, _ in told} == {"lowering", "proving"}
    with bars.phases() as progress:
        progress("proving", 1, 1)
    assert capfd.readouterr().err == "", "no terminal"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with bars.phases() as progress:
        for step in told:
            progress(*step)


def test_plan_says_what_is_wrong(monkeypatch):
    def refute(plans, **form):
        raise Refuted("no deadlock", "rank 1", "no POST", "one")

    monkeypatch.setattr(plan_command, "verify", refute)
    said = refuse("plan", "bcast", "8", "--ppn", "2", "--verify", kind=HanError)
    assert said == "refuted: no deadlock: rank 1: found no POST; expected one"


def test_a_saved_plan_is_proved(tmp_path):
    path = tmp_path / "plan.json"
    call("plan", "reduce", "64KiB", "--nodes", 2, "--ppn", 2, "--save", path)
    assert call("verify", path).startswith(f"{path}: proved for 4 ranks")
    (found,) = json.loads(call("verify", path, "--json"))
    assert (found["file"], found["ranks"]) == (str(path), 4)
    path.write_text(path.read_text().replace('"WAIT"', '"COPY"', 1))
    assert "refuted: " in refuse("verify", path, kind=HanError)


def test_plan_writes_graphs():
    arguments = ["plan", "bcast", "64KiB", "--nodes", 2, "--ppn", 2]
    assert "stages" in call(*arguments)
    dot = call(*arguments, "--as", "dot")
    assert dot.startswith("digraph tasks {")
    assert "bcast_1_0 -> bcast_0_0;" in dot
    mermaid = call(*arguments, "--as", "mermaid")
    assert mermaid.startswith("flowchart LR")
    assert "bcast_1_0 --> bcast_0_0" in mermaid
    assert 'subgraph stage1["1: sbib"]' in mermaid


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["plan", "bcast", "8", "--ppn", "2", "--disassemble", "2"],
            "--disassemble 2: expected a rank in 0..1",
        ),
        (["bench", "barrier", "--json", "/no/where.json"], "there is no folder /no"),
        (["explain", "bcast", "--plot", "/no/where.png"], "there is no folder /no"),
        (["plan", "bcast", "--plot", "/no/where.png"], "there is no folder /no"),
        (["explain", "bcast", "--ranks", "4"], "bcast: a size is missing; give its bytes"),
        (["explain", "alreduce", "8"], "did you mean 'allreduce'"),
        (["explain", "Allgatherv", "8"], "write 'allgatherv' for calls of Allgatherv"),
        (["plan", "Ineighbor_alltoall", "8"], "write 'neighbor_alltoall' for calls of Ineighbor_"),
        (["explain", "bcast", "8 apples"], "is not a size"),
        (["explain", "allreduce", "8", "--op", "summ"], "did you mean 'sum'"),
        (["explain", "bcast", "8", "--root", "9", "--ppn", "2"], "root 9 is not in 0..1"),
        (["explain", "bcast", "8", "--cores", "2"], "--cores needs --nodes or --ppn"),
        (["bench", "alreduce"], "did you mean 'allreduce'"),
        (["setup-costs", "brodcast"], "unknown collective"),
        (["waits", "--policies", "snooze"], "unknown policy 'snooze'"),
        (["limits", "barrier"], "unknown collective 'barrier'"),
        (["limits", "allreduce", "9"], "whole number of float64"),
        (["bench", "bcast", "--root", "3"], "root 3 is not in 0..0"),
        (["bench", "allreduce", "12"], "not a whole number of float64"),
        (["bench", "allreduce", "9:8"], "0 < start <= stop"),
        (["bench", "allreduce", "8:8MiB:1"], "factor >= 2"),
        (["bench", "allreduce", "8many"], "8:8MiB"),
        (["bench", "allreduce", "--dtype", "f9"], "is not a NumPy type"),
        (["plan", "allreduce", "8", "--op", "nope"], "unknown operation 'nope'. Known: band"),
        (["plan", "bcast", "8", "--dtype", "nope"], "'nope' is not a NumPy type"),
        (["bench", "allreduce", "--op", "band"], "band is not defined on float64"),
    ],
)
def test_mistakes_are_answered_with_the_way_out(arguments, said):
    assert said in refuse(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "bcast", "8", "--save"],
        ["plan", "bcast", "8", "--plot"],
        ["bench", "barrier", "--json"],
        ["simulate", "--machine", "emulated-1gbit", "--timeline"],
        ["validate", "--machine", "emulated-1gbit", "none.json", "--fit"],
    ],
)
def test_files_that_cannot_be_written_are_named_before_anything_runs(arguments, tmp_path):
    assert f"{tmp_path}: cannot be written: it is a folder" in refuse(*arguments, tmp_path)
    where = tmp_path / "none" / "file.png"
    assert f"{where}: cannot be written: there is no folder" in refuse(*arguments, where)


def test_a_disk_that_is_full_is_told():
    said = refuse("plan", "bcast", "8", "--save", "/dev/full")
    assert said == "/dev/full: cannot be written: No space left on device"


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "bcast", "8"],
        ["bench", "barrier"],
        ["simulate", "--machine", "emulated-1gbit"],
        ["validate", "--machine", "emulated-1gbit", "none.json"],
        ["compare", "none.json"],
    ],
)
def test_pictures_of_no_known_kind_are_refused_before_anything_runs(arguments, tmp_path):
    done = CliRunner().invoke(app, [*arguments, "--plot", str(tmp_path / "x.xyz")])
    assert isinstance(done.exception, style.PlotError), done.exception
    assert "x.xyz: unknown picture format. Known:" in str(done.exception)
    assert not done.stdout


def test_help_lists_the_environment_variables():
    text = call("--help")
    assert not [name for name in (*VARIABLES.values(), "HAN_SHM_DIR") if name not in text]


def test_a_rank_that_is_alone_copies_what_it_reduces_and_nothing_else():
    assert "is copied to recv" in call("explain", "allreduce", "8", "--ppn", 1)
    for quiet in (["barrier"], ["bcast", "8"], ["reduce", "0"]):
        text = call("explain", *quiet)
        assert "(none: the rank is alone)" in text
        assert "topology  1 rank on 1 node" in text


# ---- bench --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["blocking", "nonblocking", "persistent"])
def test_bench_measures_every_collective_on_one_rank(mode):
    text = call("bench", "8,1KiB", "--mode", mode, *QUICK)
    for collective in COLLECTIVES:
        assert f"# {collective}\n" in text
    assert "1KiB" in text
    assert f"{mode} calls" in text
    assert "# machine" in text


def test_bench_writes_json_that_compare_reads(tmp_path):
    path, picture = tmp_path / "run.json", tmp_path / "run.png"
    call("bench", "bcast", "allreduce", "8:32", *QUICK, "--json", path, "--plot", picture)
    assert picture.read_bytes().startswith(PNG)
    data = json.loads(path.read_text())
    assert [(r["collective"], r["nbytes"]) for r in data["rows"]] == [
        (c, n) for c in ("bcast", "allreduce") for n in (8, 16, 32)
    ]
    assert data["machine"]["ranks"] == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("han.plots.plots.panels_of", None)  # no picture is asked for
        merged = json.loads(call("compare", path, "--json"))
    assert len(merged) == 6
    table = call("compare", path, "--plot", picture)
    assert "allreduce" in table
    assert "# ratios: geometric mean" in table


def test_bench_prints_nothing_but_json_to_standard_output():
    data = json.loads(call("bench", "reduce", "8", *QUICK, "--only", "han", "--json", "-"))
    assert "mpi" not in data["rows"][0]
    assert data["rows"][0]["ratio"] is None


def test_bench_of_the_library_alone():
    assert "ratio" not in call("bench", "bcast", "8", *QUICK, "--only", "mpi")


def test_sizes():
    assert parse_sizes("8:64") == [8, 16, 32, 64]
    assert parse_sizes("8:1KiB:4") == [8, 32, 128, 512]
    assert parse_sizes("8,1KiB,8:16,0") == [8, 1024, 16, 0]


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128", "bool"])
def test_buffers_hold_small_whole_numbers(dtype):
    op = "lor" if dtype == "bool" else "sum"
    case = Case("allreduce", 64 * 16, dtype, op)
    check_case(case, 3)
    buffers = Buffers(case, 1, 3)
    assert buffers.send.nbytes == case.nbytes
    assert set(buffers.send.tolist()) <= {1, 2}
    buffers.recv[...] = 1
    buffers.reset()
    assert not buffers.result().any()


def test_only_the_root_has_the_buffer_that_only_it_needs():
    case = Case("reduce", 64, root=1)
    assert Buffers(case, 0, 2).arguments()[1] is None
    assert Buffers(case, 1, 2).arguments()[1] is not None
    assert Buffers(case, 1, 2).arguments()[-1] == 1


# ---- reports ------------------------------------------------------------------------------------


def times(median):
    return Times(median, median / 2, median * 2, 10)


def run_of(library, han, mpi, name="a.json", **about):
    rows = [
        BenchRow("bcast", 8 << k, {"han": times(h), "mpi": times(m)}).record()
        for k, (h, m) in enumerate(zip(han, mpi, strict=True))
    ]
    machine = {"library": library, "ranks": 2, "nodes": 1} | about
    return Report(name, {"machine": machine, "settings": {"mode": "blocking"}, "rows": rows})


def test_compare_holds_han_against_each_library_in_its_own_run():
    rows = merged.merge([run_of("A 1", [2, 4], [6, 3]), run_of("B 2", [3, 1], [12, 9])])
    assert [r.best_han[0] for r in rows] == ["A 1", "B 2"]
    assert [r.best_mpi[0] for r in rows] == ["A 1", "A 1"]
    assert [r.ratios for r in rows] == [{"A 1": 3, "B 2": 4}, {"A 1": 0.75, "B 2": 9}]
    assert [r.rival for r in rows] == ["A 1", "A 1"]
    table = merged.table(rows)
    assert "*3.00" in table
    assert table.endswith("# ratios: geometric mean 1.50, least 0.75 (bcast of 16B)")


def test_libraries_measured_without_han_are_held_against_its_best():
    rows = merged.merge([run_of("A 1", [2], [6]), run_of("B 2", [], [])])
    alone = replace(rows[0], mpi={"B 2": times(5)})
    assert (alone.rival, alone.ratio) == ("B 2", 2.5)


def test_compare_tells_two_runs_under_one_library_apart():
    rows = merged.merge([run_of("A 1", [2], [6], "x.json"), run_of("A 1", [3], [4], "y.json")])
    assert rows[0].best_mpi[0] == "A 1 (y.json)"


def test_runs_that_differ_do_not_compare():
    with pytest.raises(ArgumentError, match="differ in ranks"):
        merged.merge([run_of("A 1", [2], [6]), run_of("B 1", [3], [4], "b.json", ranks=4)])


@pytest.mark.parametrize(
    ("text", "said"), [("{", "not JSON"), ("{}", "not a report of"), (None, "cannot be read")]
)
def test_other_files_do_not_compare(tmp_path, text, said):
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    assert said in refuse("compare", path)


def test_ratio_needs_both_sides():
    assert BenchRow("bcast", 8, {"han": times(2), "mpi": times(3)}).ratio == 1.5
    assert BenchRow("bcast", 8, {"han": times(2)}).ratio is None
    assert Settings(only="han").sides == ("han",)
    assert not Settings(only="mpi").compares


def test_the_head_of_a_measurement_says_nothing_twice():
    lines = call("bench", "bcast", "8", *QUICK).splitlines()
    assert "# config    default configuration; wait " in "\n".join(lines)
    labels = [line[:11] for line in lines if line.startswith("# ") and line[10:12].strip()]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize(
    ("name", "text", "more"),
    [
        ("MPICH 5.0.2", "MPICH Version: 5.0.2", False),
        ("Open MPI 5.0.11", "Open MPI v5.0.11", False),
        ("Intel MPI 2021.18.1", "Intel(R) MPI Library 2021.18.1 for Linux* OS", False),
        ("MPICH 3.4.0", "MPI VERSION : CRAY MPICH version 8.1", True),
    ],
)
def test_a_librarys_text_is_told_where_it_says_more_than_its_name(name, text, more):
    assert described(name, text) == (f"{name} ({text})" if more else name)


def test_settings_that_change_waiting_are_told():
    environ = {
        "UCX_TLS": "tcp",
        "HAN_WAIT": "spin",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "HOME": "/",
    }
    assert settings(environ) == {k: v for k, v in environ.items() if k != "HOME"}


def test_spans():
    assert spans([3, 0, 1, 2, 8]) == "0-3,8"
    assert spans([]) == ""


# ---- pictures -----------------------------------------------------------------------------------


def drawn(libraries, sizes, path, monkeypatch):
    """Draw a comparison of libraries by collective; return its figure."""
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    rows = [
        merged.Merged(name, 8 << k, {"B": times(1 + k)}, dict.fromkeys(some, times(1 + k)))
        for name, some in libraries.items()
        for k in range(sizes)
    ]
    plots.comparison(rows, path)
    return figures[0]


def test_everyone_has_one_colour_in_all_panels(tmp_path, monkeypatch):
    libraries = {"bcast": ["B"], "reduce": ["A", "B"]}
    figure = drawn(libraries, 3, tmp_path / "x.png", monkeypatch)
    shown = {}
    for axis in figure.axes[:2]:  # of times
        for line in axis.get_lines():
            shown.setdefault(line.get_label(), set()).add(line.get_color())
    assert {name: len(colors) for name, colors in shown.items()} == {"han": 1, "A": 1, "B": 1}
    assert len(set.union(*shown.values())) == 3


def graph_of(segments):
    steps = [("reduce", 0), ("reduce", 1), ("bcast", 1), ("bcast", 0)]
    return TaskGraph.of(chain_of_steps(steps, "si", Signature("allreduce", 8 * segments, 1), 8))


def test_a_short_graph_is_drawn_whole():
    graph = graph_of(8)
    places = plot_tasks.task_grid(graph)
    assert list(places.titles.values()) == graph.stage_names()
    assert places.gap is None
    assert len(set(places.row.values())) == 4
    assert all(places.column[a] < places.column[b] for a, b in graph.edges)


def test_the_middle_of_a_long_graph_is_left_out_and_counted():
    graph = graph_of(64)
    places = plot_tasks.task_grid(graph)
    assert places.left_out == "57 x sbibirsr"
    assert [*places.titles.values()].count("sbibirsr") == 4
    assert places.columns == 3 + 2 + 1 + 2 + 3
    assert [places.numbers[c] for c in sorted(places.numbers)] == [0, 1, 2, 3, 4, *range(62, 67)]
    assert not any(places.shown(task) for task in graph if places.column[task] == places.gap)
    assert all(places.column[a] <= places.column[b] for a, b in graph.edges)


def test_a_long_graph_without_a_steady_part_is_cut_in_the_middle():
    graph = TaskGraph()
    tasks = [Task("s" + "rb"[k % 2], ("reduce", "bcast")[k % 2], 0, k, 0, 8) for k in range(100)]
    for first, second in itertools.pairwise(tasks):
        graph.after(first, second, "data")
    places = plot_tasks.task_grid(graph)
    assert places.left_out == "60 stages"
    assert places.columns == plot_tasks.MOST_COLUMNS + 1


@pytest.mark.parametrize("segments", [1, 2, 8, 64])
def test_what_a_picture_shows(tmp_path, segments):
    path = tmp_path / "graph.svg"
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        plot_tasks.task_graph(graph_of(segments), path, "a title", ("node", "network"))
    text = path.read_text()
    shown = ["a title", "reduce@node", "bcast@network", "sr(0)", f"sb({segments - 1})", ">data<"]
    shown += ["order only"] if segments > 1 else []
    shown += [">57 x<", "..."] if segments == 64 else []
    assert not [word for word in shown if word not in text]
    assert ("sr(30)" in text) == (30 < segments < 60)


def test_the_title_says_what_is_drawn():
    found = imagine(8, 2, None, ("bcast", 1 << 20, "sum", "f8", 3))
    first, second = plot_tasks.title_of(found.plan).split("\n")
    assert first == "bcast of 1MiB (root 3)"
    assert second.startswith("8 ranks on 4 nodes of up to 2; ")
    assert second.endswith(", dataflow")


@pytest.mark.parametrize("command", ["explain", "plan"])
def test_explain_and_plan_draw(tmp_path, command):
    for suffix, magic in (("png", PNG), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        path = tmp_path / f"graph.{suffix}"
        text = call(command, "allreduce", "1MiB", "--nodes", 2, "--ppn", 2, "--plot", path)
        assert "stages" in text
        assert path.read_bytes().startswith(magic)


def test_a_graph_without_tasks_is_drawn(tmp_path):
    call("explain", "allreduce", "8", "--ppn", 1, "--plot", tmp_path / "none.png")


def test_missing_matplotlib_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(style.PlotError, match="pip install matplotlib"):
        plot_tasks.task_graph(graph_of(2), tmp_path / "graph.png")
    measured = CliRunner().invoke(app, ["bench", "bcast", "--plot", str(tmp_path / "bench.png")])
    assert "pip install matplotlib" in str(measured.exception)
    assert not measured.stdout, "nothing is measured before"
