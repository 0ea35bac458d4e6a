"""Races between choices: all candidates of a search, or those with the best predictions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

from han.tasks.choice import Choice
from han.tasks.signature import Signature
from han.tuning.costs.model import predict
from han.tuning.measured import FEWEST_RACED, MOST_RACED
from han.tuning.search.results import Found, Lab, Result
from han.tuning.search.space import SETTLED, Pruned, Space
from han.tuning.search.turns import QUICK, SHORT, THOROUGH, Ending, Turns


def race(
    lab: Lab, signature: Signature, choices: Sequence[Choice],
    predicted: Mapping[Choice, float] | None = None, ending: Ending = QUICK,
) -> tuple[list[Result], bool]:  # fmt: skip
    """Measure candidates in turns, the first as the reference; return them, the fastest first.

    If they are `predicted` to be the best ones, they are near each other, and the race need not be
    as sure which of them it is: it ends as `ending` says. Those that stayed to the end come first,
    then those that dropped out, then those that the time did not suffice for. Also returns whether
    each was measured.
    """
    told = predicted or {}
    ending = THOROUGH if predicted is None else ending
    visit = partial(lab.observe, signature)
    turns = Turns(visit, choices[0], choices[1:], late=lab.is_late, ending=ending)
    complete = turns.run()
    times = turns.estimates()
    left = {turns.reference, *turns.left}
    found = [Result(choice, times.get(choice), told.get(choice)) for choice in choices]
    return sorted(found, key=lambda r: (r.choice not in left, *_order(r))), complete


def _order(result: Result) -> tuple[bool, float]:
    measured = result.measured
    if measured is not None:
        return False, measured.median
    return True, result.predicted if result.predicted is not None else float("inf")


def by_prediction(
    lab: Lab, signature: Signature, predicted: Mapping[Choice, float | None], built_in: Choice,
    is_measured: Callable[[Choice], bool] = lambda choice: False,
    family: Callable[[Choice], Hashable] | None = None,
) -> tuple[list[Result], bool]:  # fmt: skip
    """Measure the built-in choice and the candidates that may be the best by their predictions.

    These are all within the margin by which predictions were wrong so far (``lab.errors``), but at
    least FEWEST_RACED and at most MOST_RACED; MOST_RACED as long as little is known about it.
    `is_measured` says of which the costs were measured at this size. If a `family` is given,
    predictions are wrong by another factor in each: the best one of each family comes before others
    that are near.
    Candidates without a prediction are not dropped: they come after.
    """
    known = {c: t for c, t in predicted.items() if t is not None}
    ordered = sorted(known, key=lambda choice: known[choice])
    unknown = [choice for choice, time in predicted.items() if time is None]
    margins = {one: lab.errors.margin(is_measured(one)) for one in ordered[:MOST_RACED]}
    near = [
        one
        for one in ordered[FEWEST_RACED:MOST_RACED]
        if known[one] <= margins[one] * known[ordered[0]]
    ]
    if family is not None:
        best_of = {family(one): one for one in reversed(ordered)}
        apart = sorted(best_of.values(), key=lambda one: known[one])
        near = list(dict.fromkeys([*apart, *near]))[: MOST_RACED - FEWEST_RACED]
    first = list(dict.fromkeys([built_in, *ordered[:FEWEST_RACED], *near, *unknown]))
    results, complete = race(lab, signature, first, known)
    for one in results:
        if one.measured is not None and one.predicted is not None:
            lab.errors.add(one.predicted, one.measured.median, is_measured(one.choice))
    others = [Result(c, None, known[c]) for c in ordered if c not in first]
    return [*results, *others], complete


UNTRIED = Pruned(
    "choices whose tasks were not measured",
    "another one won in messages of the next smaller and of the next larger size",
    SETTLED,
)


def among_winners(lab: Lab, signature: Signature, space: Space) -> Found | None:
    """Measure the best of the choices that won at both sizes next to that of a call.

    The built-in choice is the reference, and is preferred if it is one of them. Between nodes the
    best of the others is measured too, as trials need a runner-up. None if there are no such
    choices, or if predictions say that another one is faster by more than their errors.
    """
    usual, serving = space.candidates[0], set(space.candidates)
    won = [one for one in lab.winners.around(signature) if one in serving]
    if not won:
        return None
    told = {c: predict(lab.pipeline(signature, c), lab.costs) for c in space.candidates}
    known = {choice: seconds for choice, seconds in told.items() if seconds is not None}
    if not any(one in known for one in won):
        return None
    best = min((one for one in won if one in known), key=lambda one: known[one])
    if known[best] > lab.errors.margin() * min(known.values()):
        return None
    if usual in won:
        nodes = lab.plan(signature, usual).topology.nodes
        rest = sorted(set(known) - {usual}, key=lambda one: (known[one], repr(one)))
        kept = [usual, *(rest[:1] if nodes > 1 else ())]
    else:
        kept = [usual, best]
    results, complete = race(lab, signature, kept, known, SHORT)
    others = [Result(one, None, known[one]) for one in known if one not in kept]
    left = (UNTRIED,) if len(known) < len(told) else ()
    return Found((*results, *others), (*space.pruned, *left), complete)
