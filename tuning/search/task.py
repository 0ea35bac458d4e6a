"""``task``: predict candidates from the costs of tasks, and measure only the best ones.

Costs are measured once and used again for other sizes and collectives.

Source: Luo et al., HAN, section III-C.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from han.tasks.choice import Choice
from han.tasks.signature import Signature
from han.tuning.costs.model import predict
from han.tuning.search.families import ends_first, family_of, first_of
from han.tuning.search.race import by_prediction
from han.tuning.search.results import Found, Lab, OutOfTime
from han.tuning.search.space import LATE, SLOW, Pruned, Space

PATIENCE = 3.0  # times the best prediction: no more costs are measured of a family beyond
LONG = 20e-3  # seconds of a call whose cost is not doubted, as other programs change it little
UNPREDICTED = Pruned(
    "not predicted", "the time for this input was over before its tasks were measured", LATE
)
OF_SLOW = Pruned(
    "other parameters, segments and schedules",
    f"the same algorithms were predicted to take more than {PATIENCE:g} times the best",
    SLOW,
)


def search(lab: Lab, signature: Signature, space: Space) -> Found:
    """Measure the tasks that are not known yet, predict candidates, and measure the best."""
    prediction = Prediction(lab, signature, space)
    in_time = prediction.run()
    results, complete = by_prediction(lab, signature, prediction.seconds, space.candidates[0])
    pruned = (*space.pruned, *prediction.pruned)
    return Found(tuple(results), pruned, complete and in_time)


class Prediction:
    """The predicted seconds of the candidates of one call; None: its stages have no cost.

    `pruned` tells why candidates have no prediction.
    """

    def __init__(self, lab: Lab, signature: Signature, space: Space) -> None:
        self._lab, self._signature, self._candidates = lab, signature, space.candidates
        self.seconds: dict[Choice, float | None] = {}
        self.pruned: dict[Pruned, None] = {}
        self._families: dict[Hashable, float] = {}  # the best prediction of each
        self._passed: list[Choice] = []  # members of families that seemed slow

    def run(self) -> bool:
        """Predict all candidates that may be the best; return whether there was time for it."""
        first = first_of(self._candidates)
        stands = set(first)
        others = [choice for choice in self._candidates if choice not in stands]
        usual = self._candidates[0]
        in_time = self._predict(ends_first(first, usual), True)
        in_time = in_time and self._look_again()
        in_time = self._predict(ends_first(others, usual), in_time)
        while hopeful := [one for one in self._passed if not self._is_slow(one)]:
            self._passed = [one for one in self._passed if one not in set(hopeful)]
            in_time = self._predict(hopeful, in_time)
        if self._passed:
            self.pruned[OF_SLOW] = None
        return in_time

    def _predict(self, choices: Iterable[Choice], in_time: bool) -> bool:
        """Predict some candidates; the costs of their tasks are measured while there is time.

        Members of families that seem slow wait until more is known about these.
        """
        for choice in choices:
            if self._enter(choice):
                continue
            if self._is_slow(choice):
                self._passed.append(choice)
                continue
            try:
                if in_time:
                    self._lab.learn(self._signature, choice)
            except OutOfTime:
                in_time = False
            if not self._enter(choice):
                if in_time:
                    self.seconds[choice] = None
                else:
                    self.pruned[UNPREDICTED] = None
        return in_time

    def _is_slow(self, choice: Choice) -> bool:
        """Whether all predictions of a choice's family are far from the best one so far."""
        return self._families.get(family_of(choice), 0.0) > PATIENCE * self._best

    def _enter(self, choice: Choice) -> bool:
        """Predict a candidate from the costs that are known; return whether they suffice."""
        seconds = predict(self._lab.pipeline(self._signature, choice), self._lab.costs)
        if seconds is None:
            return False
        self.seconds[choice] = seconds
        family = family_of(choice)
        self._families[family] = min(seconds, self._families.get(family, seconds))
        return True

    @property
    def _best(self) -> float:
        return min(filter(None, self._families.values()), default=0.0)

    def _look_again(self) -> bool:
        """Predict anew what seems much slower than the best; return whether there was time for it.

        A program that took a processor while a task ran makes it look slow, for ever: a family is
        left out if its predictions are bad.
        """
        for choice in self.seconds:
            self._enter(choice)  # another one may have told better costs of its tasks
            seconds = self.seconds[choice]
            if seconds is None or not PATIENCE * self._best < seconds < LONG:
                continue
            try:
                self._lab.learn_again(self._signature, choice)
            except OutOfTime:
                return False
            self._enter(choice)
        return True
