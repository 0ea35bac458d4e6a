"""Estimates from repeated observations: a median with its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from han.common.units import format_us

Z = 1.96  # of the normal distribution, for an interval that holds the median with 95 %
FENCE = 3.0  # interquartile ranges beyond the quartiles from which an observation is an outlier
NARROW = 0.02  # half of an interval, as a share of the median, from which on series tell enough
LEAST = 6  # observations: fewer have no interval of 95 %


@dataclass(frozen=True)
class Estimate:
    """The median of `count` observations: of times in seconds, or of ratios of times.

    The interval from `low` to `high` holds the true median with a probability of 95 %. What lies
    beyond Tukey's outer fences was left out.
    """

    median: float
    low: float
    high: float
    count: int

    @property
    def half_width(self) -> float:
        """Half of the interval, as a share of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0

    def is_narrow(self, share: float) -> bool:
        """Whether the half width is at most `share`."""
        return self.count >= LEAST and self.half_width <= share

    def scaled(self, ratio: float) -> Estimate:
        """Return the estimate of what takes `ratio` times as long."""
        middle, low, high = (ratio * seconds for seconds in (self.median, self.low, self.high))
        return Estimate(middle, low, high, self.count)

    def describe(self) -> str:
        """Return ``12.3 us (12.1 us to 12.6 us, 40 calls)``."""
        middle, low, high = (format_us(s * 1e6) for s in (self.median, self.low, self.high))
        return f"{middle} us ({low} to {high} us, {self.count} calls)"


def estimate(observations: Sequence[float]) -> Estimate:
    """Return the estimate of some observations, at least one.

    The interval is that of order statistics, which assumes no distribution (Hunold and
    Carpen-Amarie, Reproducible MPI benchmarking is still not as easy as you think).
    """
    kept = without_outliers(observations)
    n = len(kept)
    reach = Z * math.sqrt(n) / 2
    low, high = max(0, math.floor(n / 2 - reach)), min(n - 1, math.ceil(n / 2 + reach))
    return Estimate(median(kept), kept[low], kept[high], n)


def of_series(series: Callable[[], Sequence[float]], most: int) -> float:
    """Return the median of the medians of series of observations, of at most so many.

    No more are made once the interval of all observations so far is narrow.
    """
    medians, every = list[float](), list[float]()
    while len(medians) < most and not (every and estimate(every).is_narrow(NARROW)):
        found = series()
        medians.append(estimate(found).median)
        every += found
    return median(medians)


def without_outliers(observations: Sequence[float]) -> list[float]:
    """Return the observations within Tukey's outer fences, sorted."""
    ordered = sorted(observations)
    first, third = _quantile(ordered, 0.25), _quantile(ordered, 0.75)
    reach = FENCE * (third - first)
    return [x for x in ordered if first - reach <= x <= third + reach]


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])
