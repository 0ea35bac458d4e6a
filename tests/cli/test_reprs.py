"""The text and the pictures that objects show at a prompt and in a notebook."""

import sys
from xml.etree import ElementTree

import matplotlib
import pytest
from mpi4py import MPI

import han
from han.cli.imagined import imagine
from han.tasks.graph import Task


@pytest.fixture
def plan():
    return imagine(8, 2, None, ("allreduce", 1 << 20, "sum", "f8", 0)).plan


def test_plans_and_their_parts(plan):
    assert repr(plan.topology) == "<Topology 8 ranks on 4 nodes of up to 2: node < network>"
    stages = "sr, iasr, 6 x sbiasr, sbia, sb"
    assert repr(plan.graph) == f"<TaskGraph 24 tasks, 37 edges: {stages}>"
    assert repr(plan) == (
        f"<Plan allreduce of 1MiB (float64, sum), 8 ranks on 4 nodes of up to 2: {stages}>"
    )  # fmt: skip
    assert repr(plan.choice) == (
        "<Choice tree, segment 128KiB, dataflow: "
        "sm flat (cells 8, chunk 64KiB) < exchange halving (segment 32KiB)>"
    )


def test_explanations_show_their_text_at_a_prompt():
    found = imagine(8, 2, None, ("allreduce", 1 << 20, "sum", "f8", 0))
    assert repr(found) == str(found)
    assert repr(found).startswith("allreduce of 1MiB")


def test_notebooks_show_the_task_graph(plan):
    backend = matplotlib.get_backend(auto_select=False)
    found = imagine(8, 2, None, ("allreduce", 1 << 20, "sum", "f8", 0))
    shown = {"plan": plan._repr_svg_(), "graph": plan.graph._repr_svg_()}
    for svg in shown.values():
        root = ElementTree.fromstring(svg)
        assert root.tag.endswith("svg")
    assert "4 nodes of up to 2" in shown["plan"], "the title is there"
    html = found._repr_html_()
    assert html.startswith("<pre>allreduce of 1MiB")
    assert "node &lt; network" in html or "level     node" in html
    assert html.endswith("</svg>\n")
    assert matplotlib.get_backend(auto_select=False) == backend, "the notebook's own"


def test_notebooks_show_text_where_matplotlib_is_missing(plan, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = imagine(8, 2, None, ("allreduce", 1 << 20, "sum", "f8", 0))
    assert [plan._repr_svg_(), plan.graph._repr_svg_(), found._repr_html_()] == [None] * 3


def test_a_graph_that_a_user_spoiled_still_shows_itself(plan):
    first, second = (Task("sr", "reduce", 0, k, 0, 8) for k in range(2))
    graph = type(plan.graph)([(first, second), (second, first)])
    assert repr(graph) == "<TaskGraph 2 tasks, 2 edges, with a cycle>"
    assert graph._repr_svg_() is None
    assert repr(type(plan.graph)()) == "<TaskGraph 0 tasks, 0 edges>"


def test_communicators_and_requests():
    comm = han.Comm(MPI.COMM_SELF.Dup())
    assert repr(comm) == "<han.Comm rank 0 of 1 rank on 1 node: node < network>"
    nonblocking, persistent = comm.Ibarrier(), comm.Barrier_init()
    assert repr(nonblocking) == "<han.Request nonblocking, active>"
    nonblocking.Wait()
    assert repr(nonblocking) == "<han.Request nonblocking, inactive>"
    assert repr(persistent) == "<han.Request persistent, inactive>"
    persistent.Free()
    assert "freed" in repr(persistent)
    later, request = comm.Idup()
    assert repr(later) == "<han.Comm not used yet>"
    request.Wait()
    later.Free()
    comm.Free()
    assert repr(comm) == repr(han.Comm()) == "<han.Comm MPI.COMM_NULL>"
