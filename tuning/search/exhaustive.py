"""``exhaustive``: measure every candidate of every input; the yardstick of the other strategies."""

from __future__ import annotations

from han.tasks.signature import Signature
from han.tuning.search.race import race
from han.tuning.search.results import Found, Lab
from han.tuning.search.space import Space


def search(lab: Lab, signature: Signature, space: Space) -> Found:
    """Measure whole collectives with all candidates."""
    results, complete = race(lab, signature, space.candidates)
    return Found(tuple(results), space.pruned, complete)
