"""What a lab keeps: calls that are ready to run, and what a search has learnt."""

from __future__ import annotations

from dataclasses import dataclass

from han.measure.bench_calls import Buffers
from han.measure.tune.distinct import Distinct
from han.runtime.forced import Forced
from han.tuning.costs.errors import Errors
from han.tuning.costs.model import Costs
from han.tuning.costs.winners import Winners
from han.tuning.search.results import Cold


@dataclass
class Ready:
    """A call that runs a choice, and about how many seconds it takes.

    `told` is the observation of the first run, if nothing disturbed it and it was not used yet.
    """

    made: Forced
    buffers: Buffers
    expected: float
    told: Cold
    doubts: int = 0  # series that said nothing


@dataclass(frozen=True)
class Memory:
    """What the search of one strategy has learnt from the inputs so far."""

    costs: Costs
    errors: Errors
    winners: Winners
    distinct: Distinct
