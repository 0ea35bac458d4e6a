"""The door of the simulator: a Plan and a machine in, times out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from han.config.machine import MachineModel
from han.model.program import Program
from han.model.timeline import TaskTime
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.simulate.engine import Engine
from han.tasks.simulate.loading import Loader, gates
from han.tasks.simulate.network import Network
from han.tasks.simulate.operations import Operations


@dataclass(frozen=True)
class Simulation:
    """What a simulation found; times in seconds from the common start.

    ``finish[run][rank]`` is when a rank left a run; `copying`, `reducing` and `messaging` are the
    seconds that each rank's processor spent so; `messages` and `nbytes` count by level.
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
        """Time of the first run, of the slowest rank."""
        return max(self.finish[0])

    @property
    def each(self) -> float:
        """Time of one of several runs back to back, of the slowest rank."""
        return max(self.finish[-1]) / len(self.finish)

    def finish_of(self, rank: int) -> tuple[float, ...]:
        """When a rank left each run."""
        return tuple(run[rank] for run in self.finish)


def _all(plan: Plan) -> Iterator[Program]:
    """Lower one rank after the other, so that only what is loaded of them stays."""
    return (lower(plan, rank) for rank in range(plan.topology.size))


def simulate(
    plan: Plan,
    machine: MachineModel,
    place: Sequence[Sequence[int]] | None = None,
    *,
    runs: int = 1,
    programs: Sequence[Program] | None = None,
    spans: bool = False,
    tell: Callable[[], None] | None = None,
) -> Simulation:
    """Predict `runs` calls, back to back, of all ranks of a plan.

    `place` says in which domain of each of the machine's levels every rank is: as the plan's
    topology has them unless given. `spans` keeps when tasks began and ended. `tell` is called
    whenever a rank has done a run. Raises ValueError if the machine has other levels than the
    topology and no `place` is given, RuntimeError if the programs do not end.
    """
    place = plan.topology.homes if place is None else place
    _check_place(plan, machine, place)
    loader = Loader(plan)
    loaded = [loader.load(p) for p in (_all(plan) if programs is None else programs)]
    engine = Engine(loaded, machine, place, runs, plan.signature if spans else None)
    engine.guard(plan.topology, loader.channels, gates(plan, runs))
    network = Network(machine, place)
    work = Operations(engine, network, len(loader.flags))
    engine.run(work.table, tell)
    return _found(engine, network)


def _check_place(plan: Plan, machine: MachineModel, place: Sequence[Sequence[int]]) -> None:
    if len(place) != len(machine.levels) or any(len(p) != plan.topology.size for p in place):
        raise ValueError(
            f"the machine has {len(machine.levels)} levels ({', '.join(machine.names)}) for "
            f"{plan.topology.size} ranks; {len(place)} levels are given"
        )


def _found(engine: Engine, network: Network) -> Simulation:
    ranks = engine.ranks
    return Simulation(
        tuple(map(tuple, engine.finish)),
        tuple(r.copying for r in ranks),
        tuple(r.reducing for r in ranks),
        tuple(r.messaging for r in ranks),
        tuple(network.messages),
        tuple(network.bytes),
        engine.operations,
        tuple(engine.spans),
    )
