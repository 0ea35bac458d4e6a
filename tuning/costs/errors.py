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

    If all predictions are wrong by one factor, their order is right: only the spread counts. Costs
    that were `measured` at the same size tell more than those that follow from other sizes, so
    their errors are kept apart.
    """

    def __init__(self) -> None:
        self._of: dict[bool, list[float]] = {False: [], True: []}

    def add(self, predicted: float, seconds: float, measured: bool = False) -> None:
        """Enter a prediction and what was found, in seconds; those of zero do not count."""
        if predicted > 0 and seconds > 0:
            logs = self._of[measured]
            self._of[measured] = [*logs, math.log(seconds / predicted)][-RECENT:]

    def margin(self, measured: bool = False) -> float:
        """How many times the best prediction a candidate may be predicted, and yet be the best."""
        logs = self._of[measured]
        if len(logs) < FEWEST:
            return FIRST
        middle = median(logs)
        spread = OF_DEVIATION * median(abs(x - middle) for x in logs)
        return min(MOST, max(LEAST, math.exp(Z * spread)))
