"""A plan that is ready to run, with the program and call that it was made from."""

from __future__ import annotations

from dataclasses import dataclass

from han import _native
from han.model.program import Program
from han.tasks.signature import Signature
from han.tuning.planner import Planned


@dataclass(frozen=True)
class Prepared:
    """A native plan, its program and the call that it serves; `number` identifies it.

    `planned` is kept if the call may run an alternative or a rival. Their native plans are made
    when first needed, and kept as ``native.alternative`` and ``native.rival``.
    """

    native: _native.Plan
    program: Program
    signature: Signature
    number: int = 0
    planned: Planned | None = None
    is_rival: bool = False

    @property
    def undecided(self) -> bool:
        """Whether the call may have a rival, and nothing is known about it yet."""
        may_try = self.planned is not None and self.planned.find_rival is not None
        return may_try and self.native.rival is None
