"""Two plans side by side: figures that can be computed by hand, and remarks."""

import json

import pytest
from commands import call, refuse
from machines import topology_of
from plans import programs_of

from han.cli import diff
from han.cli.imagined import imagine
from han.common.errors import ConfigError
from han.explain import make_signature
from han.model.program import Code
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.files.store import VERSION, PlanFileError
from han.tasks.inspect.compare import figures, remarks, rows, side
from han.tasks.inspect.traffic import traffic

KiB = 1024
TREE = {"network": {"submodule": "adapt", "algorithm": "linear"}}


def planned(collective, nbytes, ranks, ppn, **use):
    config = {"rules": [{"use": use}]} if use else None
    plan = imagine(ranks, ppn, config, (collective, nbytes, "sum", "f8", 0)).plan
    return plan, programs_of(plan)


def test_figures_of_a_broadcast_between_four_nodes():
    found = figures(*planned("bcast", 64 * KiB, 4, 1, segment="16KiB", levels=TREE))
    assert (found.segments, found.tasks, found.stages) == (4, 4, ("ib",) * 4)
    assert found.total.messages == {"network": 12}
    assert found.total.sent == {"network": 3 * 64 * KiB}
    assert (found.total.copied, found.total.reduced, found.total.cells) == (0, 0, 0)
    assert found.busiest_rank == 0
    assert found.busiest.operations["ISEND"] == 12
    assert "IRECV" not in found.busiest.operations


def test_figures_of_a_reduce_inside_a_node():
    use = {"node": {"submodule": "sm", "algorithm": "flat", "chunk": "16KiB"}}
    found = figures(*planned("reduce", 64 * KiB, 4, 4, segment="whole", levels=use))
    assert found.total.messages == {}
    assert found.total.copied == 3 * 64 * KiB
    assert found.total.reduced == 3 * 64 * KiB
    assert found.busiest_rank == 0
    assert found.busiest.reduced == 3 * 64 * KiB
    assert found.busiest.copied == 0


def in_a_node(collective, submodule, algorithm):
    choice = Choice((level_choice(submodule, algorithm),))
    topology = topology_of([[0] * 4], 0)
    plan = plan_of_choice(topology, make_signature(collective, 64 * KiB), choice, 64 << 20)
    return plan, programs_of(plan)


def test_figures_count_bytes_that_cross_memory_attach_copies():
    found = figures(*in_a_node("bcast", "solo", "pull"))
    assert found.total.operations["PULL"] >= 3
    assert found.total.copied == found.total.handled == 3 * 64 * KiB
    assert found.busiest.copied == 64 * KiB
    copied = rows_of(*[in_a_node("bcast", "solo", "pull")] * 2)[0]["copied"]
    assert copied.first == "64KiB"  # of the busiest rank, the last row of this name


@pytest.mark.parametrize(
    ("collective", "submodule", "algorithm"),
    [
        ("bcast", "solo", "meet"),
        ("bcast", "sm", "flat"),
        ("allreduce", "solo", "split"),
        ("allreduce", "sm", "split"),
    ],
)
def test_figures_agree_with_the_traffic_that_explain_prints(collective, submodule, algorithm):
    plan, programs = in_a_node(collective, submodule, algorithm)
    work, moved = figures(plan, programs).total, traffic(plan)
    assert (work.copied, work.reduced) == (moved.copied, moved.combined)


def test_figures_of_the_librarys_collectives():
    use = {"network": {"submodule": "libnbc"}}
    found = figures(*planned("bcast", 1000, 4, 1, segment="whole", levels=use))
    assert found.total.library == 4000
    found = figures(*planned("allreduce", 8000, 4, 1, segment="whole", levels=use))
    assert found.total.library == 4 * 2 * 8000
    assert found.total.operations["COLL"] == 8


@pytest.mark.parametrize("collective", ["bcast", "reduce", "allreduce", "barrier"])
@pytest.mark.parametrize(("ranks", "ppn"), [(1, 1), (6, 2), (8, 8), (7, 3)])
def test_figures_count_every_operation_and_every_message(collective, ranks, ppn):
    plan, programs = planned(collective, 48 * KiB * (collective != "barrier"), ranks, ppn)
    found = figures(plan, programs)
    assert sum(found.total.operations.values()) == sum(len(p.code) for p in programs)
    received = [int(row["n"]) for p in programs for row in p.code if row["code"] == Code.IRECV]
    assert sum(found.total.messages.values()) == len(received)
    assert sum(found.total.sent.values()) == sum(received)
    assert found.busiest.handled * ranks >= found.total.handled


def rows_of(first, second):
    sides = side("a", *first), side("b", *second)
    return {row.label.strip(): row for row in rows(*sides)}, list(remarks(*sides))


def test_the_same_plan_has_no_difference():
    found, notes = rows_of(*[planned("allreduce", 64 * KiB, 4, 2)] * 2)
    assert not any(row.differs for row in found.values())
    assert notes == ["no difference: both are the same plan"]


def test_rows_say_where_plans_differ():
    first = planned("allreduce", 64 * KiB, 8, 2, levels=TREE, segment="8KiB")
    found, notes = rows_of(first, planned("allreduce", 64 * KiB, 8, 2))
    assert (found["segment"].first, found["segments"].first) == ("8KiB", "8")
    assert found["network"].first == "adapt linear"
    assert found["network"].second.startswith("exchange ")
    assert found["rule"].first.startswith("rules[0] of config")
    assert found["rule"].second == "built-in"
    assert "5 x sbibirsr" in found["stages"].first
    assert not found["node"].differs
    assert notes == []


def test_other_topologies_and_calls_compare_with_a_remark():
    first, second = planned("bcast", 64 * KiB, 8, 2), planned("bcast", 128 * KiB, 4, 4)
    found, notes = rows_of(first, second)
    assert found["machine"].differs
    assert any("topologies differ" in note for note in notes)
    assert any("calls differ" in note for note in notes)


# ---- the command --------------------------------------------------------------------------------


def test_diff_of_configurations_marks_differences():
    lines = call(
        "diff", "default", "libnbc", "allreduce", "1MiB", "--nodes", 4, "--ppn", 2
    ).splitlines()
    assert lines[0].split() == ["default", "libnbc"]
    marked = {line[1:30].split("  ")[1].strip() for line in lines if line.startswith("*")}
    assert {"network", "rule", "stages"} <= marked
    assert not {"call", "machine", "schedule", "node"} & marked


def test_diff_of_stored_plans(tmp_path):
    for name, root in (("a", 0), ("b", 3)):
        path = tmp_path / f"{name}.json"
        call("plan", "bcast", "64KiB", "--nodes", 2, "--ppn", 2, "--root", root, "--save", path)
    found = json.loads(call("diff", tmp_path / "a.json", tmp_path / "b.json", "--json"))
    assert found["first"]["call"]["root"] == 0
    assert found["second"]["figures"]["busiest_rank"] == 3
    assert ["the busiest rank", "rank", "0", "3"] in found["differences"]
    assert found["first"]["figures"]["total"] == found["second"]["figures"]["total"]
    both = call("diff", tmp_path / "a.json", tmp_path / "a.json")
    assert both.endswith("# no difference: both are the same plan\n")


def test_diff_on_a_terminal_is_a_table():
    plans = planned("bcast", 64 * KiB, 4, 2), planned("bcast", 64 * KiB, 4, 1)
    table = rows(*(side(name, *plan) for name, plan in zip("ab", plans, strict=True)))
    shown = diff._text(["a", "b"], table, [])
    assert "4 ranks on 2" in shown
    assert "* " in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["two-level", "libnbc"], "name a call as well"),
        (["default", "libnbc", "alreduce"], "did you mean 'allreduce'"),
        (["default", "libnbc", "bcast", "8", "--root", "8"], "root 8 is not in 0..7"),
    ],
)
def test_mistakes_are_answered_with_the_way_out(arguments, said):
    assert said in refuse("diff", *arguments)


def test_unknown_configurations_and_files_are_named(tmp_path):
    assert "did you mean 'libnbc'" in refuse("diff", "libnb", "default", kind=ConfigError)
    missing, old = tmp_path / "none.json", tmp_path / "old.json"
    said = refuse("diff", missing, "default", kind=PlanFileError)
    assert f"{missing}: cannot be read" in said
    old.write_text('{"format": "han-plan", "version": 0}')
    said = refuse("diff", old, old, kind=PlanFileError)
    assert f"version 0, this han reads version {VERSION}" in said
