"""The cost model's estimate of a call, from short pipelines that the simulator runs.

Source: Luo et al., HAN, section III: equations 3 and 4, with costs of tasks that are measured in
short pipelines. Here the simulator measures them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from han.model.timeline import TaskTime
from han.tasks.choice import Choice
from han.tasks.outline import Outline
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.costs.model import Costs, predict
from han.tuning.costs.stages import Pipeline, Ranks, costs_of, pipeline_of_choice, stage_seconds
from han.tuning.papers.figure import Setting, Way
from han.tuning.prediction import Where, plan_of
from han.tuning.prediction import predict as simulated


def estimated(setting: Setting, way: Way, signature: Signature) -> float:
    """Return the seconds of a call by the cost model."""
    where = Where(setting.machine, setting.nodes, setting.ppn)

    def plan(asked: Signature, _: Choice) -> Outline:
        return plan_of(where, way.rules, asked)

    choice = plan_of(where, way.rules, signature).choice
    pipeline = pipeline_of_choice(signature, choice, plan)
    counts = (pipeline.short, *([pipeline.longer] if pipeline.is_long else []))
    setting.tell(f"{way.name}: the model's short pipelines")
    rows = [_measured(where, way, _of(pipeline, signature, count)) for count in counts]
    found = predict(pipeline, Costs(costs_of(pipeline, *rows)))
    assert found is not None, "all stages have been measured"
    return found


def _of(pipeline: Pipeline, signature: Signature, count: float) -> Signature:
    return replace(signature, count=pipeline.nbytes(count) // signature.element)


def _measured(where: Where, way: Way, signature: Signature) -> list[Ranks]:
    plan: Plan = plan_of(where, way.rules, signature)
    spans = simulated(where, plan, spans=True).simulation.spans
    stage_of = {str(task): k for task, k in plan.stages.items()}
    times: dict[int, list[TaskTime]] = defaultdict(list)
    for one in spans:
        times[one.rank].append(one)
    ranks = [stage_seconds(times[rank], stage_of, 0.0) for rank in range(where.size)]
    return list(zip(*ranks, strict=True))
