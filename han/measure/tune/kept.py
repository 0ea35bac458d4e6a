"""What a lab keeps: calls that are ready to run, and what a search has learnt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from han.measure.bench_calls import Buffers
from han.measure.tune.distinct import Distinct
from han.runtime.state import Forced
from han.tasks.choice import Choice
from han.tasks.outline import Outline
from han.tasks.signature import Signature
from han.tuning.costs.model import Costs
from han.tuning.costs.shares import told_apart
from han.tuning.costs.stages import Pipeline, pipeline_of_choice
from han.tuning.search.results import Cold, Errors, Winners


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

    distinct: Distinct
    costs: Costs = field(default_factory=Costs)
    errors: Errors = field(default_factory=Errors)
    winners: Winners = field(default_factory=Winners)


class Pipelines:
    """The stages of calls with a choice, in short form; `plan` plans a call."""

    def __init__(self, plan: Callable[[Signature, Choice], Outline]) -> None:
        self._plan = plan
        self._whole: dict[tuple[Signature, Choice], Pipeline] = {}  # of any size

    def of(self, signature: Signature, choice: Choice) -> Pipeline:
        """Return the stages of a call."""
        if choice.segment is not None:
            return self._made(signature, choice)
        key = replace(signature, count=0), choice
        known = self._whole.get(key)
        if known is not None:
            return replace(known, segment=signature.nbytes)
        found = self._made(signature, choice)
        if found.segment == signature.nbytes and found.count == 1:
            self._whole[key] = found
        return found

    def _made(self, signature: Signature, choice: Choice) -> Pipeline:
        return told_apart(pipeline_of_choice(signature, choice, self._plan))
