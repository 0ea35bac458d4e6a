"""A TaskGraph as Graphviz or Mermaid text, stages as columns; a Program as a listing."""

from __future__ import annotations

from collections.abc import Iterator

from han.program import Program
from han.tasks.graph import Task, TaskGraph
from han.tasks.verify.story import operation


def dot(graph: TaskGraph, title: str = "") -> str:
    """Return the graph in Graphviz' language: one column a stage, dashed edges for order."""
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
    """Return the graph in Mermaid's language: one box a stage, dashed edges for order."""
    return "\n".join(["flowchart LR", *(f"  {line}" for line in _mermaid_lines(graph))])


def _mermaid_lines(graph: TaskGraph) -> Iterator[str]:
    for k, stage in enumerate(graph.stages()):
        yield f"subgraph stage{k}[stage {k}]"
        yield from (f'  {_id(t)}["{t}"]' for t in stage)
        yield "end"
    for a, b, edge in graph.edges(data=True):
        yield f"{_id(a)} {'-->' if edge['why'] == 'data' else '-.->'} {_id(b)}"


def _id(task: Task) -> str:
    return f"{task.kind}_{task.level}_{task.segment}"


def disassemble(program: Program) -> str:
    """Return a rank's operations, stream by stream, with the tasks that they are part of."""
    lines = [
        f"rank {program.rank}: {len(program.code)} operations in {len(program.streams)} streams, "
        f"{program.requests} requests, {program.scratch} B of scratch, "
        f"{sum(program.footprint)} B of cells"
    ]
    for number, stream in enumerate(program.streams):
        lines.append(f"stream {number}: {stream.name}")
        task = None
        for k in range(stream.start, stream.stop):
            row = program.code[k]
            name = program.tasks[row["task"]] if program.tasks else ""
            shown = "" if name == task else name
            task = name
            lines.append(f"  {k:5d}  {shown:<8} {operation(row)}")
    return "\n".join(lines)
