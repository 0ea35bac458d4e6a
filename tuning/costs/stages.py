"""Stages of a pipeline as keys of costs, and their costs from recorded times of tasks.

A stage is the set of tasks of one topological generation (HAN's composite task, ``sbib``). Its cost
on a rank is the time from the end of the stages before it to its own end on this rank. So the costs
of all stages of a call add up to its time, for any number of levels, in lockstep and in dataflow.

The steady cost is the difference of two short pipelines' times for each segment that the longer one
has more. In dataflow streams run ahead of each other, so the time between the ends of two stages
says little about the rate of a full pipeline; the difference of whole times does.

Source: Luo et al., HAN, sections III-A2 and III-B2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from han.common.grouped import grouped
from han.model.timeline import TaskTime
from han.tasks.choice import Choice, LevelChoice
from han.tasks.compositions import TREE
from han.tasks.outline import Outline
from han.tasks.signature import Signature

WARM = 2  # segments of the shorter pipeline beyond its depth
STEADY = 4  # segments that the longer pipeline has more
Ranks = tuple[float, ...]  # seconds by rank


@dataclass(frozen=True)
class Step:
    """A task without its segment: its name, kind, level, and what carries it out there."""

    name: str
    kind: str
    level: int
    choice: LevelChoice


@dataclass(frozen=True)
class Operands:
    """What matters to a task about the elements that it combines; all empty if it only moves."""

    element: int = 1
    op: str = ""
    native: bool = True
    commutative: bool = True


@dataclass(frozen=True)
class Stage:
    """The key of a cost: what a stage does, with segments of how many bytes.

    `steady`: what one more segment adds to a pipeline that is full. `alone`: in calls of one
    segment, whose stages have costs of their own. The size of the message and the collective are
    no part of the key, so costs are used again for others.
    """

    steps: tuple[Step, ...]
    segment: int
    operands: Operands
    schedule: str = "dataflow"
    steady: bool = False
    composition: str = TREE
    alone: bool = False

    @property
    def name(self) -> str:
        """The name as in the paper: ``sbib``."""
        return "".join(step.name for step in self.steps)


@dataclass(frozen=True)
class Pipeline:
    """A call as stages: `steps` of every segment, and `count` segments.

    If the message is no multiple of the segment, `count` is a fraction. `alone`: its costs do not
    stand for stages of calls of several segments.
    """

    steps: tuple[Step, ...]
    segment: int
    count: float
    operands: Operands
    schedule: str = "dataflow"
    composition: str = TREE  # whose groups the steps are among
    alone: bool = False

    @property
    def depth(self) -> int:
        """Number of tasks that a segment passes through."""
        return len(self.steps)

    @property
    def short(self) -> int:
        """Segments of the shorter pipeline to measure, which has no more than this one."""
        return min(max(1, round(self.count)), self.depth + WARM)

    @property
    def longer(self) -> float:
        """Segments of the longer pipeline to measure, which has no more than this one either."""
        return min(self.count, self.depth + WARM + STEADY)

    def nbytes(self, segments: float) -> int:
        """Return the bytes of so many segments, or of the whole message if it has no more."""
        return int(min(segments, self.count) * self.segment + 0.5)

    @property
    def is_long(self) -> bool:
        """Whether shorter pipelines stand for this one."""
        return self.count > self.short

    def stages(self) -> list[tuple[Stage, float]]:
        """Return each stage with the number of times that it runs."""
        short = self.short
        found = [(self._stage(k, short), 1.0) for k in range(short + self.depth - 1)]
        return [*found, (self.steady, self.count - short)] if self.is_long else found

    @property
    def steady(self) -> Stage:
        """The stage that repeats while the pipeline is full, with a task of every kind."""
        return replace(self._stage(self.depth - 1, self.depth), steady=True)

    def _stage(self, k: int, count: int) -> Stage:
        """Return stage `k` of a pipeline of `count` segments: step j works on segment k - j."""
        working = tuple(s for j, s in reversed(list(enumerate(self.steps))) if 0 <= k - j < count)
        moves = all(step.kind == "bcast" for step in working)
        operands = Operands() if moves else self.operands
        return Stage(
            working, self.segment, operands, self.schedule,
            composition=self.composition, alone=self.alone,
        )  # fmt: skip


def pipeline_of(plan: Outline) -> Pipeline:
    """Return the stages of a plan in short form; of a plan without tasks, no steps."""
    signature, tasks = plan.signature, plan.tasks.all
    first = [task for task in tasks if task.segment == 0]
    steps = tuple(
        Step(t.name, t.kind, t.level, plan.choice.levels[t.level].of(t.kind)) for t in first
    )
    segment = max((task.nbytes for task in first), default=0)
    count = signature.nbytes / segment if segment else 1.0
    choice = plan.choice
    return Pipeline(
        steps, segment, count, operands_of(signature), choice.schedule, choice.composition
    )


def pipeline_of_choice(
    signature: Signature, choice: Choice, plan: Callable[[Signature, Choice], Outline]
) -> Pipeline:
    """Return the stages of a call from the plan of its first segment only, which `plan` makes."""
    if choice.segment is None or choice.segment >= signature.nbytes:
        return pipeline_of(plan(signature, choice))
    count = max(1, choice.segment // signature.element)
    one = pipeline_of(plan(replace(signature, count=count), choice))
    return replace(one, count=signature.nbytes / one.segment)


def operands_of(signature: Signature) -> Operands:
    """Return what matters about the elements of a call."""
    if not signature.reduces:
        return Operands()
    return Operands(signature.element, signature.op, signature.native, signature.commutative)


def stage_seconds(times: Iterable[TaskTime], stage_of: Mapping[str, int], start: float) -> Ranks:
    """Return the seconds of each stage of one call on one rank, which entered it at `start`.

    `stage_of` gives the number of each task's stage. A rank without tasks in a stage spends no time
    in it.
    """
    ends = [start] * (1 + max(stage_of.values(), default=-1))
    for one in times:
        stage = stage_of.get(one.task)
        if stage is not None:
            ends[stage] = max(ends[stage], one.end)
    reached = accumulate([start, *ends], max)
    return tuple(after - before for before, after in pairwise(reached))


def costs_of(
    pipeline: Pipeline, short: Sequence[Ranks], longer: Sequence[Ranks] = ()
) -> dict[Stage, Ranks]:
    """Return the cost of each stage, from the seconds of each stage by rank.

    `short` and `longer` are those of the two short pipelines; only a long pipeline needs both.
    """
    stages = (stage for stage, _ in pipeline.stages())
    found = grouped(zip(stages, short, strict=False))
    costs = {stage: _mean(rows) for stage, rows in found.items() if not stage.steady}
    if pipeline.is_long:
        more = pipeline.longer - pipeline.short
        totals = zip(_sum(longer), _sum(short), strict=True)
        costs[pipeline.steady] = tuple(max(0.0, b - a) / more for b, a in totals)
    return costs


def _sum(rows: Sequence[Ranks]) -> Ranks:
    return tuple(map(sum, zip(*rows, strict=True)))


def _mean(rows: Sequence[Ranks]) -> Ranks:
    return tuple(total / len(rows) for total in _sum(rows))
