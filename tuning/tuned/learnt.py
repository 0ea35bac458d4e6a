"""What trials of a program found, as points of a tuned table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from han.tasks.choice import Choice
from han.tasks.plan import Plan
from han.tuning.heuristics import BUILT_IN
from han.tuning.rules import use_of
from han.tuning.tuned.conditions import Conditions
from han.tuning.tuned.files import check_conditions, check_machine
from han.tuning.tuned.points import Candidate, Point, Timing, key_of
from han.tuning.tuned.table import TunedTable, with_points

STRATEGY = "trials"


@dataclass(frozen=True)
class Learnt:
    """What trials found of a plan and its rival: the times of both, and whether the rival is used.

    Either the plan or the rival is the built-in choice.
    """

    plan: Plan
    decided: Choice
    rival: Choice
    times: tuple[Timing, Timing]
    rival_used: bool

    def point(self, made: str) -> Point:
        """Return the point of the largest message that the plan serves."""
        built_in = 0 if self.decided.rule == BUILT_IN else 1
        other = (self.rival, self.decided)[built_in]
        signature, topology = self.plan.signature, self.plan.topology
        use = use_of(other, {k: topology.names[k] for k in self.plan.levels})
        return Point(
            key=key_of(signature, topology),
            nbytes=signature.nbytes,
            keeps=self.rival_used == bool(built_in),
            candidates=(Candidate(use, self.times[1 - built_in]),),
            default=self.times[built_in],
            strategy=STRATEGY,
            made=made,
            tried=2,
            conditions=Conditions(signature.dtype, signature.op),
        )


def joined(old: TunedTable, new: TunedTable) -> TunedTable:
    """Return a table with the points of trials in `new`.

    Raises TunedError for a table of another machine, or one that was measured in other conditions.
    A point that decides as the trials did stays as it is. Otherwise the trials decide, and the
    other candidates that were measured stay in the point.
    """
    check_machine(old, new)
    check_conditions(old, new, "name another file in HAN_TUNED")
    points = {(point.key, point.nbytes): point for point in old.named_points}
    for point in new.named_points:
        place = point.key, point.nbytes
        points[place] = _with(points.get(place), point)
    return with_points(old, points.values())


def _with(known: Point | None, point: Point) -> Point:
    if known is None or known.strategy == STRATEGY:
        return point
    if known.use == point.use:
        return known
    others = [c for c in known.candidates if c.use != point.candidates[0].use]
    return replace(
        point, candidates=(*point.candidates, *others), library=known.library, tried=known.tried
    )
