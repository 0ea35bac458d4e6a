"""Races: candidates are measured roughly, and those near the best one again and precisely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from han.tasks.choice import Choice
from han.tasks.signature import Signature
from han.tuning.costs.estimates import Estimate
from han.tuning.search.results import Lab, OutOfTime, Result

NEAR = 1.15  # a candidate is measured precisely if its rough time is at most so many times the best
FINALISTS = 4  # candidates that are measured precisely, at most


def race(
    lab: Lab, signature: Signature, choices: Sequence[Choice],
    predicted: Mapping[Choice, float] | None = None,
) -> tuple[list[Result], bool]:  # fmt: skip
    """Measure candidates; return them, the fastest first, and whether the time sufficed.

    If it does not, the candidates that were not reached come last, without a measurement.
    """
    times: dict[Choice, Estimate] = {}
    complete = True
    try:
        for choice in choices:
            times[choice] = lab.whole(signature, choice, rough=True)
        for choice in _finalists(times):
            times[choice] = lab.whole(signature, choice)
    except OutOfTime:
        complete = False
    found = [Result(choice, times.get(choice), (predicted or {}).get(choice)) for choice in choices]
    return sorted(found, key=_order), complete


def _finalists(times: Mapping[Choice, Estimate]) -> list[Choice]:
    ordered = sorted(times, key=lambda choice: times[choice].median)
    best = times[ordered[0]].median if ordered else 0.0
    return [choice for choice in ordered[:FINALISTS] if times[choice].median <= NEAR * best]


def _order(result: Result) -> tuple[bool, float]:
    measured = result.measured
    if measured is not None:
        return False, measured.median
    return True, result.predicted if result.predicted is not None else float("inf")


def by_prediction(
    lab: Lab, signature: Signature, predicted: Mapping[Choice, float | None], built_in: Choice
) -> tuple[list[Result], bool]:
    """Measure the built-in choice and the candidates with the least predicted times.

    Candidates without a prediction are not dropped: they come after those.
    """
    known = {c: t for c, t in predicted.items() if t is not None}
    ordered = sorted(known, key=lambda choice: known[choice])
    unknown = [choice for choice, time in predicted.items() if time is None]
    first = list(dict.fromkeys([built_in, *ordered[:FINALISTS], *unknown]))
    results, complete = race(lab, signature, first, known)
    others = [Result(c, None, known[c]) for c in ordered if c not in first]
    return [*results, *others], complete
