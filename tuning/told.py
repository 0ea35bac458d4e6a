"""Plain sentences of an explanation: how data moves, what was measured, what names stand for."""

from __future__ import annotations

from collections.abc import Iterator

from han.common.units import format_size, format_us
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.costs.estimates import Estimate
from han.tuning.row import Row

SHARED = ("sm", "solo")  # submodules whose data moves through memory


def ways(plan: Plan) -> str:
    """Return how data moves: ``shared memory (node), messages (network)``."""
    names = plan.topology.names
    where: dict[bool, list[str]] = {True: [], False: []}
    for level in plan.levels:
        where[plan.choice.levels[level].submodule in SHARED].append(names[level])
    kinds = {"shared memory": where[True], "messages": where[False]}
    used = {kind: levels for kind, levels in kinds.items() if levels}
    if len(used) < 2:
        return next(iter(used), "nothing to do for a rank that is alone")
    return ", ".join(f"{kind} ({', '.join(levels)})" for kind, levels in used.items())


def measured_here(row: Row | None, signature: Signature) -> str:
    """Return what the tuned table says of the call, or that it says nothing."""
    if row is not None and row.predicted is not None:
        return "predicted from measurements of other shapes"
    point = None if row is None else row.nearest(signature.nbytes)
    if point is None:
        return "not measured here: han bench compares it with the MPI library"
    at = "" if point.nbytes == signature.nbytes else f" at {format_size(point.nbytes)}"
    others = {"built-in choice": point.default if point.use else None, "library": point.library}
    beside = [f"the {who} {_us(timing)}" for who, timing in others.items() if timing is not None]
    return "; ".join([f"measured {_us(point.best)}{at}", *beside])


def _us(timing: Estimate) -> str:
    return f"{format_us(timing.median * 1e6)} us"


def legend(plan: Plan) -> Iterator[str]:
    """Yield what the names of tasks stand for, and those of submodules and algorithms."""
    names = plan.topology.names
    tasks = {task.name: f"{task.kind} on {names[task.level]}" for task in plan.tasks}
    told = ", ".join(f"{name}: {what}" for name, what in tasks.items())
    joined = any(len(stage) > 1 for stage in plan.tasks.stages())
    if told:
        yield told + ("; a stage of several names runs these at once" if joined else "")
    for level in plan.levels:
        choice, part = plan.choice.levels[level], plan.parts[level]
        about = part.algorithms[choice.algorithm].about
        yield f"{choice.submodule} {choice.algorithm}: {about}"
