"""The simulator: the times that a Plan takes on a machine model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from han.common.collector import collector_off
from han.config.machine import MachineModel
from han.model.program import Program
from han.model.timeline import TaskTime
from han.tasks.equal_roles import Role, roles
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.simulate.engine import run
from han.tasks.simulate.loading import Loader
from han.tasks.simulate.placement import Placement
from han.tasks.simulate.shapes import Shape

# The layout of `sim_span` (native/simulate/world.h).
SPAN = np.dtype(
    [
        ("rank", "i4"), ("run", "i4"), ("stream", "i4"), ("task", "u4"), ("begin", "f8"),
        ("end", "f8"), ("copying", "f8"), ("reducing", "f8"), ("start", "f8"),
    ]
)  # fmt: skip
Labels = Sequence[tuple[tuple[str, ...], Sequence[str]]]


@dataclass(frozen=True)
class Simulation:
    """The result of a simulation; times in seconds from the common start.

    ``finish[run][rank]`` is when a rank left a run. `copying`, `reducing` and `messaging` are the
    seconds that each rank's processor spent on copies, reductions and messages. `messages` and
    `nbytes` count messages and their bytes by level.
    """

    finish: tuple[tuple[float, ...], ...]
    copying: tuple[float, ...]
    reducing: tuple[float, ...]
    messaging: tuple[float, ...]
    messages: tuple[int, ...]
    nbytes: tuple[int, ...]
    operations: int
    spans: tuple[TaskTime, ...] = ()

    @property
    def seconds(self) -> float:
        """Time of the first run on the slowest rank."""
        return max(self.finish[0])

    @property
    def each(self) -> float:
        """Time of one of several runs back to back, on the slowest rank."""
        return max(self.finish[-1]) / len(self.finish)


def _roles(plan: Plan, programs: Sequence[Program] | None) -> Iterator[Role]:
    """Yield the role of one rank after the other; given programs are each rank's own."""
    if programs is None:
        return roles(plan)
    return (Role(program.rank, program) for program in programs)


def simulate(
    plan: Plan,
    machine: MachineModel,
    place: Sequence[Sequence[int]] | None = None,
    *,
    runs: int = 1,
    programs: Sequence[Program] | None = None,
    spans: bool = False,
    tell: Callable[[], None] | None = None,
    shapes: dict[int, Shape] | None = None,
) -> Simulation:
    """Predict `runs` calls, back to back, of all ranks of a plan.

    ``place[k][r]`` is the domain of rank r on level k of the machine, by default that of the plan's
    topology. `spans` keeps the times of tasks. `tell` is called whenever a rank has finished a run.
    `shapes` keeps what follows from `programs` alone, for simulations on other machines.
    Raises ValueError if `place` does not fit the machine's levels or the plan's ranks, and
    RuntimeError if the programs do not end.
    """
    place = plan.topology.homes if place is None else place
    _check_place(plan, machine, place)
    places = Placement(plan, machine, place)
    loader = Loader(plan, places, shapes)
    with collector_off():
        for role in _roles(plan, programs):
            loader.load(role)
    found, records = run(plan, places, loader, runs, spans, tell)
    finish, operations = found.pop("finish"), found.pop("operations")
    stuck = np.flatnonzero(np.isinf(finish[-1])).tolist()
    if stuck:
        raise RuntimeError(f"the programs do not end: ranks {stuck[:8]} wait for ever")
    return Simulation(
        finish=tuple(map(tuple, finish.tolist())),
        operations=int(operations[0]),
        spans=tuple(task_times(records, loader.labels, plan.signature)),
        **{name: tuple(array.tolist()) for name, array in found.items()},
    )


def _check_place(plan: Plan, machine: MachineModel, place: Sequence[Sequence[int]]) -> None:
    if len(place) != len(machine.levels) or any(len(p) != plan.topology.size for p in place):
        raise ValueError(
            f"the machine has {len(machine.levels)} levels ({', '.join(machine.names)}) for "
            f"{plan.topology.size} ranks; {len(place)} levels are given"
        )


def task_times(spans: bytes, labels: Labels, signature: Signature) -> Iterator[TaskTime]:
    """Yield the times of tasks; `labels` are the names of each rank's streams and tasks."""
    rows = np.frombuffer(spans, SPAN).tolist()
    for rank, turn, stream, task, begin, end, copying, reducing, start in rows:
        streams, tasks = labels[rank]
        name = tasks[task] if tasks else "copy"
        yield TaskTime(
            rank, turn, signature.collective, streams[stream], name, begin, end, copying, reducing,
            start - begin, nbytes=signature.nbytes,
        )  # fmt: skip
