"""What a search needs of measurements, and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from han.tasks.choice import Choice
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.costs.errors import Errors
from han.tuning.costs.estimates import Estimate
from han.tuning.costs.model import Costs
from han.tuning.costs.stages import Pipeline
from han.tuning.costs.winners import Winners
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
    seconds: float = field(default=0.0, compare=False)

    @property
    def measured(self) -> Sequence[Result]:
        """The candidates that were measured."""
        return [result for result in self.results if result.measured is not None]
