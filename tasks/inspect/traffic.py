"""How often the bytes of a message are moved, counted from the operations of Programs.

The executor counts the same while it runs a Program (``native/data/operations.c``), in
:class:`Counted`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

import numpy as np

from han.common.units import plural
from han.model.collectives import ROWS
from han.model.opcodes import ATTACHED, COMBINATIONS, COPIES
from han.model.program import PEER, Code, Program
from han.tasks.lower import lower
from han.tasks.plan import Plan

MOST = 64  # ranks, at most, of a plan that is lowered for a description


@dataclass(frozen=True)
class Traffic:
    """Bytes that ranks copy (also from each other's memory), combine and send as messages.

    Of the copied bytes, `attached` are moved by cross-memory attach. Of the copied and combined
    bytes, `mapped` are read from mapped buffers of peers.
    """

    copied: int = 0
    combined: int = 0
    sent: int = 0
    received: int = 0
    attached: int = 0
    mapped: int = 0

    @classmethod
    def of(cls, program: Program, element: int) -> Traffic:
        """Count the bytes of a rank's operations; an element has `element` bytes."""
        code, n = program.code["code"], program.code["n"]

        def total(*codes: Code) -> int:
            return int(n[np.isin(code, codes)].sum())

        again = total(Code.REDUCE2) * element  # it writes its result to a second address
        copied = total(*COPIES) + again
        return cls(
            copied, total(*COMBINATIONS) * element, total(Code.ISEND), total(Code.IRECV),
            total(*ATTACHED), _mapped(program, element),
        )  # fmt: skip

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def describe(self, nbytes: float, times: int) -> str:
        """Return how often each of `nbytes` bytes was moved, on average over `times`."""
        parts = [("copied", self.copied), ("combined", self.combined), ("sent", self.sent)]
        said = [f"{what} {_often(n / nbytes / times)}" for what, n in parts if n]
        return f"each byte {', '.join(said)}" if said else ""


def _mapped(program: Program, element: int) -> int:
    """Return the bytes that are read from peers' mapped buffers, as operands."""
    rows = program.code
    source, other = (rows["base"][:, ref] >= PEER for ref in (1, 2))
    copies, combines = rows["code"] == Code.COPY, np.isin(rows["code"], COMBINATIONS)
    copied = rows["n"][copies & source].sum()
    combined = sum(rows["n"][combines & where].sum() for where in (source, other))
    return int(copied + element * combined)


@dataclass(frozen=True)
class Counted:
    """What the executor has counted on one rank, in all calls of one shape."""

    calls: int = 0
    traffic: Traffic = Traffic()

    @classmethod
    def of(cls, counts: Iterable[int]) -> Counted:
        """Make it from the counts of a native plan, in their order (``han_counts``)."""
        runs, copied, combined, attached, mapped, sent, received = counts
        return cls(runs, Traffic(copied + attached, combined, sent, received, attached, mapped))

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.calls + other.calls, self.traffic + other.traffic)

    def describe(self, nbytes: int | None) -> str:
        """Return the text for calls of `nbytes`, or of any sizes, as `explain` prints it."""
        if nbytes is None:
            return f"{plural(self.calls, 'call')} of any sizes"
        said = self.traffic.describe(nbytes, self.calls) if nbytes else ""
        return f"{plural(self.calls, 'call')}, {said or 'nothing moved'} by this rank"


def traffic(plan: Plan, ranks: Iterable[int] | None = None) -> Traffic:
    """Add up what `ranks` move in a run of the plan; None: all of them."""
    element = plan.signature.element
    everyone = range(plan.topology.size) if ranks is None else ranks
    return sum((Traffic.of(lower(plan, r), element) for r in everyone), Traffic())


def receivers(plan: Plan) -> int:
    """Return the number of ranks that get data which they do not hold before the call."""
    row, size = ROWS[plan.signature.collective], plan.topology.size
    if not row.recv:
        return 0
    if not row.by_blocks and row.at_root == "recv":
        return 1
    return size if row.send else size - 1  # the root of a broadcast has it already


def _usual(plan: Plan) -> float:
    """Return the bytes of the message, or the mean bytes of a block."""
    signature, size = plan.signature, plan.topology.size
    return signature.start(size) / size if signature.counts else signature.nbytes


def _often(times: float) -> str:
    return "once" if f"{times:.3g}" == "1" else f"{times:.3g} times"


def describe(plan: Plan) -> str:
    """Return how often each byte is moved per receiver, as `explain` prints it."""
    to, nbytes = receivers(plan), _usual(plan)
    if not to or not nbytes:
        return "none"
    if plan.topology.size > MOST:
        return f"not counted for more than {MOST} ranks"
    said = traffic(plan).describe(nbytes, to)
    return f"{said} per receiver" if said else "none"
