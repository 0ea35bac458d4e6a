"""Compare a machine model with measurements, and fit it to them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import yaml

from han.common.errors import ArgumentError, ConfigError
from han.common.suggest import expect_known
from han.config.config import Config, load_config
from han.config.machine import MachineModel, load_machine
from han.model.element_types import OPS
from han.model.measurements import Report
from han.model.program import Program
from han.tasks.call import call_signature
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tuning.prediction import Where, plan_of

RUNS = 30  # most calls in a simulated batch
OPERATIONS = 50_000  # most operations of all ranks in a simulated batch of several calls
CLOSE = 0.05  # pairs of times with a smaller relative difference have no clear winner
# The values to fit, in this order. A value that the machine model does not set is not fitted.
FITTED = (
    "network.latency", "network.overhead", "network.copying", "node.switch", "node.injection",
    "node.call", "node.copy", "node.reduce", "node.memory", "network.bandwidth", "node.flag",
    "node.operation",
)  # fmt: skip
STEPS = (1.6, 1.2, 1.1)  # factors by which values are multiplied and divided, coarse to fine
LOYALTY = 0.01  # price of moving a value by a factor of e from its first one


@dataclass(frozen=True)
class Measured:
    """One measured case: microseconds a call in batches of `calls`; `choice` names the report."""

    signature: Signature
    choice: str
    config: Config
    microseconds: float
    calls: int

    @property
    def key(self) -> tuple[str, int]:
        """Collective and size in bytes; cases with the same key are compared with each other."""
        return self.signature.collective, self.signature.nbytes


@dataclass(frozen=True)
class Compared:
    """A case with its prediction."""

    case: Measured
    predicted: float  # microseconds
    plan: object = None  # equal for configurations that give the same plan

    @property
    def error(self) -> float:
        """The relative error: positive if the predicted time is too long."""
        return self.predicted / self.case.microseconds - 1


@dataclass(frozen=True)
class Comparison:
    """All cases with their predictions."""

    rows: tuple[Compared, ...]

    @property
    def median_error(self) -> float:
        """The median of the absolute errors."""
        return median(abs(row.error) for row in self.rows)

    def pairs(self) -> tuple[int, int, int]:
        """Count pairs of different plans for one call; return (same, clear, close).

        A pair is `clear` if its measured times differ by a factor of 1 + CLOSE or more, otherwise
        `close`. `same` counts the clear pairs whose faster plan is predicted to be the faster one.
        """
        same = clear = close = 0
        for a, b in itertools.combinations(self.rows, 2):
            if a.case.key != b.case.key or a.plan == b.plan:
                continue
            measured = a.case.microseconds / b.case.microseconds
            if abs(math.log(measured)) < math.log(1 + CLOSE):
                close += 1
                continue
            clear += 1
            same += (measured < 1) == (a.predicted < b.predicted)
        return same, clear, close


def measured_of(run: Report) -> list[Measured]:
    """Return han's times in a report of ``han bench --json``.

    Raises ArgumentError if the report does not hold han's configuration.
    """
    text = run.data.get("config")
    if not isinstance(text, str):
        raise ArgumentError(f"{run.name}: does not hold han's configuration: measure it again")
    config = _config_of(run.name, text)
    how = run.data["settings"]
    found = []
    for (collective, nbytes), times in run.series("han").items():
        try:
            signature = _signature(collective, nbytes, how)
        except ArgumentError as error:
            raise ArgumentError(f"{run.name}: {error}") from None
        found.append(Measured(signature, run.name, config, times.median, times.calls))
    return found


def _config_of(name: str, text: str) -> Config:
    try:
        return load_config(yaml.safe_load(text))
    except (yaml.YAMLError, ConfigError) as error:
        raise ArgumentError(f"{name}: config: {error}") from None


def _signature(collective: str, nbytes: int, how: Mapping[str, Any]) -> Signature:
    expect_known("operation", how["op"], OPS)
    return call_signature(collective, nbytes, how["op"], how["dtype"], how["root"])


@dataclass
class Oracle:
    """Predicts cases on different machine models; makes each plan and its programs once."""

    where: Where
    _made: dict[tuple[str, Signature], tuple[Plan, list[Program]]] = field(default_factory=dict)

    def predict(self, machine: MachineModel, case: Measured) -> Compared:
        """Predict a case."""
        key = case.choice, case.signature
        if key not in self._made:
            plan = plan_of(self.where, case.config, case.signature)
            self._made[key] = plan, [lower(plan, r) for r in range(self.where.size)]
        plan, programs = self._made[key]
        place = machine.place(self.where.nodes, self.where.ppn)
        total = sum(len(p.code) for p in programs)
        runs = max(1, min(case.calls, RUNS, OPERATIONS // max(1, total)))
        found = simulate(plan, machine, place, runs=runs, programs=programs).each * 1e6
        tasks = tuple((t.name, t.start, t.stop) for t in plan.tasks)
        return Compared(case, found, (plan.choice.levels, tasks))

    def compare(self, machine: MachineModel, cases: Iterable[Measured]) -> Comparison:
        """Predict all cases."""
        return Comparison(tuple(self.predict(machine, c) for c in cases))

    def loss(self, machine: MachineModel, cases: Sequence[Measured]) -> float:
        """Return the mean of |log(predicted / measured)|."""
        rows = self.compare(machine, cases).rows
        return sum(abs(math.log(r.predicted / r.case.microseconds)) for r in rows) / len(rows)


def fit(
    oracle: Oracle, cases: Sequence[Measured], tell: Callable[[], None] = lambda: None
) -> MachineModel:
    """Return the machine model with values that predict the cases better.

    Coordinate descent on the mean of |log(predicted / measured)|. Moving a value away from its
    first one has a price, so values that do not change the predictions stay. `tell` is called
    after each step of each value.
    """
    first = to_mapping(oracle.where.machine)
    names = [name for name in FITTED if _look(first, name)]

    def price(record: dict[str, Any]) -> float:
        away = (_number(_look(record, n)) / _number(_look(first, n)) for n in names)
        return oracle.loss(load_machine(record), cases) + LOYALTY * sum(
            math.log(factor) ** 2 for factor in away
        )

    record, best = first, price(first)
    for step in STEPS:
        for name in names:
            for factor in (step, 1 / step):
                record, best = _descend(price, record, best, name, factor)
                tell()
    return load_machine(record)


def rounds() -> int:
    """Return how often ``fit`` calls `tell`, at most."""
    return len(STEPS) * len(FITTED) * 2


def _descend(
    price: Callable[[dict[str, Any]], float], record: dict[str, Any], best: float, name: str,
    factor: float,
) -> tuple[dict[str, Any], float]:  # fmt: skip
    """Multiply one value by a factor for as long as the price falls."""
    while True:
        other = _changed(record, name, factor)
        cost = price(other)
        if cost >= best - 1e-6:
            return record, best
        record, best = other, cost


def to_mapping(machine: MachineModel) -> dict[str, Any]:
    """Return a machine model as plain data that ``load_machine`` reads."""
    return machine.model_dump(mode="json", by_alias=True, exclude_unset=True)


OF_NODE = ("operation", "call", "switch", "copy", "reduce", "memory", "injection")


def _part(record: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """Return the part of a record that holds a value (a level or the node), and the value's key."""
    owner, _, key = name.partition(".")
    if key in OF_NODE:
        return record["node"], key
    return next((one for one in record["levels"] if one["name"] == owner), {}), key


def _look(record: dict[str, Any], name: str) -> Any:
    part, key = _part(record, name)
    return part.get(key)


def _changed(record: dict[str, Any], name: str, factor: float) -> dict[str, Any]:
    levels = [dict(level) for level in record["levels"]]
    copy = {**record, "levels": levels, "node": dict(record["node"])}
    part, key = _part(copy, name)
    unit = "ns" if part[key].endswith("ns") else "MB/s"
    part[key] = f"{_number(part[key]) * factor:.6f}{unit}"
    return copy


def _number(text: str) -> float:
    return float(text.rstrip("nsMB/"))
