"""A TaskGraph as Graphviz or Mermaid text, stages as columns."""

from __future__ import annotations

from collections.abc import Iterator

from han.tasks.graph import Task
from han.tasks.task_graph import TaskGraph


def dot(graph: TaskGraph, title: str = "") -> str:
    """Return the graph in Graphviz' language: one column per stage, dashed edges for order."""
    return "\n".join(["digraph tasks {", *(f"  {line}" for line in _dot_lines(graph, title)), "}"])


def _dot_lines(graph: TaskGraph, title: str) -> Iterator[str]:
    yield f'rankdir=LR; label="{title}"; node [shape=box, style=rounded, fontname="sans-serif"];'
    for stage in graph.stages():
        names = "; ".join(f'{_id(t)} [label="{t}"]' for t in stage)
        yield f"{{ rank=same; {names} }}"
    for a, b, edge in graph.edges(data=True):
        style = "" if edge["why"] == "data" else " [style=dashed]"
        yield f"{_id(a)} -> {_id(b)}{style};"


def mermaid(graph: TaskGraph) -> str:
    """Return the graph in Mermaid's language: one box per stage, dashed edges for order."""
    return "\n".join(["flowchart LR", *(f"  {line}" for line in _mermaid_lines(graph))])


def _mermaid_lines(graph: TaskGraph) -> Iterator[str]:
    for k, (stage, name) in enumerate(zip(graph.stages(), graph.stage_names(), strict=True)):
        yield f'subgraph stage{k}["{k}: {name}"]'
        yield from (f'  {_id(t)}["{t}"]' for t in stage)
        yield "end"
    for a, b, edge in graph.edges(data=True):
        yield f"{_id(a)} {'-->' if edge['why'] == 'data' else '-.->'} {_id(b)}"


def _id(task: Task) -> str:
    return f"{task.kind}_{task.level}_{task.segment}"
