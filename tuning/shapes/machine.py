"""A machine model for the costs of tasks: its values are those that explain the costs best.

The Levenberg-Marquardt method on the logarithms of values and times. Costs on few ranks may leave
some values open, so several first models are fitted, and all that explain the costs are returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from han.config.config import Config
from han.config.machine import MachineModel, load_machine
from han.model.program import Program
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.simulate import simulate
from han.tasks.simulate.shapes import Shape
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.prediction import Where
from han.tuning.rules import RuleTable
from han.tuning.search.portfolio import calls_in_a_row
from han.tuning.shapes.costs import chosen_costs, usable
from han.tuning.tuned.tasks import TaskCost

Vector = npt.NDArray[np.float64]

FIRST: Mapping[str, Mapping[str, Any]] = {  # what the fit begins with, by name
    "ethernet": {"latency": 20e-6, "overhead": 5e-6, "eager": "1MiB"},
    "fabric": {"latency": 2e-6, "overhead": 0.5e-6, "eager": "64KiB"},
}
NODE = {"copy": 10e9, "reduce": 8e9, "memory": 30e9, "operation": 30e-9, "call": 500e-9}
RATE = 1e9  # bytes a second of an adapter whose rate is unknown
SWITCH = 5e-6  # seconds from rank to rank of a processor that ranks share
ROUNDS = 12  # of the fit
STEP = 0.1  # of the logarithm of a value, for a slope
FARTHEST = 1.5  # that the logarithm of a value moves in a round
PRIOR = 0.02  # weight of staying at the first values
SOUND = 0.05  # a relative error from which on errors count as they are, not squared
ENOUGH = 0.01  # mean relative error at which a fit ends
AS_GOOD = 1.25, 0.02  # times the error of the best fit, and added: such a model explains costs too


@dataclass(frozen=True)
class Fitted:
    """A machine model that explains costs; `error` is the mean of ``|log(simulated / measured)|``.

    `in_a_row`: the costs are of calls back to back, and so are those of predictions.
    """

    name: str
    machine: MachineModel
    error: float
    in_a_row: bool = False


class _Case(NamedTuple):
    plan: Plan
    programs: list[Program]
    shapes: dict[int, Shape]
    where: Where
    seconds: float
    runs: int


def fitted(
    costs: Sequence[TaskCost], cores: int, link: float, tell: Callable[[], None] = lambda: None
) -> list[Fitted]:
    """Return the machine models that explain some costs about as well as the best one, this first.

    `cores` and `link`, the adapter's rate in Mbit/s, are those of the fingerprint; 0 is unknown.
    `tell` is called before each of `ROUNDS` rounds of each of the first models. No model is
    returned if there are no costs.
    """
    some = chosen_costs(usable(costs))
    found = []
    for name, network in FIRST.items():
        values = _values(network, link, any(one.together for one in some))
        make = _maker(network, cores, any(one.together for one in some))
        cases = _cases(some, make(values))
        if cases:
            theirs, error = _descended(values, make, cases, tell)
            found.append(Fitted(name, make(theirs), error, any(one.in_a_row for one in some)))
    found.sort(key=lambda one: one.error)
    times, more = AS_GOOD
    return [one for one in found if one.error <= times * found[0].error + more]


# ---- models -------------------------------------------------------------------------------------


def _values(network: Mapping[str, Any], link: float, together: bool) -> dict[str, float]:
    """Return the first values of what is fitted, in seconds and bytes a second."""
    rate = link * 125e3 if link else RATE
    values = {
        "network.latency": network["latency"], "network.overhead": network["overhead"],
        "network.copying": 5e9, "network.bandwidth": max(3e9, rate), "node.injection": rate,
        "levels.flag": 150e-9, **{f"node.{key}": value for key, value in NODE.items()},
    }  # fmt: skip
    return values | ({"node.switch": SWITCH} if together else {})


def _maker(
    network: Mapping[str, Any], cores: int, together: bool
) -> Callable[[Mapping[str, float]], MachineModel]:
    """Return what makes a model of values."""

    def make(values: Mapping[str, float]) -> MachineModel:
        of = {owner: _written(values, owner) for owner in ("network", "node", "levels")}
        inside = {"name": "node", "latency": "500ns", "bandwidth": "8GB/s", "overhead": "200ns"}
        between = {"name": "network", "eager": network["eager"], **of["network"]}
        node = {"level": "node", "together": together, **of["node"]}
        return load_machine({
            "about": "fitted to costs of tasks", "nodes": 2, "ppn": 1,
            "levels": [{**inside, **of["levels"]}, between],
            "node": node | ({"cores": cores} if cores else {}),
        })  # fmt: skip

    return make


def _written(values: Mapping[str, float], owner: str) -> dict[str, str]:
    """Return the values of one part of a machine as its file has them."""
    found = {}
    for name, value in values.items():
        of, _, key = name.partition(".")
        if of == owner:
            found[key] = f"{value * 1e9:.6f}ns" if value < 1 else f"{value / 1e6:.6f}MB/s"
    return found


def _cases(costs: Iterable[TaskCost], machine: MachineModel) -> list[_Case]:
    """Return the programs of the calls of some costs, without those that cannot be planned."""

    @cache
    def place(nodes: int, ppn: int) -> tuple[Where, RuleTable]:
        where = Where(machine, nodes, ppn)
        return where, RuleTable(None, where.imagined().topology(Config()), NodeTraits())

    found = []
    for one in costs:
        where, rules = place(*one.shape)
        call = call_signature(one.collective, one.nbytes)
        choice = rules.made(one.use, "", call)
        if rules.objection(call, choice, blocking=False) is None:
            plan = plan_of_choice(rules.topology, call, choice, Config().memory)
            programs = [lower(plan, rank) for rank in range(where.size)]
            runs = calls_in_a_row(one.nbytes) if one.in_a_row else 1
            found.append(_Case(plan, programs, {}, where, one.seconds, runs))
    return found


# ---- the fit ------------------------------------------------------------------------------------


def _descended(
    values: Mapping[str, float], make: Callable[[Mapping[str, float]], MachineModel],
    cases: Sequence[_Case], tell: Callable[[], None],
) -> tuple[dict[str, float], float]:  # fmt: skip
    """Return the values that explain cases best, and the mean error that is left."""
    names = [*values]

    def moved(by: Vector) -> dict[str, float]:
        return {n: values[n] * math.exp(x) for n, x in zip(names, by, strict=True)}

    def errors(by: Vector) -> Vector:
        machine = make(moved(by))
        return np.array([_error(machine, one) for one in cases])

    at = np.zeros(len(names))
    left, damping = errors(at), 0.1
    for _ in range(ROUNDS):
        tell()
        if np.abs(left).mean() < ENOUGH:
            break
        found = _step(errors, at, left, damping)
        if found is None:
            break
        at, left, damping = found
    return moved(at), float(np.abs(left).mean())


def _step(
    errors: Callable[[Vector], Vector], at: Vector, left: Vector, damping: float
) -> tuple[Vector, Vector, float] | None:
    """Return a better place, its errors and the damping there; None if there is none near."""
    slopes = np.array([(errors(at + STEP * axis) - left) / STEP for axis in np.eye(len(at))]).T
    weights = 1 / np.maximum(SOUND, np.abs(left))  # a large error counts once, not squared
    square = (slopes.T * weights) @ slopes + PRIOR * np.eye(len(at))
    down = (slopes.T * weights) @ left + PRIOR * at
    best = _price(left, at)
    for _ in range(5):
        change = np.linalg.solve(square + damping * np.diag(np.diag(square)), -down)
        there = at + np.clip(change, -FARTHEST, FARTHEST)
        after = errors(there)
        if _price(after, there) < best:
            return there, after, max(damping / 4, 1e-4)
        damping *= 4
    return None


def _price(left: Vector, at: Vector) -> float:
    return float(np.abs(left).sum() + PRIOR * SOUND * (at**2).sum())


def _error(machine: MachineModel, one: _Case) -> float:
    place, programs = one.where.place, one.programs
    found = simulate(one.plan, machine, place, runs=one.runs, programs=programs, shapes=one.shapes)
    seconds = found.seconds if one.runs == 1 else found.each
    return math.log(seconds / one.seconds)
