"""What a call that is not persistent may run instead: an alternative, or a rival.

An alternative is for calls whose buffers on all ranks are shared arrays.

Only its rank knows where a buffer is, and only once the call is made. So a plan has an alternative
beside it, which takes as much of the rings; each rank offers it as it begins the call, or does not,
and all run it where all do (``native/engine/choice.h``). Whether there is one follows from what all
know.
A rank makes its own part of it when it first has such buffers.

A rival is another way for the same call, which takes as much of the rings, too. The leader of the
call, its root or the first rank, tries both, and all run the plan that it chooses
(``native/engine/trials.h``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from han.common.errors import NoRuleError
from han.submodules.solo.reads import reads_peers
from han.tasks.plan import Plan, make_plan
from han.tasks.signature import Signature
from han.tuning.heuristics import MAPPED_BYTES

if TYPE_CHECKING:
    from han.runtime.state import State


def alternative(state: State, signature: Signature, blocking: bool) -> Plan | None:
    """Plan what a call runs on shared arrays; None if that is what it runs anyway."""
    if signature.nbytes < MAPPED_BYTES or state.arena() is None:
        return None
    mapped = replace(signature, mapped=True)
    try:
        choice = state.rules().decide(mapped, blocking=blocking).choice
    except NoRuleError:
        return None
    plan = make_plan(state.topology, mapped, choice, state.config.memory)
    return plan if reads_peers(plan) else None


def rival(state: State, signature: Signature, blocking: bool) -> Plan | None:
    """Plan what a call tries beside what it runs; None: nothing."""
    try:
        choice = state.rules().rival(signature, blocking=blocking)
    except NoRuleError:
        return None
    if choice is None:
        return None
    return make_plan(state.topology, signature, choice, state.config.memory)
