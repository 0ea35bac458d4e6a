"""Validate a machine model: its predictions beside reports of ``han bench``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from han.common.errors import ArgumentError, ConfigError
from han.common.suggest import expect_known
from han.config.config import Config, load_config
from han.config.machine import MachineModel
from han.model.element_types import OPS
from han.model.measurements import Report
from han.tasks.call import call_signature
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tuning.fit import Case
from han.tuning.prediction import Where, plan_of

RUNS = 30  # most calls in a simulated batch
OPERATIONS = 50_000  # most operations of all ranks in a simulated batch of several calls
CLOSE = 0.05  # pairs of times with a smaller relative difference have no clear winner


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

    def error_of(self, share: float) -> float:
        """Return the absolute error that a share of the cases has at most; 0.5: their median."""
        errors = [abs(row.error) for row in self.rows]
        return float(np.quantile(errors, share))

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


def case_of(where: Where, one: Measured) -> Case:
    """Return the plan and the programs of a measured case."""
    plan = plan_of(where, one.config, one.signature)
    programs = [lower(plan, rank) for rank in range(where.size)]
    total = sum(len(program.code) for program in programs)
    runs = max(1, min(one.calls, RUNS, OPERATIONS // max(1, total)))
    return Case(plan, programs, where, one.microseconds / 1e6, runs)


def compared(one: Measured, case: Case, machine: MachineModel) -> Compared:
    """Predict a case on a machine."""
    tasks = tuple((t.name, t.start, t.stop) for t in case.plan.tasks)
    plan = case.plan.choice.levels, tasks
    return Compared(one, case.predicted(machine) * 1e6, plan)
