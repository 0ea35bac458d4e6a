"""The cost model: the time of a collective from the costs of its stages (equations 1 to 4).

Source: Luo et al., HAN, sections III-A2 and III-B2. For a pipeline of `u` segments that is full
from stage `k` on, the time is ``max over ranks (first + (u - k) * steady + last)``. The numbers of
levels, stages that fill it and stages that drain it follow from the pipeline.

Recorded times of a call of one segment do not tell what a stage adds to it: a rank that does
nothing in a stage waits in another one. Two calls that differ in one stage do: the costs of their
stages differ by as much as their times. These costs are the same for all ranks, and are kept apart
from those of the first and the last stage of calls of several segments.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from han.common.units import format_size
from han.tuning.costs.stages import Pipeline, Ranks, Stage
from han.tuning.measured import LARGE, REACH, WIDE


class Costs:
    """Known costs of stages; a cost between two measured segments is interpolated.

    Beyond the largest measured segment, if this is large, it is in proportion to the segment.
    """

    def __init__(self, known: Mapping[Stage, Ranks] | None = None) -> None:
        self._of: dict[Stage, dict[int, Ranks]] = {}  # by segment, of stages without one
        self.enter(known or {})

    def _at(self, stage: Stage) -> dict[int, Ranks]:
        """Return the measured costs of a stage by segment."""
        return self._of.setdefault(replace(stage, segment=0), {})

    def add(self, stage: Stage, ranks: Ranks) -> None:
        """Enter a measured cost; one that is known is replaced.

        Of one task, more bytes do not take less time. A cost above that of a larger segment was
        measured while another program had a processor, so it becomes as low as that one. Stages
        that are `alone` are not measured, but have what others leave over.
        """
        known = self._at(stage)
        known[stage.segment] = ranks
        if len(stage.steps) > 1 or stage.steady or stage.alone:
            return
        for larger, smaller in pairwise(sorted(known, reverse=True)):
            if 0 < max(known[larger], default=0.0) < max(known[smaller], default=0.0):
                known[smaller] = known[larger]

    def enter(self, several: Mapping[Stage, Ranks]) -> None:
        """Enter measured costs; those that are known are replaced."""
        for stage, ranks in several.items():
            self.add(stage, ranks)

    def improve(self, stage: Stage, ranks: Ranks) -> None:
        """Enter a measured cost; of one that is known, each rank keeps the smaller one.

        What a stage takes longer beside other stages, or beside other programs, is not its own.
        A cost of zero is an error of measurement.
        """
        known = self._at(stage).get(stage.segment, ranks)
        pairs = zip(known, ranks, strict=True)
        self.add(stage, tuple(min(filter(None, pair), default=0.0) for pair in pairs))

    def knows(self, stage: Stage) -> bool:
        """Whether the cost of a stage was measured itself."""
        return stage.segment in self._at(stage)

    def find(self, stage: Stage) -> Ranks | None:
        """Return the cost of a stage, measured or interpolated; None if unknown.

        Between near segments a cost follows a log scale, between distant ones a straight line.
        """
        known, between, below = self._at(stage), self.between(stage), self.below(stage)
        if below is not None:
            return tuple(cost * stage.segment / below for cost in known[below])
        if between is None:
            return known.get(stage.segment)
        low, high = between
        ends = known[low], known[high]
        if high > REACH * low:
            part = (stage.segment - low) / (high - low)
            return tuple(a + part * (b - a) for a, b in zip(*ends, strict=True))
        share = math.log(stage.segment / low) / math.log(high / low)
        return tuple(_between(a, b, share) for a, b in zip(*ends, strict=True))

    def between(self, stage: Stage) -> tuple[int, int] | None:
        """Return the measured segments around that of a stage that was not measured itself."""
        segments = sorted(self._at(stage))
        above = bisect_left(segments, stage.segment)
        if stage.segment in segments or above in (0, len(segments)):
            return None
        low, high = segments[above - 1], segments[above]
        return (low, high) if low and high <= WIDE * low else None

    def near(self, stage: Stage) -> int | None:
        """Return the measured segment next to that of a stage, at most REACH times as far."""
        segments = sorted(self._at(stage))
        apart = {n: max(n, stage.segment) / min(n, stage.segment) for n in segments if n}
        found = min(apart, key=lambda n: apart[n], default=0)
        return found if found and apart[found] <= REACH else None

    def below(self, stage: Stage) -> int | None:
        """Return the largest measured segment, from which a cost beyond it is extrapolated."""
        segments = sorted(self._at(stage))
        last = segments[-1] if segments else 0
        return last if LARGE <= last < stage.segment <= REACH * last else None


def _between(a: float, b: float, share: float) -> float:
    if a <= 0 or b <= 0:
        return a + share * (b - a)
    return math.exp((1 - share) * math.log(a) + share * math.log(b))


def missing(pipeline: Pipeline, costs: Costs) -> list[Stage]:
    """Return the stages of a pipeline whose costs are not known."""
    return [stage for stage, _ in pipeline.stages() if costs.find(stage) is None]


def basis(pipeline: Pipeline, costs: Costs) -> str:
    """Return what the prediction of a pipeline is made from, in words."""
    stages = [stage for stage, _ in pipeline.stages()]
    below = next((one for one in map(costs.below, stages) if one is not None), None)
    if below is not None:
        return f"in proportion to {format_size(below)}"
    ends = next((one for one in map(costs.between, stages) if one is not None), None)
    if ends is not None:
        return f"interpolated between {format_size(ends[0])} and {format_size(ends[1])}"
    if pipeline.is_long:
        return f"from pipelines of {pipeline.short} and {pipeline.longer:.3g} segments"
    return "all stages measured alone" if len(pipeline.steps) == 1 else "all stages measured"


def predict(pipeline: Pipeline, costs: Costs) -> float | None:
    """Return the seconds of a collective on the slowest rank; None if a cost is not known.

    A call without stages takes no time.
    """
    totals: list[float] = []
    for stage, times in pipeline.stages():
        ranks = costs.find(stage)
        if ranks is None:
            return None
        totals = totals or [0.0] * len(ranks)
        totals = [total + times * cost for total, cost in zip(totals, ranks, strict=True)]
    return max(totals, default=0.0)


# ---- calls of one segment -----------------------------------------------------------------------


def is_single(pipeline: Pipeline) -> bool:
    """Whether a call has one segment, so that each of its stages is one task."""
    return bool(pipeline.steps) and pipeline.short == 1 and not pipeline.is_long


def told_apart(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline; that of a call of one segment shares no costs with longer ones."""
    return replace(pipeline, alone=is_single(pipeline) and pipeline.depth > 1)


def in_turn(pipeline: Pipeline, costs: Costs) -> float | None:
    """Predict a call of one segment from the costs of its tasks as calls of their own.

    None if these calls were not measured, or if the tasks are on several levels, where costs of
    pipelines have the same keys.
    """
    if not is_on_one_level(pipeline) or not pipeline.alone:
        return None
    return predict(replace(pipeline, alone=False), costs)


def is_on_one_level(pipeline: Pipeline) -> bool:
    """Whether a call of one segment has tasks on one level only, so whole calls are measured."""
    return is_single(pipeline) and len({step.level for step in pipeline.steps}) == 1


def elsewhere(pipeline: Pipeline, other: Pipeline, costs: Costs) -> float | None:
    """Return the ratio of two calls' predictions at the nearest segment that was measured.

    None if the costs of one of them are not known there, or if their tasks are on several levels.
    """
    if not is_on_one_level(pipeline) or not is_on_one_level(other):
        return None
    near = costs.near(pipeline.stages()[0][0])
    if near is None:
        return None
    times = [predict(replace(one, segment=near), costs) for one in (pipeline, other)]
    return times[0] / times[1] if times[0] is not None and times[1] else None


def shared_out(pipeline: Pipeline, whole: float, costs: Costs, ranks: int) -> dict[Stage, Ranks]:
    """Return the costs of the stages that are not known, of a call that takes `whole` seconds.

    They have what the known ones leave over. If there are several, those of the outermost level
    have it in equal shares, as the others add little to them. For the time of calls that differ
    from this one it does not matter which of them has it.
    """
    stages = [stage for stage, _ in pipeline.stages()]
    unknown = missing(pipeline, costs)
    known = [max(found) for found in map(costs.find, stages) if found is not None]
    rest = max(0.0, whole - sum(known))
    outermost = max(stage.steps[0].level for stage in unknown)
    bears = [stage for stage in unknown if stage.steps[0].level == outermost]
    return {stage: (rest / len(bears) if stage in bears else 0.0,) * ranks for stage in unknown}


def lowered(pipeline: Pipeline, whole: float, costs: Costs, ranks: int) -> dict[Stage, Ranks]:
    """Return the costs to change after a call took only `whole` seconds; none if it took longer.

    What is too much is taken from the stage that costs most.
    """
    known = {stage: max(costs.find(stage) or (0.0,)) for stage, _ in pipeline.stages()}
    if sum(known.values()) <= whole:
        return {}
    most = max(known, key=lambda stage: known[stage])
    others = sum(cost for stage, cost in known.items() if stage != most)
    return {most: (max(0.0, whole - others),) * ranks}
