"""The tuner on the simulator's machine: tables of any shape, without MPI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from schedules import stage_times

from han.config.config import Config
from han.config.machine import MachineModel, load_machine
from han.measure.tune.tuner import Input, sparse_first
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.choice import Choice
from han.tasks.compositions import as_called
from han.tasks.outline import levels_of
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.costs.estimates import Estimate
from han.tuning.costs.model import Costs, is_single, missing, shared_out, told_apart
from han.tuning.costs.stages import Pipeline, costs_of, pipeline_of_choice
from han.tuning.measured import GAIN
from han.tuning.prediction import Where
from han.tuning.rules import RuleTable, use_of
from han.tuning.search.limits import Limits
from han.tuning.search.portfolio import (
    LIMITS,
    Case,
    Grid,
    Laboratory,
    compared,
    improved,
    winners,
)
from han.tuning.search.results import Errors, Found, Winners
from han.tuning.search.space import space_of
from han.tuning.search.strategies import STRATEGIES, run
from han.tuning.shapes.costs import MOST, chosen_costs, usable
from han.tuning.shapes.machine import fitted
from han.tuning.shapes.rows import Study, study
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.points import Candidate, Point, key_of
from han.tuning.tuned.table import TunedTable, of_points, with_predictions
from han.tuning.tuned.tasks import TaskCost

MEMORY = 1 << 24
HERE = Fingerprint("a simulated one", 2, "MPICH", "5.0.2", link=1000.0)


class ShapeLab:
    """A lab of the simulator's machine with `nodes` x `ppn` ranks; what it measures is exact."""

    def __init__(self, machine: MachineModel, nodes: int, ppn: int) -> None:
        self.where = Where(machine, nodes, ppn)
        topology = self.where.imagined().topology(Config())
        self.rules = RuleTable(None, topology, NodeTraits())
        self.costs, self.errors, self.winners = Costs(), Errors(), Winners()
        self.tasks: dict[tuple[Signature, Choice], float] = {}

    def plan(self, signature: Signature, choice: Choice) -> Plan:
        return plan_of_choice(self.rules.topology, signature, choice, MEMORY)

    def pipeline(self, signature: Signature, choice: Choice) -> Pipeline:
        return told_apart(pipeline_of_choice(signature, choice, self.plan))

    def distinct(self, signature: Signature, choices: Sequence[Choice]) -> Sequence[Choice]:
        return choices

    def is_late(self) -> bool:
        return False

    def seconds(self, signature: Signature, choice: Choice) -> float:
        """Return the time of a call, simulated once."""
        if (signature, choice) not in self.tasks:
            self._simulate(signature, choice)
        return self.tasks[signature, choice]

    def _simulate(self, signature: Signature, choice: Choice, spans: bool = False):
        plan = self.plan(signature, choice)
        found = simulate(plan, self.where.machine, self.where.place, spans=spans)
        self.tasks[signature, choice] = found.seconds
        return plan, found

    def observe(self, signature: Signature, choice: Choice, limit: float) -> Sequence[float]:
        return [self.seconds(signature, choice)]

    def learn(self, signature: Signature, choice: Choice) -> None:
        pipeline = self.pipeline(signature, choice)
        if not pipeline.steps or not missing(pipeline, self.costs):
            return
        if is_single(pipeline):
            whole = self.seconds(signature, choice)
            self.costs.enter(shared_out(pipeline, whole, self.costs, self.where.size))
            return
        rows = []
        for count in (pipeline.short, *([pipeline.longer] if pipeline.is_long else [])):
            one = replace(signature, count=pipeline.nbytes(count) // signature.element)
            plan, found = self._simulate(one, choice, spans=True)
            rows.append(stage_times(plan, found.spans))
        for stage, ranks in costs_of(pipeline, *rows).items():
            self.costs.improve(stage, ranks)

    def learn_again(self, signature: Signature, choice: Choice) -> None:
        """Measure nothing: these costs do not vary."""


def tuned_on(
    lab: ShapeLab, inputs: Iterable[tuple[str, int]], limits: Limits = LIMITS,
    strategy: str = "task+heuristic", most: int = MOST,
) -> TunedTable:  # fmt: skip
    """Return the table that a tuner makes on a lab, with at most so many costs of tasks."""
    points = []
    for one in sparse_first([Input(*pair) for pair in inputs]):
        signature = call_signature(one.collective, one.nbytes)
        space = space_of(lab.rules, signature, limits)
        found = run(STRATEGIES[strategy], lab, signature, space)
        points.append(_point(lab, signature, found, space.candidates[0]))
    table = of_points(points, HERE)
    return replace(table, tasks=tuple(chosen_costs(usable(_tasks(lab)), most)))


def _point(lab: ShapeLab, signature: Signature, found: Found, built_in: Choice) -> Point:
    default = lab.seconds(signature, built_in)
    times = {one.choice: lab.seconds(signature, one.choice) for one in found.measured}
    best = sorted((c for c in times if c != built_in), key=lambda c: times[c])[:5]
    candidates = tuple(Candidate(_use(lab, signature, c), _exactly(times[c])) for c in best)
    keeps = not best or times[best[0]] > GAIN * default
    key = key_of(signature, lab.rules.topology)
    return Point(key, signature.nbytes, keeps, candidates, _exactly(default))


def _tasks(lab: ShapeLab) -> Iterable[TaskCost]:
    topology, together = lab.rules.topology, lab.where.machine.node.together
    for (call, choice), seconds in lab.tasks.items():
        yield TaskCost(
            call.collective, call.nbytes, topology.nodes, topology.ppn, topology.names,
            _use(lab, call, choice), seconds, together=together,
        )  # fmt: skip


def _use(lab: ShapeLab, signature: Signature, choice: Choice):
    view = as_called(lab.rules.topology, signature, choice.composition)
    return use_of(choice, {k: view.names[k] for k in levels_of(view, signature)})


def _exactly(seconds: float) -> Estimate:
    return Estimate(seconds, seconds, seconds, 1)


# ---- tables for other shapes --------------------------------------------------------------------


class Regret(NamedTuple):
    """How many times as long as after tuning there a call takes, and with the built-in choice."""

    case: Case
    told: float
    built_in: float


def steady(name: str) -> MachineModel:
    """Return a machine as calls in a row find it: the buckets of its adapters are empty."""
    record = load_machine(name).to_mapping()
    record["node"].pop("burst", None)
    record.pop("sources", None)
    return load_machine(record)


def answering(
    table: TunedTable, grid: Grid, limits: Limits = LIMITS
) -> tuple[TunedTable, Study, float]:
    """Return a table with rows for a grid, how they were predicted, and the error of the model."""
    models = fitted(table.tasks, HERE.cores, HERE.link)
    labs = [Laboratory(one.machine, one.in_a_row) for one in models]
    found = study(
        table, grid, lambda cases: [winners(labs, case, limits) for case in cases],
        lambda asked: [compared(labs, case, dict(enumerate(uses))) for case, uses in asked],
        models[0].error,
    )  # fmt: skip
    return with_predictions(table, found.rows), found, models[0].error


def regrets(
    table: TunedTable, machine: MachineModel, cases: Iterable[Case], limits: Limits = LIMITS
) -> list[Regret]:
    """Return how the decisions of a table compare with what a search finds for each case."""
    lab, found = Laboratory(machine), list[Regret]()
    for case in cases:
        rules, call = lab.rules(case), lab.call(case)
        told = replace(rules, tuned=table).decide(call).choice
        times = [lab.seconds(case, choice) for choice in (told, lab.built_in(case))]
        best = min(improved(lab, case, limits)[0][0], *times)
        found.append(Regret(case, *(seconds / best for seconds in times)))
    return found
