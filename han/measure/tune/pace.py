"""Which input of a comparison comes next, and which ones do not fit into the budget any more."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from han.measure.tune.tuner import Input, sparse_first

# Powers of the size with which the time of an input is taken to grow beyond the known sizes: at
# least as a root, as a small call does not tell what its bytes cost; at most as the bytes.
LEAST_POWER, MOST_POWER = 0.5, 1.0


@dataclass
class Pace:
    """Chooses inputs one after the other; `budget` is in seconds from now, None: no limit.

    `spent` holds the seconds of the inputs that are done, those of an earlier run included.
    """

    budget: float | None = None
    spent: dict[Input, float] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    _begun: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._end = math.inf if self.budget is None else self.clock() + self.budget

    def choose(self, todo: Sequence[Input]) -> Input | None:
        """Return the first of `todo` that fits into the time left, or None.

        The first input of a run is chosen in any case. One that does not fit is asked about again
        after others: they tell more about its time.
        """
        left = self._end - self.clock() if self._begun else math.inf
        self._begun = True
        return next((one for one in todo if expected(one, self.spent) <= left), None)


def spread(inputs: Sequence[Input]) -> list[Input]:
    """Return inputs in turns of their collectives, of each one sizes far apart before others."""
    ordered = sparse_first(inputs)
    names = dict.fromkeys(one.collective for one in ordered)
    each = [[one for one in ordered if one.collective == name] for name in names]
    return [one for turn in zip_longest(*each) for one in turn if one is not None]


def expected(one: Input, spent: Mapping[Input, float]) -> float:
    """Return about how many seconds an input takes, from those that are done; 0.0: unknown.

    A collective of which no size is known takes as long as the slowest of the others.
    """
    sizes: dict[str, dict[int, float]] = {}
    for known, seconds in spent.items():
        sizes.setdefault(known.collective, {})[known.nbytes] = seconds
    mine = sizes.get(one.collective)
    asked = sizes.values() if mine is None else [mine]
    return max((trend(known, one.nbytes) for known in asked), default=0.0)


def trend(known: Mapping[int, float], nbytes: int) -> float:
    """Return the seconds of a size from those of other sizes; between two of them by powers."""
    sizes = sorted(known)
    if nbytes <= sizes[0]:
        return known[sizes[0]]
    if nbytes > sizes[-1]:
        power = _power(known, *sizes[-2:]) if len(sizes) > 1 else LEAST_POWER
        power = min(MOST_POWER, max(LEAST_POWER, power))
        return float(known[sizes[-1]] * (nbytes / sizes[-1]) ** power)
    low, high = next(pair for pair in pairwise(sizes) if nbytes <= pair[1])
    return float(known[low] * (nbytes / low) ** _power(known, low, high))


def _power(known: Mapping[int, float], low: int, high: int) -> float:
    return math.log(known[high] / known[low]) / math.log(high / low)
