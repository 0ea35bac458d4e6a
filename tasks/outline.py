"""What is decided about a call for all ranks, before the submodules of its levels are there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from han.model.channel_layout import Geometry
from han.model.topology import Topology
from han.tasks.choice import LEFT, Choice
from han.tasks.graph import Task, Tasks
from han.tasks.signature import Signature

if TYPE_CHECKING:
    from han.tasks.task_graph import TaskGraph


@dataclass(frozen=True, repr=False)
class Outline:
    """A call, its tasks, where it runs and how: what submodules look at."""

    topology: Topology
    signature: Signature
    choice: Choice
    tasks: Tasks
    geometries: tuple[Geometry | None, ...]  # of this rank's channels, by level

    @cached_property
    def streams(self) -> dict[tuple[str, int], tuple[Task, ...]]:
        """The tasks of each stream in order, the same for all ranks."""
        return {stream: tuple(tasks) for stream, tasks in self.tasks.streams().items()}

    @cached_property
    def stages(self) -> dict[Task, int]:
        """The stage that each task is in, tasks in the order of stages."""
        return {task: k for k, stage in enumerate(self.tasks.stages()) for task in stage}

    @cached_property
    def graph(self) -> TaskGraph:
        """The tasks as a networkx.DiGraph, made when it is first asked for."""
        from han.tasks.task_graph import TaskGraph

        return TaskGraph.of(self.tasks)

    @property
    def levels(self) -> list[int]:
        """Levels at which there is something to do."""
        left = self.choice.composition == LEFT
        return [] if left else levels_of(self.topology, self.signature)

    @property
    def segments(self) -> int:
        """How many segments the message is cut into."""
        return 1 + max((task.segment for task in self.tasks), default=0)

    @property
    def lockstep(self) -> bool:
        """Whether ranks go stage by stage."""
        return self.choice.schedule == "lockstep"


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
