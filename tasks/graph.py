"""Tasks and the graph they form; its topological generations are HAN's composite tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import networkx as nx

from han.common.pictures import picture
from han.common.units import plural


@dataclass(frozen=True)
class Task:
    """One fine-grained collective of one segment on one level: ``sr(3)``, ``ib(0)``.

    `start` and `stop` bound the segment in the message (in each block of it), in bytes.
    """

    name: str
    kind: str
    level: int
    segment: int
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.name}({self.segment})"

    @property
    def nbytes(self) -> int:
        """Bytes of the segment."""
        return self.stop - self.start

    @property
    def stream(self) -> tuple[str, int]:
        """The stream that carries it: tasks of one kind on one level run in order."""
        return self.kind, self.level


LETTERS = {
    "reduce": "r",
    "bcast": "b",
    "allreduce": "a",
    "gather": "g",
    "scatter": "s",
    "allgather": "ag",
    "alltoall": "x",  # an exchange
    "reduce_scatter": "rs",
}


class TaskGraph(nx.DiGraph):  # type: ignore[misc,type-arg,unused-ignore]
    """A directed graph of :class:`Task`; each edge says why (``data`` or ``order``)."""

    def __repr__(self) -> str:
        counts = f"{plural(len(self), 'task')}, {plural(self.number_of_edges(), 'edge')}"
        if not nx.is_directed_acyclic_graph(self):
            return f"<TaskGraph {counts}, with a cycle>"
        stages = summarise(self.stage_names())
        return f"<TaskGraph {counts}{': ' if stages else ''}{stages}>"

    def _repr_svg_(self) -> str | None:
        """Show the graph in a notebook, where it has no cycle."""
        acyclic = nx.is_directed_acyclic_graph(self)
        return picture("graph_svg", self) if acyclic else None

    def after(self, first: Task, second: Task, why: str) -> None:
        """Let `second` wait for `first`."""
        self.add_edge(first, second, why=why)

    def stages(self) -> list[list[Task]]:
        """The topological generations: HAN's composite tasks (section III of the paper)."""
        return [list(stage) for stage in nx.topological_generations(self)]

    def stage_names(self) -> list[str]:
        """Names of the stages, the newest segment's task last: ``sbibirsr``."""
        return [
            "".join(t.name for t in sorted(stage, key=lambda t: t.segment))
            for stage in self.stages()
        ]

    def streams(self) -> dict[tuple[str, int], list[Task]]:
        """The tasks of each stream in order, streams in the order of their first tasks."""
        streams: dict[tuple[str, int], list[Task]] = {}
        for stage in self.stages():
            for task in stage:
                streams.setdefault(task.stream, []).append(task)
        return streams

    def sources(self, task: Task) -> list[Task]:
        """The tasks whose data `task` needs."""
        return [p for p, _, edge in self.in_edges(task, data=True) if edge["why"] == "data"]


def summarise(names: Iterable[str]) -> str:
    """Shorten a list of stages: ``ib, 14 x sbib, sb``."""
    runs: list[list[object]] = []
    for name in names:
        if runs and runs[-1][1] == name:
            runs[-1][0] = int(str(runs[-1][0])) + 1
        else:
            runs.append([1, name])
    return ", ".join(str(n) if k == 1 else f"{k} x {n}" for k, n in runs)
