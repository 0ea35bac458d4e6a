"""From the names in a choice to the submodules that carry the plan out."""

from __future__ import annotations

from han.model.topology import Topology
from han.submodules.registry import submodule
from han.tasks.choice import Choice
from han.tasks.plan import Plan, make_plan
from han.tasks.signature import Signature


def plan_of_choice(topology: Topology, signature: Signature, choice: Choice, memory: int) -> Plan:
    """Plan a call with a choice; channels hold about `memory` bytes."""
    parts = tuple(submodule(level.submodule) for level in choice.levels)
    return make_plan(topology, signature, choice, memory, parts)
