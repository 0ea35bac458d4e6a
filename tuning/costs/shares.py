"""What each stage of a call of one segment costs, from what whole calls take.

A rank that does nothing in a stage waits for those that do. In calls in a row it begins the next
call meanwhile, and waits there in whatever stage the others hold it up. So the recorded times of
its tasks do not tell what a stage adds to a call, but two calls that differ in one stage do: the
costs of their stages differ by as much as their times. These costs are the same for all ranks, and
are kept apart from those of the first and the last stage of calls of several segments.
"""

from __future__ import annotations

from dataclasses import replace

from han.tuning.costs.model import Costs, missing, predict
from han.tuning.costs.stages import Pipeline, Ranks, Stage


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
