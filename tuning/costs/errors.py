"""How far predictions were from measurements so far: the margin for choosing candidates by them."""

from __future__ import annotations

import math
from statistics import median

FIRST = math.inf  # margin before anything is known
LEAST, MOST = 1.05, 2.0
FEWEST = 8  # predictions that tell something
RECENT = 200
Z = 2.0  # deviations, as a prediction and the best one may both be wrong
OF_DEVIATION = 1.4826  # standard deviation over the median deviation, of a normal distribution


class Errors:
    """Ratios of measured to predicted times.

    If all predictions are wrong by one factor, their order is right: only the spread counts.
    """

    def __init__(self) -> None:
        self._logs: list[float] = []

    def add(self, predicted: float, measured: float) -> None:
        """Enter a prediction and what was measured, in seconds; those of zero do not count."""
        if predicted > 0 and measured > 0:
            self._logs = [*self._logs, math.log(measured / predicted)][-RECENT:]

    @property
    def margin(self) -> float:
        """How many times the best prediction a candidate may be predicted, and yet be the best."""
        if len(self._logs) < FEWEST:
            return FIRST
        middle = median(self._logs)
        spread = OF_DEVIATION * median(abs(x - middle) for x in self._logs)
        return min(MOST, max(LEAST, math.exp(Z * spread)))
