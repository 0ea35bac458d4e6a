"""What a search needs of measurements, what later searches know of it, and what it returns."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from han.tasks.choice import Choice
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.costs.estimates import Estimate
from han.tuning.costs.model import Costs
from han.tuning.costs.ratios import OF_DEVIATION
from han.tuning.costs.stages import Pipeline
from han.tuning.measured import (
    APART,
    DEVIATIONS,
    FEWEST_ERRORS,
    FIRST_MARGIN,
    LEAST_MARGIN,
    MOST_MARGIN,
    NEAR,
    RECENT_ERRORS,
)
from han.tuning.search.space import Pruned


class OutOfTime(Exception):
    """The time for a search is over; raised on all ranks alike."""


class Cold(tuple[float, ...]):
    """The seconds of a call that ran for the first time: caches and connections were not ready.

    They are an upper bound, and count as an observation only if later ones agree.
    """


class Lab(Protocol):
    """Measures on the ranks that run; every answer is the same on all ranks.

    ``observe`` raises OutOfTime once the time for a call is over, ``learn`` somewhat earlier, so
    that there is time to measure what was predicted.
    """

    costs: Costs  # of all stages that were measured so far
    errors: Errors  # of all predictions of candidates that were measured so far
    winners: Winners  # of all sizes that were searched so far

    def observe(self, signature: Signature, choice: Choice, limit: float) -> Sequence[float]:
        """Observe a whole collective a few times; return the seconds of each observation.

        Of a long call they may be those of its first run (Cold). One is enough where it takes more
        than `limit` seconds. None may be returned a few times, if all were disturbed.
        """

    def is_late(self) -> bool:
        """Whether the time that is left should go to candidates that were observed already."""

    def learn(self, signature: Signature, choice: Choice) -> None:
        """Measure the stages of a call whose costs are not known yet."""

    def learn_again(self, signature: Signature, choice: Choice) -> None:
        """Measure the stages of a call once more; keep the smaller costs.

        Nothing happens if one of its stages was not measured itself.
        """

    def plan(self, signature: Signature, choice: Choice) -> Plan:
        """Plan a call with a choice."""

    def distinct(self, signature: Signature, choices: Sequence[Choice]) -> Sequence[Choice]:
        """Return the choices without those that run the same programs as an earlier one."""

    def pipeline(self, signature: Signature, choice: Choice) -> Pipeline:
        """Return the stages of a call with a choice, in short form."""


@dataclass(frozen=True)
class Result:
    """A candidate with its measured and its predicted seconds; None if there are none."""

    choice: Choice
    measured: Estimate | None = None
    predicted: float | None = None


@dataclass(frozen=True)
class Found:
    """The measured candidates, the fastest first, then the others; and what was left out.

    `complete`: the search did not run out of time.
    """

    results: tuple[Result, ...]
    pruned: tuple[Pruned, ...] = ()
    complete: bool = True

    @property
    def measured(self) -> Sequence[Result]:
        """The candidates that were measured."""
        return [result for result in self.results if result.measured is not None]


class Errors:
    """Ratios of measured to predicted times.

    If all predictions are wrong by one factor, their order is right: only the spread counts. Costs
    that were `measured` at the same size tell more than those that follow from other sizes, so
    their errors are kept apart.
    """

    def __init__(self) -> None:
        self._of: dict[bool, list[float]] = {False: [], True: []}

    def add(self, predicted: float, seconds: float, measured: bool = False) -> None:
        """Enter a prediction and what was found, in seconds; those of zero do not count."""
        if predicted > 0 and seconds > 0:
            logs = self._of[measured]
            self._of[measured] = [*logs, math.log(seconds / predicted)][-RECENT_ERRORS:]

    def margin(self, measured: bool = False) -> float:
        """Return the largest ratio of a prediction to the best one that errors explain."""
        logs = self._of[measured]
        if len(logs) < FEWEST_ERRORS:
            return FIRST_MARGIN
        middle = median(logs)
        spread = OF_DEVIATION * median(abs(x - middle) for x in logs)
        return min(MOST_MARGIN, max(LEAST_MARGIN, math.exp(DEVIATIONS * spread)))


class Winners:
    """The choices that won in searches, by call and size."""

    def __init__(self) -> None:
        self._of: dict[Signature, dict[int, list[Choice]]] = {}

    def add(self, signature: Signature, measured: Mapping[Choice, float]) -> None:
        """Enter the seconds of the candidates that a search measured."""
        limit = NEAR * min(measured.values(), default=0.0)
        near = [choice for choice, seconds in measured.items() if seconds <= limit]
        self._of.setdefault(_call(signature), {})[signature.nbytes] = near

    def around(self, signature: Signature) -> list[Choice]:
        """Return the choices that won at both of the sizes next to that of a call.

        There are none if these sizes are too far apart.
        """
        known = self._of.get(_call(signature), {})
        sizes = sorted(known)
        above = bisect_left(sizes, signature.nbytes)
        if above in (0, len(sizes)) or sizes[above] == signature.nbytes:
            return []
        low, high = sizes[above - 1], sizes[above]
        if high > APART * low:
            return []
        return [choice for choice in known[high] if choice in known[low]]


def _call(signature: Signature) -> Signature:
    """Return what calls have in common that differ in their sizes only."""
    return replace(signature, count=0)
