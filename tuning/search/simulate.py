"""``simulate``: predict every candidate on a described machine, and measure only the best ones."""

from __future__ import annotations

from collections.abc import Callable

from han.tasks.choice import Choice
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.search.race import by_prediction
from han.tuning.search.results import Found, Lab
from han.tuning.search.space import Space


def search(
    lab: Lab, signature: Signature, space: Space, seconds_of: Callable[[Plan], float]
) -> Found:
    """Predict all candidates with `seconds_of`, and measure the best.

    A candidate whose programs the simulator cannot run has no prediction.
    """
    predicted: dict[Choice, float | None] = {}
    for choice in space.candidates:
        predicted[choice] = _seconds(lab.plan(signature, choice), seconds_of)
    results, complete = by_prediction(lab, signature, predicted, space.candidates[0])
    return Found(tuple(results), space.pruned, complete)


def _seconds(plan: Plan, seconds_of: Callable[[Plan], float]) -> float | None:
    try:
        return seconds_of(plan)
    except (RuntimeError, ValueError, KeyError):
        return None
