"""How many observations a visit of a call has."""

from __future__ import annotations

VISIT, BUSY_VISIT = 1e-3, 10e-3  # seconds of a series of observations, about; on busy ranks
LEAST, MOST, BUSY_MOST = 3, 15, 12  # observations in a series; on busy ranks
SINGLE = 50e-3  # seconds: longer calls are observed once in a series


def observations(expected: float, busy: bool = False) -> int:
    """Return how many observations a series of calls has that take `expected` seconds.

    On busy ranks more of them, as each one may be disturbed.
    """
    if expected > SINGLE:
        return 1
    seconds, most = (BUSY_VISIT, BUSY_MOST) if busy else (VISIT, MOST)
    return min(most, max(LEAST, int(seconds / max(expected, 1e-6))))
