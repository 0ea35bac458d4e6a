"""Plans: what the planner decides for all ranks, without the operations of any rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from han.common.kept import kept
from han.common.pictures import picture
from han.model.topology import Topology
from han.tasks.choice import LEFT, Choice
from han.tasks.compositions import as_called, composition
from han.tasks.contract import Submodule
from han.tasks.graph import Tasks, summarise
from han.tasks.outline import Outline, geometries
from han.tasks.own_sizes import SMALL, Ends, one_for_all
from han.tasks.signature import Signature
from han.tasks.size_classes import class_of, cut_in_proportion, exact
from han.tasks.steps import Steps, chain_of_steps


@dataclass(frozen=True, repr=False)
class Plan(Outline):
    """An Outline, and the submodules that carry it out, by level."""

    parts: tuple[Submodule, ...]
    largest: Plan | None = None  # that of the largest message, if this is the same for another one

    def __repr__(self) -> str:
        stages = summarise(self.tasks.stage_names()) or "no tasks"
        return f"<Plan {self.signature.describe()}, {self.topology.describe()}: {stages}>"

    def _repr_svg_(self) -> str | None:
        """Show the task graph in a notebook."""
        return picture("plan_svg", self)

    def footprint(self) -> tuple[int, ...]:
        """Return the bytes that a run takes of every rank's ring, by channel."""
        return self._footprint if self.largest is None else self.largest.footprint()

    @property
    def shortened(self) -> bool:
        """Whether the message is shorter than the largest one of the plan's class."""
        largest = self.largest
        return largest is not None and largest.signature.nbytes != self.signature.nbytes

    def of_size(self, nbytes: int, counts: tuple[int, ...] = ()) -> Plan:
        """Return the plan of a message of `nbytes` bytes from one for many sizes.

        Where blocks differ, `nbytes` is the size of the largest one, and `counts` are the elements
        of each. Blocks of own sizes all have `nbytes` bytes unless `counts` say otherwise.
        """
        if not self.signature.grains:
            return self
        if self.signature.own and not counts:
            counts = Ends.of(self.signature).alike(self.topology.size, nbytes)
        signature = exact(self.signature, nbytes, counts)
        tasks = cut_in_proportion(self.tasks, self.signature, nbytes)
        return replace(self, signature=signature, tasks=tasks, largest=self)

    def alike(self, signature: Signature) -> Plan:
        """Return the plan of a call that differs in size, with the same choice and channels."""
        tasks = _tasks(self.topology, signature, self.choice, self.parts)
        return replace(self, signature=signature, tasks=tasks)

    @kept
    def _footprint(self) -> tuple[int, ...]:
        return tuple([self.parts[level].footprint(self, level) for level in self.channels])


def make_plan(
    topology: Topology,
    signature: Signature,
    choice: Choice,
    memory: int,
    parts: Sequence[Submodule],
) -> Plan:
    """Build the tasks that `choice` asks for; channels hold about `memory` bytes.

    `parts` are the submodules that the choice names, by level. With own sizes, one plan serves all.
    """
    if signature.own and not signature.grains:
        whole = class_of(one_for_all(signature), SMALL)
        return make_plan(topology, whole, choice, memory, parts).of_size(signature.nbytes)
    topology = as_called(topology, signature, choice.composition)
    tasks = _tasks(topology, signature, choice, parts)
    channels = geometries(topology, memory)
    cut = composition(choice.composition).cut
    return Plan(topology, signature, choice, tasks, channels, cut, tuple(parts))


def _tasks(
    topology: Topology, signature: Signature, choice: Choice, parts: Sequence[Submodule]
) -> Tasks:
    """Return the tasks of a call; the topology is that on which the composition works."""
    passed: Steps = []
    if choice.composition != LEFT:
        steps = composition(choice.composition).steps
        passed = steps(topology, signature, choice, partial(_fuses, parts, choice))
    return chain_of_steps(passed, topology.symbols, signature, choice.segment)


def _fuses(parts: Sequence[Submodule], choice: Choice, level: int) -> bool:
    """Return whether the algorithm of a level does its reduce and broadcast as one task."""
    return parts[level].algorithms[choice.levels[level].algorithm].fuses
