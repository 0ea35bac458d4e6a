"""Fit the values of a machine model to measured times of calls.

The Levenberg-Marquardt method on the logarithms of values and times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from han.config.machine import Link, MachineModel, Node
from han.model.program import Program
from han.tasks.plan import Plan
from han.tasks.simulate import simulate
from han.tasks.simulate.shapes import Shape
from han.tuning.prediction import Where

Vector = npt.NDArray[np.float64]
Name = tuple[int | None, str]  # of a value: its level, or None if it is the node's, and its field

BETWEEN = ("latency", "overhead", "copying", "bandwidth")  # fitted, of the outermost level
INSIDE = ("flag",)  # of the level of nodes
NODE = ("injection", "copy_rate", "reduce_rate", "memory", "operation", "call", "switch")
ROUNDS = 12  # of a fit
STEP = 0.1  # of the logarithm of a value, for a slope
FARTHEST = 1.5  # that the logarithm of a value moves in a round
PRIOR = 0.02  # weight of staying at the first values
SOUND = 0.05  # a relative error from which on errors count as they are, not squared
ENOUGH = 0.01  # mean relative error at which a fit ends


@dataclass(frozen=True)
class Case:
    """A measured call: its plan, the programs of all ranks, and seconds a call of `runs` calls."""

    plan: Plan
    programs: Sequence[Program]
    where: Where
    seconds: float
    runs: int
    shapes: dict[int, Shape] = field(default_factory=dict)  # kept for other machines

    def predicted(self, machine: MachineModel) -> float:
        """Return the seconds of a call on a machine, of several calls in a row each."""
        return simulate(
            self.plan, machine, self.where.place, runs=self.runs, programs=self.programs,
            shapes=self.shapes,
        ).each  # fmt: skip


def fitted(
    first: MachineModel, cases: Sequence[Case], tell: Callable[[], None] = lambda: None
) -> tuple[MachineModel, float]:
    """Return the machine whose values explain cases best, and the mean error that is left.

    The error is the mean of ``|log(predicted / measured)|``. The fit begins with the values of
    `first`; those that it does not set, and those that change no prediction, stay. `tell` is called
    before each of at most `ROUNDS` rounds.
    """
    values = dict(_values(first))

    def moved(by: Vector) -> MachineModel:
        change = zip(values.items(), by, strict=True)
        return _with(first, {name: value * math.exp(x) for (name, value), x in change})

    def errors(by: Vector) -> Vector:
        machine = moved(by)
        return np.array([math.log(one.predicted(machine) / one.seconds) for one in cases])

    at = np.zeros(len(values))
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


def _values(machine: MachineModel) -> Iterator[tuple[Name, float]]:
    """Yield the values to fit that a machine sets."""
    inside, outermost = machine.node_level, len(machine.levels) - 1
    parts: tuple[tuple[int | None, Link | Node, tuple[str, ...]], ...] = (
        (outermost, machine.levels[outermost], BETWEEN if outermost > inside else ()),
        (inside, machine.levels[inside], INSIDE),
        (None, machine.node, NODE),
    )
    for owner, part, keys in parts:
        yield from (((owner, key), getattr(part, key)) for key in keys if getattr(part, key))


def _with(machine: MachineModel, values: Mapping[Name, float]) -> MachineModel:
    """Return a machine with other values."""

    def of(owner: int | None) -> dict[str, float]:
        return {key: value for (whose, key), value in values.items() if whose == owner}

    levels = tuple(one.model_copy(update=of(k)) for k, one in enumerate(machine.levels))
    node = machine.node.model_copy(update=of(None))
    return machine.model_copy(update={"levels": levels, "node": node})


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
