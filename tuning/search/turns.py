"""Races in turns: candidates are measured side by side, and slow ones drop out early.

In each turn all candidates that are left are visited. A visit is a short series of observations,
and the reference is visited before and after every few candidates. Turns share no visit of the
reference, so that the errors of their ratios are independent. Candidates are compared by
their ratios to the reference (:mod:`han.tuning.costs.ratios`). After each turn those drop out that
lie clearly above the best one (successive elimination). The race ends when the best candidate is
known well enough, or after so many turns.

Every decision follows from observations that all ranks share, so all ranks decide alike.

Source: Even-Dar, Mannor, Mansour, Action elimination and stopping conditions for the multi-armed
bandit and reinforcement learning problems, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Generic, TypeVar

from han.tuning.costs.estimates import Estimate, estimate
from han.tuning.costs.ratios import Ratios
from han.tuning.measured import AGREE, BLOCK, CLOSE, COLD, FAR, GUARD, LEAST_TURNS, LONGEST
from han.tuning.search.results import Cold, OutOfTime

K = TypeVar("K", bound=Hashable)
Visit = Callable[[K, float], Sequence[float]]


@dataclass(frozen=True)
class Ending:
    """When a race ends: how sure it has to be, and how many candidates it keeps.

    It ends once no other candidate can be faster than the best one by more than CLOSE, within
    `errors` standard errors, or after `most` turns. At most ``crowd[k]`` candidates stay after `k`
    turns.
    """

    errors: float
    crowd: Mapping[int, int]
    most: int


THOROUGH = Ending(2.0, {2: 16, 4: 8, 12: 3}, 24)
QUICK = Ending(1.0, {1: 6, 2: 4, 4: 3, 6: 2}, 12)  # of candidates that are near by prediction
SHORT = Ending(1.0, {}, 2)  # of candidates that won in other sizes


class Turns(Generic[K]):
    """A race between a reference and other candidates.

    ``visit(candidate, limit)`` returns observations in seconds, in the first visit perhaps those of
    a first run (Cold). It may stop early where they are beyond the limit. It may return none a few
    times, if all were disturbed: then the turn says nothing about this candidate. It may raise
    OutOfTime, on all ranks alike. Unless `drops`, all candidates stay to the end. Once ``late()``
    says so, on all ranks alike, the first turn ends: candidates that it did not reach are left out,
    so that there is time for the others. `ending` says how sure the race has to be.
    """

    def __init__(
        self, visit: Visit[K], reference: K, others: Iterable[K], drops: bool = True,
        late: Callable[[], bool] = lambda: False, ending: Ending = THOROUGH,
    ) -> None:  # fmt: skip
        self._visit_call, self._drops, self._late = visit, drops, late
        self._ending, self._most = ending, ending.most if drops else LONGEST
        self.reference = reference
        self.left = [one for one in dict.fromkeys(others) if one != reference]
        self.count = 0  # complete turns
        self._all = list(self.left)
        self._ratios: Ratios[K] = Ratios(reference)
        self._seen: dict[K, list[float]] = {}
        self._quickest: dict[K, float] = {}  # of a first visit, over the reference
        self._cold: set[K] = set()  # of which only the first run is known

    # ---- turns ------------------------------------------------------------------------------

    def run(self) -> bool:
        """Go on to the end; return whether each candidate was measured before the time was over."""
        try:
            while not self.is_decided:
                self.turn()
        except OutOfTime:
            pass
        return all(one in self._ratios for one in (self.reference, *self._all))

    def turn(self) -> None:
        """Visit all candidates that are left once; raises OutOfTime."""
        before = self._level()
        self._ratios.add(self.reference, 1.0, 1.0)
        for k, some in enumerate(_blocks(self.left)):
            if k and not self.count and self._late():
                self.left = self.left[: k * BLOCK]
                break
            before = self._block(some, before)
        self.count += 1
        if self._drops:
            self._drop()

    def _block(self, some: Sequence[K], before: float) -> float:
        """Visit some candidates, then the reference; return what that took."""
        seen: dict[K, float | None] = {}
        after = before
        try:
            for one in some:
                seen[one] = self._visit(one)
            after = self._level()
        finally:
            level = (before * after) ** 0.5
            for one, seconds in seen.items():
                if seconds is None:
                    continue
                self._ratios.add(one, seconds, level)
                self._quickest.setdefault(one, min(self._seen[one]) / level)
        return after

    def _level(self) -> float:
        """Return the reference's present time in seconds, which its first run does not tell."""
        while True:
            seconds = self._visit(self.reference)
            if seconds is not None and self.reference not in self._cold:
                return seconds

    def _visit(self, one: K) -> float | None:
        """Return what a candidate takes; None if the visit tells nothing new about it."""
        seen = self._seen.setdefault(one, [])
        observed = self._visit_call(one, self._limit)
        if seen and isinstance(observed, Cold):  # the call was prepared anew; now it is ready
            observed = self._visit_call(one, self._limit) or observed
        if not observed:
            return None
        seconds = median(observed)
        if isinstance(observed, Cold):
            if seen and (one not in self._cold or seconds >= seen[0]):
                return None
            self._forget(one)
            self._cold.add(one)
        elif one in self._cold:
            self._cold.remove(one)
            if seen[0] > AGREE * seconds:
                self._forget(one)
        seen.extend(observed)
        return seconds

    def _forget(self, one: K) -> None:
        """Go on as if a candidate had not been visited."""
        self._seen[one].clear()
        self._quickest.pop(one, None)
        self._ratios.forget(one)

    @property
    def _limit(self) -> float:
        """Seconds beyond which a candidate need not be observed more often."""
        known = (some for one, some in self._seen.items() if one in self._ratios)
        return COLD * FAR * min(map(median, known), default=float("inf"))

    # ---- decisions --------------------------------------------------------------------------

    def _drop(self) -> None:
        best = self._best()
        ratio = self._ratios.of(best)
        known = self._runners[1:]
        new = [c for c in known if self._ratios.of(c).count == 1]
        slow = {c for c in new if self._quickest[c] > self._far(c) * ratio.median}
        warm = [c for c in known if c not in self._cold]
        if self.count >= GUARD:
            slow |= {c for c in warm if self._ratios.least(c, best) > 1}
        fastest = sorted((c for c in warm if c not in slow), key=self._middle)
        slow |= set(fastest[self._ending.crowd.get(self.count, len(fastest)) :])
        self.left = [c for c in self.left if c not in slow]

    def _far(self, one: K) -> float:
        """Return how many times the best one a candidate takes that drops out after a visit."""
        return COLD * FAR if one in self._cold else FAR

    @property
    def is_decided(self) -> bool:
        """Whether further turns would not change the result by much."""
        if self.count >= self._most or (self.count and not self.left):
            return True
        if self.count < LEAST_TURNS or len(self._runners) <= len(self.left):
            return False
        if not self._cold.isdisjoint(self.left):
            return False
        if not self._drops:
            reach = [self._ratios.of(one) for one in self.left]
            return all(one.high <= (1 + CLOSE) * one.median for one in reach)
        best = self._best()
        others = [c for c in self._runners if c != best]
        errors = self._ending.errors
        return all(self._ratios.most(best, c, errors) <= 1 + CLOSE for c in others)

    @property
    def _runners(self) -> list[K]:
        """The reference and what is left, without candidates that were never measured."""
        return [one for one in (self.reference, *self.left) if one in self._ratios]

    def _best(self) -> K:
        return min(self._runners, key=self._middle)

    def _middle(self, one: K) -> float:
        return self._ratios.of(one).median

    # ---- results ----------------------------------------------------------------------------

    def ratio(self, one: K) -> Estimate:
        """Return the ratio of a candidate that was measured."""
        return self._ratios.of(one)

    def estimates(self) -> dict[K, Estimate]:
        """Return the seconds of all candidates that were measured, those left at the end first.

        A candidate has its ratio times the median of the reference over the whole race, as if all
        had run under the same load.
        """
        if self.reference not in self._ratios:
            return {}
        usual = estimate(self._seen[self.reference])
        done = [one for one in (*self._runners, *self._all) if one in self._ratios]
        return {one: self._estimate(one, usual) for one in dict.fromkeys(done)}

    def _estimate(self, one: K, usual: Estimate) -> Estimate:
        found, seen = self._ratios.of(one).scaled(usual.median), estimate(self._seen[one])
        if found.high == float("inf"):
            found = seen.scaled(found.median / seen.median)
        return replace(found, count=len(self._seen[one]))


def _blocks(candidates: Sequence[K]) -> Iterator[Sequence[K]]:
    for k in range(0, len(candidates), BLOCK):
        yield candidates[k : k + BLOCK]
