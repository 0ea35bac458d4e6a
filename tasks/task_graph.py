"""The graph of tasks as users see it: a networkx.DiGraph."""

from __future__ import annotations

import networkx as nx

from han.common.pictures import picture
from han.common.units import plural
from han.tasks.graph import Staged, Task, Tasks, summarise


class TaskGraph(Staged, nx.DiGraph):  # type: ignore[misc,type-arg,unused-ignore]
    """A directed graph of :class:`Task`; an edge's ``why`` is ``data`` or ``order``."""

    @classmethod
    def of(cls, tasks: Tasks) -> TaskGraph:
        """Make the graph of a call's tasks."""
        graph = cls()
        graph.add_nodes_from(tasks)
        for first, second, why in tasks.links:
            graph.after(first, second, why)
        return graph

    def __repr__(self) -> str:
        counts = f"{plural(len(self), 'task')}, {plural(self.number_of_edges(), 'edge')}"
        if not nx.is_directed_acyclic_graph(self):
            return f"<TaskGraph {counts}, with a cycle>"
        stages = summarise(self.stage_names())
        return f"<TaskGraph {counts}{': ' if stages else ''}{stages}>"

    def _repr_svg_(self) -> str | None:
        """Show the graph in a notebook, if it has no cycle."""
        acyclic = nx.is_directed_acyclic_graph(self)
        return picture("graph_svg", self) if acyclic else None

    def after(self, first: Task, second: Task, why: str) -> None:
        """Let `second` wait for `first`."""
        self.add_edge(first, second, why=why)

    def stages(self) -> list[list[Task]]:
        """Return the topological generations: HAN's composite tasks (section III of the paper)."""
        return [list(stage) for stage in nx.topological_generations(self)]
