"""Which data of a call its machine's caches hold, and the rates at which it is copied and reduced.

A cache of a level is shared by the ranks of a domain. It holds the cells of a call, or its cells
and buffers, if those of all these ranks fit into it. What earlier calls have left in it, and the
rest of the machine's caches, do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from han.config.machine import MachineModel
from han.model.collectives import ROWS
from han.tasks.plan import Plan
from han.tasks.signature import Signature


def bytes_of_buffers(signature: Signature, size: int) -> int:
    """Return the bytes of a rank's buffers together, at most."""
    row = ROWS[signature.collective]
    blocks = {"each": size, "once": 1, "": 0}
    sent, received = blocks[row.send], blocks[row.recv]
    return signature.nbytes * (received if signature.in_place else sent + received)


@dataclass(frozen=True)
class Caches:
    """Whether a machine has caches, and whether they hold a call's cells and its buffers.

    `level` is the innermost level whose caches hold all that is held.
    """

    exist: bool
    hold_cells: bool = False
    hold_buffers: bool = False
    level: int = 0

    @classmethod
    def of(cls, plan: Plan, machine: MachineModel, place: npt.NDArray[np.int32]) -> Caches:
        """Compare a plan's data with the caches of a machine."""
        cells = _bytes_of_cells(plan)
        both = cells + bytes_of_buffers(plan.signature, plan.topology.size)
        levels = [k for k, link in enumerate(machine.levels) if link.cache]
        hold_both, hold_cells = (
            [k for k in levels if nbytes * _most(place[k]) <= machine.levels[k].cache]
            for nbytes in (both, cells)
        )
        level = next(iter(hold_both or hold_cells), 0)
        return cls(bool(levels), bool(hold_cells), bool(hold_both), level)

    def rates(self, own: float, levels: Sequence[float | None]) -> list[float]:
        """Return the rates of each row: of data in memory, a rank's own and by level; in caches."""
        given = [own if rate is None else rate for rate in levels]
        memory = [min(own, rate) for rate in given] if self.exist else given
        caches = [given[max(k, self.level)] for k in range(len(given))]
        return [own, *memory, given[self.level], *caches]


def _bytes_of_cells(plan: Plan) -> float:
    """Return the bytes of a rank's ring that a run takes; in a class of sizes, its share."""
    largest = plan.signature if plan.largest is None else plan.largest.signature
    share = plan.signature.nbytes / largest.nbytes if largest.nbytes else 1.0
    return sum(plan.footprint()) * share


def _most(domain: npt.NDArray[np.int32]) -> int:
    return int(np.bincount(domain).max())
