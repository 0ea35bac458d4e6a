"""``Comm.explain``: what a call would run, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from han.common.errors import ArgumentError
from han.common.units import plural
from han.message.dtypes import op_name
from han.message.unlocked import is_commutative
from han.tasks.call import call_signature
from han.tasks.inspect.traffic import Counted
from han.tasks.signature import Signature
from han.tasks.size_classes import class_around
from han.tuning.explanation import Explanation

if TYPE_CHECKING:
    from han.runtime.state import State
    from han.tasks.plan import Plan


def explain(
    state: State, signature: Signature, shared: bool = False, device: bool = False
) -> Explanation:
    """Return the Explanation of a call; raises ArgumentError for a call that cannot be made."""
    root, mappable = signature.root, _mappable(state)
    signature = replace(signature, device=device)
    if shared and signature.nbytes and mappable:
        signature = replace(signature, mapped=True)
    if signature.rooted and not 0 <= root < state.size:
        raise ArgumentError(f"root {root} is not in 0..{state.size - 1}")
    planned = state.parts.planner.planned(signature)
    plan, decision = planned.plan.of_size(signature.nbytes, signature.counts), planned.decision
    if planned.left:
        return Explanation(plan, decision)
    counted = sum(map(Counted.of, state.parts.plans.counts(planned.signature)), Counted())
    single_copy = any(_reads_peers(plan, level) for level in plan.levels)
    reads = f"{mappable} where they are" if signature.mapped else "by cross-memory attach"
    return Explanation(
        plan,
        decision,
        reads if single_copy else "",
        counted,
        planned.alternative,
        planned.rival,
        state.parts.plans.tried(planned.signature),
        class_around(planned.signature.bound, state.parts.planner.bounds)
        if planned.signature.grains and not planned.signature.own
        else None,
    )


def _mappable(state: State) -> str:
    """Name the kinds of arrays that ranks can read without a copy; "" if there are none."""
    mapping, windows = state.parts.shared.mapping, len([*state.parts.shared.windows])
    refused = mapping is not None and mapping.refused
    kinds = [] if refused else ["shared arrays"]
    if windows:
        kinds.append(f"arrays in {plural(windows, 'attached window')}")
    return " and ".join(kinds)


def make_signature(
    collective: str, nbytes: int | str, op: MPI.Op = MPI.SUM, dtype: Any = "f8", root: int = 0
) -> Signature:
    """Return the Signature of a call on NumPy data; raises ArgumentError for unknown names."""
    name = op_name(op)
    commutative = bool(name) or is_commutative(op)
    return call_signature(collective, nbytes, name, dtype, root, commutative=commutative)


def _reads_peers(plan: Plan, level: int) -> bool:
    """Return whether ranks read buffers of their peers on a level."""
    part, choice = plan.parts[level], plan.choice.levels[level]
    return part.reads_peers or part.reads_mapped(plan.topology, plan.signature, level, choice)
