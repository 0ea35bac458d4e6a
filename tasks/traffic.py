"""How often the bytes of a message are moved: counted in Programs, operation by operation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from han.program import Code, Program
from han.tasks.lower import lower
from han.tasks.plan import Plan

MOST = 64  # ranks looked at: further ones are like these
COPIES = (Code.COPY, Code.PULL)
COMBINATIONS = (Code.REDUCE, Code.REDUCE2)


@dataclass(frozen=True)
class Traffic:
    """Bytes that ranks copy (also from each other's memory), combine and send as messages."""

    copied: int = 0
    combined: int = 0
    sent: int = 0

    @classmethod
    def of(cls, program: Program, element: int) -> Traffic:
        """Count a rank's operations; elements are of `element` bytes."""
        code, n = program.code["code"], program.code["n"]

        def total(*codes: Code) -> int:
            return int(n[np.isin(code, codes)].sum())

        again = total(Code.REDUCE2) * element  # it writes its result to a second place
        copied = total(*COPIES) + again
        return cls(copied, total(*COMBINATIONS) * element, total(Code.ISEND))

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.copied + other.copied, self.combined + other.combined, self.sent + other.sent
        )


def traffic(plan: Plan, ranks: Iterable[int] | None = None) -> Traffic:
    """Add up what `ranks` move in a run of the plan; None: all of them."""
    element = plan.signature.element
    everyone = range(plan.topology.size) if ranks is None else ranks
    return sum((Traffic.of(lower(plan, r), element) for r in everyone), Traffic())


def receivers(plan: Plan) -> int:
    """How many ranks get a result that is not theirs already."""
    signature, size = plan.signature, plan.topology.size
    return {"bcast": size - 1, "reduce": 1, "barrier": 0}.get(signature.collective, size)


def _usual(plan: Plan) -> float:
    """Bytes of the message, or of a block: of the mean one."""
    signature, size = plan.signature, plan.topology.size
    return signature.start(size) / size if signature.counts else signature.nbytes


def describe(plan: Plan) -> str:
    """Say how often each byte is moved for each rank that receives it, as `explain` prints it."""
    to, nbytes = receivers(plan), _usual(plan)
    if not to or not nbytes:
        return "none"
    if plan.topology.size > MOST:
        return f"not counted for more than {MOST} ranks"
    total = traffic(plan)
    parts = [("copied", total.copied), ("combined", total.combined), ("sent", total.sent)]
    said = [f"{what} {n / nbytes / to:.3g} times" for what, n in parts if n]
    return f"each byte {', '.join(said)} a receiver" if said else "none"
