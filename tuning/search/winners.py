"""Searches between two sizes: if the same choice won at both, only this one is measured."""

from __future__ import annotations

from han.tasks.signature import Signature
from han.tuning.costs.model import predict
from han.tuning.search.race import race
from han.tuning.search.results import Found, Lab, Result
from han.tuning.search.space import SETTLED, Pruned, Space
from han.tuning.search.turns import SHORT

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
