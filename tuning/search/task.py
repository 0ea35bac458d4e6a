"""``task``: predict candidates from the costs of tasks, and measure only the best ones.

Costs are measured once and used again for other sizes and collectives.

Source: Luo et al., HAN, section III-C.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

from han.common.grouped import grouped
from han.tasks.choice import Choice, LevelChoice
from han.tasks.signature import Signature
from han.tuning.costs.model import elsewhere, in_turn, predict
from han.tuning.costs.stages import Pipeline
from han.tuning.measured import LONG_CALL, PATIENCE, SURE
from han.tuning.search.race import by_prediction
from han.tuning.search.results import Found, Lab, OutOfTime
from han.tuning.search.space import LATE, SLOW, Pruned, Space

UNPREDICTED = Pruned(
    "not predicted", "the time for this input was over before its tasks were measured", LATE
)
OF_SLOW = Pruned(
    "other parameters, segments and schedules",
    f"the same algorithms were predicted to take more than {PATIENCE:g} times the best",
    SLOW,
)
OF_TASKS = Pruned(
    "combinations of tasks of one level",
    f"their tasks, as calls in turn, take more than {SURE:g} times the best prediction",
    SLOW,
)
OF_SIZES = Pruned(
    "choices on one level",
    f"they take more than {SURE:g} times as long as the best one in messages of another size",
    SLOW,
)


def search(lab: Lab, signature: Signature, space: Space) -> Found:
    """Measure the tasks that are not known yet, predict candidates, and measure the best."""
    prediction = Prediction(lab, signature, space)
    in_time = prediction.run()
    usual = space.candidates[0]
    family = family_of if prediction.is_beyond else None
    results, complete = by_prediction(
        lab, signature, prediction.seconds, usual, prediction.is_measured, family
    )
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
        self._pipelines: dict[Choice, Pipeline] = {}
        self._leader: Choice | None = None  # of the best prediction
        self._in_turn: dict[Hashable, float] = {}  # the same of its tasks, as calls
        self._passed: list[Choice] = []  # what seemed slow

    def run(self) -> bool:
        """Predict all candidates that may be the best; return whether there was time for it."""
        first = first_of(self._candidates)
        stands = set(first)
        others = [choice for choice in self._candidates if choice not in stands]
        usual = self._candidates[0]
        in_time = self._predict(ends_first(first, usual), True)
        in_time = in_time and self._look_again()
        in_time = self._predict(ends_first(others, usual), in_time)
        while hopeful := [one for one in self._passed if self._doubt(one) is None]:
            self._passed = [one for one in self._passed if one not in set(hopeful)]
            in_time = self._predict(hopeful, in_time)
        doubts = map(self._doubt, self._passed)
        self.pruned |= {doubt: None for doubt in doubts if doubt is not None}
        return in_time

    def is_measured(self, choice: Choice) -> bool:
        """Whether all costs behind a prediction were measured at this size."""
        stages = (stage for stage, _ in self._pipeline(choice).stages())
        return all(map(self._lab.costs.knows, stages))

    @property
    def is_beyond(self) -> bool:
        """Whether the best prediction is in proportion to the largest size that was measured."""
        if self._leader is None:
            return False
        stages = (stage for stage, _ in self._pipeline(self._leader).stages())
        return any(self._lab.costs.below(stage) is not None for stage in stages)

    def _predict(self, choices: Iterable[Choice], in_time: bool) -> bool:
        """Predict some candidates; the costs of their tasks are measured while there is time.

        What seems slow waits until more is known about it.
        """
        for choice in choices:
            if self._enter(choice):
                continue
            if self._doubt(choice) is not None:
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

    def _doubt(self, choice: Choice) -> Pruned | None:
        """Return why a choice is far from the best prediction so far, or None.

        The costs of its tasks, as calls of other collectives, are known before its own, and so
        are those of messages of other sizes.
        """
        best, family = self._best, family_of(choice)
        if self._families.get(family, 0.0) > PATIENCE * best:
            return OF_SLOW
        if self._leader is None:
            return None
        if family not in self._families and self._in_turn.get(family, 0.0) > PATIENCE * best:
            return OF_TASKS
        pipeline, costs = self._pipeline(choice), self._lab.costs
        if (elsewhere(pipeline, self._pipeline(self._leader), costs) or 0.0) > SURE:
            return OF_SIZES
        seconds = in_turn(pipeline, costs)
        if seconds is None or seconds <= SURE * best:
            return None
        self._in_turn[family] = min(seconds, self._in_turn.get(family, seconds))
        return OF_TASKS

    def _pipeline(self, choice: Choice) -> Pipeline:
        if choice not in self._pipelines:
            self._pipelines[choice] = self._lab.pipeline(self._signature, choice)
        return self._pipelines[choice]

    def _enter(self, choice: Choice) -> bool:
        """Predict a candidate from the costs that are known; return whether they suffice."""
        seconds = predict(self._pipeline(choice), self._lab.costs)
        if seconds is None:
            return False
        self.seconds[choice] = seconds
        if 0 < seconds < (self._best or math.inf):
            self._leader = choice
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
            if seconds is None or not PATIENCE * self._best < seconds < LONG_CALL:
                continue
            try:
                self._lab.learn_again(self._signature, choice)
            except OutOfTime:
                return False
            self._enter(choice)
        return True


# ---- families -----------------------------------------------------------------------------------

# A family are the candidates that run the same algorithms, with other parameters, segments or
# schedules. A few members stand for it: if these are much slower than the best candidate, the tasks
# of the others are not measured.
WHOLE = float("inf")  # the segment of a message that is not cut


def family_of(choice: Choice) -> Hashable:
    """Return what the members of a family have in common: the algorithms of all kinds of tasks."""
    return choice.composition, tuple(map(_algorithms, choice.levels))


def _algorithms(level: LevelChoice) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    kinds = tuple((k, c.algorithm) for k, c in level.kinds if c.algorithm != level.algorithm)
    return level.submodule, level.algorithm, kinds


def first_of(candidates: Sequence[Choice]) -> list[Choice]:
    """Return the members that stand for their families, in the order of the candidates.

    These have the fewest parameters and the schedule of the first candidate, and the smallest and
    the largest segment. The first candidate is one of them.
    """
    families = grouped((family_of(one), one) for one in candidates)
    kept = set(candidates[:1])
    for members in families.values():
        plain = min(_parameters(one) for one in members)
        usual = [one for one in members if _parameters(one) == plain]
        alike = [one for one in usual if one.schedule == candidates[0].schedule] or usual
        kept |= {min(alike, key=_segment), max(alike, key=_segment)}
    return [one for one in candidates if one in kept]


def ends_first(candidates: Sequence[Choice], usual: Choice) -> list[Choice]:
    """Return candidates in an order in which more costs follow from those known before.

    Of choices that differ in their segment only, the smallest and the largest segments come first:
    costs of others are interpolated. Of these, those that differ from the usual choice in the
    fewest tasks come first: then each call has one task at most whose cost is not known.
    """
    alike = grouped(((one.levels, one.schedule, one.composition), one) for one in candidates)
    inner = {one for some in alike.values() for one in sorted(some, key=_segment)[1:-1]}
    return sorted(candidates, key=lambda one: (one in inner, _deviations(one, usual)))


def _deviations(choice: Choice, usual: Choice) -> int:
    """Return in how many levels, kinds of tasks and compositions two choices differ."""
    found = int(choice.composition != usual.composition)
    for own, other in zip(choice.levels, usual.levels, strict=False):
        kinds = {kind for kind, _ in (*own.kinds, *other.kinds)}
        found += own.alike != other.alike
        found += sum(own.of(kind) != other.of(kind) for kind in kinds)
    return found


def _parameters(choice: Choice) -> int:
    return sum(len(one.parameters) for level in choice.levels for one in level.each)


def _segment(choice: Choice) -> float:
    return WHOLE if choice.segment is None else choice.segment
