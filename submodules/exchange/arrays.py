"""Exchanges that read users' shared arrays where they are.

A member reads the operands of the others in their send buffers, so no member copies its operand
into cells. Partial results go through cells. Finished blocks are read in the results of those who
have them, except in a tree, whose partial results are whole vectors in cells. A member leaves the
run when the others have read its buffers.

In place, a member overwrites only what it alone combines, and blocks whose results it has, which
others have made from its operand. Where several members combine the same block, this does not hold,
so exchanges with steps that combine without splitting go through cells.

Source: Jocksch et al., section 2.1.4.
"""

from __future__ import annotations

from han.model.channel_layout import PAGE
from han.model.program import PEER_SLOTS
from han.model.topology import Topology
from han.submodules.exchange.patterns import PRESETS, asked_factors
from han.submodules.parts.factors import phases_of
from han.tasks.choice import LevelChoice
from han.tasks.compositions import TREE
from han.tasks.outline import Outline
from han.tasks.signature import Signature

READING = ("recursive", "cyclic", "tree")  # algorithms of which each stage has cells of its own


def may_read(topology: Topology, signature: Signature, level: int) -> bool:
    """Return whether operands on a level are arrays that all members map.

    They are on the innermost level; elsewhere leaders have partial results.
    """
    if not (signature.mapped and signature.reduces and topology.shared[level]):
        return False
    return level in topology.active[:1] and topology.channel_ranks[level] <= PEER_SLOTS


def reads(topology: Topology, signature: Signature, level: int, choice: LevelChoice) -> bool:
    """Return whether members read the arrays of others; small messages go through small slots."""
    if choice.algorithm not in READING or not choice.get("arrays", 1):
        return False
    small = choice.get("whole", 0) if choice.algorithm == "tree" else 0
    if signature.nbytes <= max(PAGE, small):
        return False
    signed = asked_factors(choice)
    whole = signed is not None and bool(phases_of(choice.algorithm, signed).middle)
    return not whole and may_read(topology, signature, level)


def in_memory(choice: LevelChoice) -> bool:
    """Return whether no kind of tasks sends messages on a level.

    A result that is received in place is lent to the MPI library before others have read it.
    """
    return not any(one.algorithm in (*PRESETS, "scatter") for one in choice.each)


def reads_in_plan(plan: Outline, level: int, choice: LevelChoice) -> bool:
    """Return whether members read arrays in a plan: only in trees are operands where they sent."""
    if plan.choice.composition not in (TREE, "flat") or not in_memory(plan.choice.levels[level]):
        return False
    return reads(plan.topology, plan.signature, level, choice)
