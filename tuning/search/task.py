"""``task``: predict every candidate from the costs of tasks, and measure only the best ones.

Costs are measured once and used again for other sizes and collectives.

Source: Luo et al., HAN, section III-C.
"""

from __future__ import annotations

from han.tasks.choice import Choice
from han.tasks.signature import Signature
from han.tuning.costs.model import predict
from han.tuning.search.race import by_prediction
from han.tuning.search.results import Found, Lab, OutOfTime
from han.tuning.search.space import LATE, Pruned, Space

DOUBT = 5.0  # times the best prediction: beyond, the cost of a task is measured once more
LONG = 20e-3  # seconds of a call whose cost is not doubted, as other programs change it little
UNPREDICTED = Pruned(
    "not predicted", "the time for this input was over before its tasks were measured", LATE
)


def search(lab: Lab, signature: Signature, space: Space) -> Found:
    """Measure the tasks that are not known yet, predict all candidates, and measure the best."""
    predicted, in_time = _predicted(lab, signature, space)
    results, complete = by_prediction(lab, signature, predicted, space.candidates[0])
    late = len(predicted) < len(space.candidates)
    pruned = (*space.pruned, UNPREDICTED) if late else space.pruned
    return Found(tuple(results), pruned, complete and in_time)


def _predicted(
    lab: Lab, signature: Signature, space: Space
) -> tuple[dict[Choice, float | None], bool]:
    """Return the predicted seconds of candidates, and whether there was time for all tasks."""
    predicted: dict[Choice, float | None] = {}
    in_time = True
    for choice in space.candidates:
        try:
            if in_time:
                lab.learn(signature, choice)
        except OutOfTime:
            in_time = False
        seconds = predict(lab.pipeline(signature, choice), lab.costs)
        if in_time or seconds is not None:
            predicted[choice] = seconds
    return predicted, in_time and _doubted(lab, signature, predicted)


def _doubted(lab: Lab, signature: Signature, predicted: dict[Choice, float | None]) -> bool:
    """Predict anew what seems much slower than the best; return whether there was time for it.

    A program that took a processor while a task ran makes it look slow, for ever: a candidate is
    not measured if its prediction is bad.
    """
    best = min((seconds for seconds in predicted.values() if seconds is not None), default=0.0)
    for choice, seconds in predicted.items():
        if seconds is None or not DOUBT * best < seconds < LONG:
            continue
        try:
            lab.learn_again(signature, choice)
        except OutOfTime:
            return False
        predicted[choice] = predict(lab.pipeline(signature, choice), lab.costs)
    return True
