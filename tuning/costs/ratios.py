"""Paired ratios: times of candidates over those of one reference that was measured beside them.

A shared machine is faster in one second than in the next. The candidates of one turn are measured
close to each other, so this drift cancels in their ratio to the reference.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import pairwise
from statistics import median
from typing import Generic, TypeVar

from han.tuning.costs.estimates import Estimate

Z = 2.0  # standard errors on each side of an interval
OF_MEDIAN = 1.2533  # standard error of a median over that of a mean, of a normal distribution
OF_DEVIATION = 1.4826  # standard deviation over the median deviation, of a normal distribution
LEAST_NOISE = 0.002  # clocks and counts of observations are not finer
FEWEST = 5  # differences, or ratios of one candidate, from which a deviation is computed

K = TypeVar("K", bound=Hashable)


class Ratios(Generic[K]):
    """The ratios of candidates, one for each turn in which a candidate was measured.

    The deviation of a ratio is that of all candidates together, because a few turns of one
    candidate say little about it. A candidate that varies more than the others has its own one.
    """

    def __init__(self, reference: K) -> None:
        self.reference = reference
        self._logs: dict[K, list[float]] = {reference: []}

    def add(self, candidate: K, seconds: float, reference: float) -> None:
        """Enter what a candidate and the reference took in one turn."""
        self._logs.setdefault(candidate, []).append(math.log(seconds / reference))

    def forget(self, candidate: K) -> None:
        """Go on as if a candidate had not been measured."""
        self._logs.pop(candidate, None)

    def __contains__(self, candidate: K) -> bool:
        return bool(self._logs.get(candidate))

    def of(self, candidate: K) -> Estimate:
        """Return the ratio of a candidate that was measured at least once, from its turns.

        The interval is open while too few ratios are known to tell how much they vary.
        """
        logs = self._logs[candidate]
        middle = min(logs) if len(logs) == 2 else median(logs)  # of two, one may be disturbed
        reach = Z * OF_MEDIAN * self._deviation(candidate, logs) / math.sqrt(len(logs))
        return Estimate(math.exp(middle), _exp(middle - reach), _exp(middle + reach), len(logs))

    def most(self, slow: K, fast: K, errors: float = Z) -> float:
        """Return the ratio of two candidates' times, some standard `errors` above its middle."""
        return self._between(slow, fast, errors / Z)

    def least(self, slow: K, fast: K) -> float:
        """Return the lower end of the ratio of two candidates' times."""
        return self._between(slow, fast, -1.0)

    def _between(self, slow: K, fast: K, share: float) -> float:
        """Return the quotient of two independent ratios, moved by a share of its interval.

        The ratio of the reference to itself has no error.
        """
        known = {one: self.of(one) for one in (slow, fast)}
        reaches = [
            math.log(ratio.high / ratio.median) if ratio.high != math.inf else math.inf
            for one, ratio in known.items()
            if one != self.reference
        ]
        return known[slow].median / known[fast].median * _exp(share * math.hypot(*reaches))

    def _deviation(self, candidate: K, logs: Sequence[float]) -> float:
        common = self.noise
        if candidate == self.reference or len(logs) < FEWEST or common == math.inf:
            return common
        own = OF_DEVIATION * median(abs(x - median(logs)) for x in logs)
        return max(common, own)

    @property
    def noise(self) -> float:
        """The deviation of one ratio, from the differences between turns; inf if unknown.

        A median, so a few turns that were disturbed do not count.
        """
        steps = [
            abs(b - a)
            for candidate, logs in self._logs.items()
            if candidate != self.reference
            for a, b in pairwise(logs)
        ]
        if len(steps) < FEWEST:
            return math.inf
        return max(LEAST_NOISE, OF_DEVIATION * median(steps) / math.sqrt(2))


def _exp(x: float) -> float:
    return x if x == math.inf else math.exp(x)  # 0 for -inf
