"""What each stage of a call of one segment costs, from what whole calls take.

A rank that does nothing in a stage waits for those that do. In calls in a row it begins the next
call meanwhile, and waits there in whatever stage the others hold it up. So the recorded times of
its tasks do not tell what a stage adds to a call, but two calls that differ in one stage do: the
costs of their stages differ by as much as their times. These costs are the same for all ranks, and
are kept apart from those of the first and the last stage of calls of several segments.
"""

from __future__ import annotations

from dataclasses import replace

from han.tuning.costs.model import Costs, missing
from han.tuning.costs.stages import Pipeline, Ranks, Stage


def is_single(pipeline: Pipeline) -> bool:
    """Whether a call has one segment, so that each of its stages is one task."""
    return bool(pipeline.steps) and pipeline.short == 1 and not pipeline.is_long


def told_apart(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline whose stages have costs of their own if it is a call of one segment."""
    return replace(pipeline, alone=is_single(pipeline) and pipeline.depth > 1)


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
