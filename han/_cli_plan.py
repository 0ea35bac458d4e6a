"""What ``han plan`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from han.errors import ArgumentError, HanError
from han.tasks.lower import lower
from han.tasks.pictures import disassemble, dot, mermaid
from han.tasks.verify import Refuted, verify

if TYPE_CHECKING:
    from han.explain import Explanation

RUNS = 3  # back to back: shared memory is used again


def picture(found: Explanation, form: str) -> str:
    """Return the task graph as text."""
    if form == "dot":
        return dot(found.graph, found.plan.signature.describe())
    return mermaid(found.graph) if form == "mermaid" else str(found)


def listing(found: Explanation, rank: int) -> str:
    """Return the operations of a rank."""
    if rank >= found.plan.topology.size:
        raise ArgumentError(f"rank {rank} is not in 0..{found.plan.topology.size - 1}")
    return disassemble(lower(found.plan, rank))


def prove(found: Explanation) -> str:
    """Prove the call, made a few times in a row, in both forms of its buffers."""
    plans = [found.plan] * RUNS
    try:
        report = verify(plans)
        if found.plan.signature.reduces:
            verify(plans, in_place=True)
    except Refuted as refuted:
        raise HanError(f"refuted: {refuted}") from None
    also = "; also with MPI.IN_PLACE" if found.plan.signature.reduces else ""
    return f"{report}{also}"
