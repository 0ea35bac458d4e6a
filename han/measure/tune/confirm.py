"""The confirmation of a choice, before it replaces the built-in one: pairs of calls in a row.

A search takes the fastest of many candidates, so it takes lucky ones. Here the built-in choice and
the other one run once more, one after the other, in pairs whose order alternates. Their ratios
count: what changes slowly cancels. The interval of their median assumes no distribution. The
quickest rows of both count too: where other programs hold the processors, a choice may gain that is
slower without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from han.common.units import plural
from han.measure.measured import AS_FAST, LOOK_DEVIATIONS, LOOKS
from han.measure.session import in_order
from han.tasks.choice import Choice
from han.tuning.measured import GAIN

Row = Callable[[str], float]  # the seconds per call of a row of calls
BUILT_IN, OTHER = "built-in", "other"


@dataclass(frozen=True)
class Confirmation:
    """The time of a choice over that of the built-in one: median of the pairs, and its interval.

    `quickest` compares the quickest row of each.
    """

    middle: float
    low: float
    high: float
    pairs: int
    quickest: float

    @property
    def is_better(self) -> bool:
        """Whether the choice is faster beyond doubt and by enough, and not slower at its best."""
        return self.middle <= GAIN and self.high < 1 and self.quickest <= 1

    def describe(self) -> str:
        """Return ``1.02 (0.99 to 1.10) times the built-in choice in 12 pairs ...``."""
        times = f"{self.middle:.2f} ({self.low:.2f} to {self.high:.2f}) times the built-in choice"
        calls = f"in {plural(self.pairs, 'pair')} of calls back to back"
        return f"{times} {calls}" + (f", {self.quickest:.2f} at best" if self.high < 1 else "")


def confirm(row: Row, is_over: Callable[[], bool]) -> Confirmation:
    """Compare a choice with the built-in one; `row` measures one of them on all ranks alike.

    It ends when the choice is better or cannot be better by enough, or after the last look. Once
    ``is_over()`` says so it ends after the next look.
    """
    rows: dict[str, list[float]] = {BUILT_IN: [], OTHER: []}
    for look in LOOKS:
        for turn in range(len(rows[OTHER]), look):
            for name in in_order((BUILT_IN, OTHER), turn):
                rows[name].append(row(name))
        found = confirmation(rows[BUILT_IN], rows[OTHER])
        if found.is_better or found.low > GAIN or is_over():
            break
    return found


def confirmation(built_in: Sequence[float], other: Sequence[float]) -> Confirmation:
    """Return how rows of pairs compare, with the interval of order statistics."""
    ordered = sorted(b / a for a, b in zip(built_in, other, strict=True))
    n = len(ordered)
    outside = max(0, math.floor(n / 2 - LOOK_DEVIATIONS * math.sqrt(n) / 2))
    low, high = ordered[outside], ordered[-1 - outside]
    return Confirmation(median(ordered), low, high, n, min(other) / min(built_in))


Compare = Callable[[Choice], Confirmation]  # of another choice with the one that was found


def simplified(
    choice: Choice, base: Choice, found: Confirmation, serves: Callable[[Choice], bool],
    compare: Compare,
) -> tuple[Choice, float]:  # fmt: skip
    """Return the choice that is as fast with most parts of `base`, and its time over `choice`'s.

    Parts are tried one after the other, the largest first, and kept if the call is as fast in calls
    back to back and still faster than `base`: `found` says how much faster `choice` is.
    """
    ratio = 1.0
    for restore in _parts(choice):
        one = restore(choice, base)
        if one in (choice, base) or not serves(one):
            continue
        compared = compare(one)
        if compared.middle <= AS_FAST and compared.middle * found.middle <= GAIN:
            choice, ratio = one, compared.middle
    return choice, ratio


def _parts(choice: Choice) -> Iterator[Callable[[Choice, Choice], Choice]]:
    """Yield what takes a part of the second choice into the first one."""
    yield lambda one, base: replace(one, composition=base.composition)
    yield lambda one, base: replace(one, segment=base.segment)
    yield lambda one, base: replace(one, schedule=base.schedule)
    yield from map(_level, range(len(choice.levels)))


def _level(k: int) -> Callable[[Choice, Choice], Choice]:
    def restore(one: Choice, base: Choice) -> Choice:
        return replace(one, levels=(*one.levels[:k], base.levels[k], *one.levels[k + 1 :]))

    return restore
