"""What the planner decides for all ranks at once; still no operation of any of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from han.common.pictures import picture
from han.model.channel_layout import Geometry
from han.model.topology import Topology
from han.tasks.builders import build
from han.tasks.choice import LEFT, Choice
from han.tasks.graph import Task, TaskGraph, summarise
from han.tasks.signature import Signature


@dataclass(frozen=True, repr=False)
class Plan:
    """What the planner decides for all ranks: the graph, where it runs and how."""

    topology: Topology
    signature: Signature
    choice: Choice
    graph: TaskGraph
    geometries: tuple[Geometry | None, ...]  # of this rank's channels, by level

    @cached_property
    def streams(self) -> dict[tuple[str, int], tuple[Task, ...]]:
        """The tasks of each stream in order, the same for all ranks."""
        return {stream: tuple(tasks) for stream, tasks in self.graph.streams().items()}

    @cached_property
    def stages(self) -> dict[Task, int]:
        """The stage that each task is in, tasks in the order of stages."""
        return {task: k for k, stage in enumerate(self.graph.stages()) for task in stage}

    @cached_property
    def sources(self) -> dict[Task, list[Task]]:
        """The tasks whose data each task needs."""
        return {task: self.graph.sources(task) for task in self.graph}

    def __repr__(self) -> str:
        stages = summarise(self.graph.stage_names()) or "no tasks"
        return f"<Plan {self.signature.describe()}, {self.topology.describe()}: {stages}>"

    def _repr_svg_(self) -> str | None:
        """Show the task graph in a notebook."""
        return picture("plan_svg", self)

    def footprint(self) -> tuple[int, ...]:
        """What a run takes of every rank's ring of cells, by channel."""
        return self._footprint

    @cached_property
    def _footprint(self) -> tuple[int, ...]:
        from han.submodules.registry import submodule

        return tuple(
            submodule(choice.submodule).footprint(self, level)
            for level, choice in enumerate(self.choice.levels)
            if self.geometries[level] is not None
        )

    @property
    def levels(self) -> list[int]:
        """Levels at which there is something to do."""
        left = self.choice.composition == LEFT
        return [] if left else levels_of(self.topology, self.signature)

    @property
    def segments(self) -> int:
        """How many segments the message is cut into."""
        return 1 + max((task.segment for task in self.graph), default=0)

    @property
    def lockstep(self) -> bool:
        """Whether ranks go stage by stage."""
        return self.choice.schedule == "lockstep"


def make_plan(topology: Topology, signature: Signature, choice: Choice, memory: int) -> Plan:
    """Build the graph that `choice` asks for; channels hold about `memory` bytes."""
    from han.submodules.registry import fuses

    topology = as_called(topology, signature)
    levels = [] if choice.composition == LEFT else levels_of(topology, signature)
    fused = bool(levels) and fuses(choice.levels[levels[-1]])
    graph = build(signature, levels, topology.symbols, choice.segment, fused)
    return Plan(topology, signature, choice, graph, geometries(topology, memory))


def geometries(topology: Topology, memory: int) -> tuple[Geometry | None, ...]:
    """The channel layout of each level whose groups share memory, for the largest domain."""
    largest = [
        max(topology.homes[k].count(d) for d in set(topology.homes[k]))
        for k in range(topology.depth)
    ]
    return tuple(
        Geometry(n, memory) if shared else None
        for n, shared in zip(largest, topology.shared, strict=True)
    )


def as_called(topology: Topology, signature: Signature) -> Topology:
    """The topology that a call works on: where operands must keep their order, runs of ranks."""
    ordered = signature.reduces and not signature.commutative and not signature.by_blocks
    return topology.ordered() if ordered else topology


def levels_of(topology: Topology, signature: Signature) -> list[int]:
    """Levels at which a call has something to do; blocks move on the one that holds all ranks."""
    if not signature.by_blocks:
        return active_levels(topology)
    return [topology.whole] if topology.whole is not None and topology.size > 1 else []


def active_levels(topology: Topology) -> list[int]:
    """Levels at which any group has more than one member."""
    below = [topology.size] + [len(set(d)) for d in topology.domains]
    return [k for k in range(topology.depth) if below[k + 1] < below[k]]
