"""Outlines: plans without their submodules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from han.common.kept import kept
from han.model.channel_layout import Geometry
from han.model.collectives import ROWS
from han.model.topology import Topology
from han.tasks.block_steps import BlockSteps
from han.tasks.choice import LEFT, Choice
from han.tasks.graph import Task, Tasks
from han.tasks.ring import Span
from han.tasks.signature import Signature

if TYPE_CHECKING:
    from han.tasks.task_graph import TaskGraph

T = TypeVar("T")
Cut = Callable[[Topology, Signature, Choice, Task], list[Span]]


@dataclass(frozen=True, repr=False)
class Outline:
    """A call, its topology, choice, tasks and channels: the part of a plan that submodules read."""

    topology: Topology
    signature: Signature
    choice: Choice
    tasks: Tasks
    geometries: tuple[Geometry | None, ...]  # of this rank's channels, by level
    cut: Cut | None  # how tasks are cut into parts, if the composition has parts

    @kept
    def streams(self) -> dict[tuple[str, int], tuple[Task, ...]]:
        """The tasks of each stream in order, the same for all ranks."""
        return {stream: tuple(tasks) for stream, tasks in self.tasks.streams().items()}

    @kept
    def worked(self) -> dict[tuple[str, int], tuple[Task, ...]]:
        """The tasks of each stream, cut into their parts if the composition has parts.

        Parts are in one order for all ranks; ranks work on them in other orders.
        """
        if self.cut is None:
            return self.streams
        view, signature = self.topology, self.signature
        return {
            stream: tuple(
                Task(*task[:4], start, stop, task.step)
                for task in tasks
                for start, stop in self.cut(view, signature, self.choice, task)
            )
            for stream, tasks in self.streams.items()
        }

    @property
    def in_parts(self) -> bool:
        """Whether tasks are cut into several parts."""
        return any(len(self.worked[stream]) > len(tasks) for stream, tasks in self.streams.items())

    @kept
    def block_steps(self) -> BlockSteps | None:
        """The steps of a call by blocks over nodes; None for other calls."""
        signature = self.signature
        if not signature.by_blocks or (self.topology.whole is not None and not signature.own):
            return None
        return BlockSteps.of_call(self.topology, signature, self.choice.composition)

    @kept
    def channels(self) -> tuple[int, ...]:
        """The levels that have channels, by the number of the channel."""
        return tuple([k for k, geometry in enumerate(self.geometries) if geometry is not None])

    def geometry(self, level: int) -> Geometry:
        """Return the layout of a level's channel."""
        geometry = self.geometries[level]
        assert geometry is not None, "supports() lets only levels with shared memory pass"
        return geometry

    @kept
    def _layouts(self) -> dict[object, Any]:
        return {}

    def layout(self, key: object, make: Callable[[], T]) -> T:
        """Return a layout that is made once; `key` says what it depends on."""
        found: T | None = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = make()
        return found

    @kept
    def stages(self) -> dict[Task, int]:
        """The number of each task's stage, tasks in the order of stages."""
        return {task: k for k, stage in enumerate(self.tasks.stages()) for task in stage}

    @kept
    def graph(self) -> TaskGraph:
        """The tasks as a networkx.DiGraph, made when it is first asked for."""
        from han.tasks.task_graph import TaskGraph

        return TaskGraph.of(self.tasks)

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels on which the call communicates; none if it is left to the MPI library."""
        left = self.choice.composition == LEFT
        return () if left else levels_of(self.topology, self.signature)

    @property
    def segments(self) -> int:
        """Number of segments of the message."""
        return self.tasks.segments

    @kept
    def repeats(self) -> bool:
        """Whether a segment has several tasks of one kind on a level."""
        return len(self.tasks) > len(self.streams) * self.segments

    @kept
    def nested_scan(self) -> bool:
        """Whether ranks scan inside nodes and between them (:mod:`han.tasks.prefixes`)."""
        return self.signature.prefix and len(self.levels) > 1

    @property
    def in_halves(self) -> bool:
        """Whether small slots have one half for operands and one for what is broadcast."""
        return self.repeats or self.nested_scan

    @property
    def lockstep(self) -> bool:
        """Whether ranks carry out the tasks stage by stage."""
        return self.choice.schedule == "lockstep"


def geometries(topology: Topology, memory: int) -> tuple[Geometry | None, ...]:
    """Return the channel layout of each level, for its largest domain; None: it has no channel."""
    return tuple(
        Geometry(topology.channel_ranks[level], memory) if has_channel else None
        for level, has_channel in enumerate(topology.channels)
    )


def levels_of(topology: Topology, signature: Signature) -> tuple[int, ...]:
    """Return the levels on which a call communicates.

    By blocks, it is the level that holds all ranks, or that of the nodes and that of all nodes.
    Blocks of own sizes go through shared memory only if ranks can attach each other's.
    """
    if not signature.by_blocks:
        return topology.active
    if topology.size == 1:
        return ()
    if topology.whole is not None:
        return (topology.whole,)
    if signature.own and not topology.attach:
        return (topology.active[-1],)
    if not ROWS[signature.collective].bundled:
        return ()
    inside, outermost = topology.node_channel, topology.active[-1]
    return (outermost,) if inside is None else (inside, outermost)
