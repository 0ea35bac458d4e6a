"""How many observations a visit of a call has."""

from __future__ import annotations

VISIT, BUSY_VISIT = 1e-3, 10e-3  # seconds of a series of observations, about; on busy ranks
LEAST, MOST, BUSY_MOST = 3, 15, 12  # observations in a series; on busy ranks
# Of calls in a row: a rank has a processor for milliseconds, and longer rows cost little more than
# the barrier before them.
ROW, MOST_IN_ROW, MOST_TRACED = 20e-3, 400, 32
# Times the visit before: a visit of busy ranks beyond has a second series. Both count: if slow
# visits were dropped, candidates whose times vary would gain.
DOUBTED = 2.0
SINGLE = 50e-3  # seconds: longer calls are observed once in a series


def observations(expected: float, busy: bool = False, in_row: bool = False) -> int:
    """Return how many observations a series of calls has that take `expected` seconds.

    On busy ranks more of them, as each one may be disturbed; `in_row`: of calls in a row.
    """
    if expected > SINGLE:
        return 1
    seconds, most = (BUSY_VISIT, BUSY_MOST) if busy else (VISIT, MOST)
    if in_row:
        seconds, most = ROW, MOST_IN_ROW
    return min(most, max(LEAST, int(seconds / max(expected, 1e-6))))
