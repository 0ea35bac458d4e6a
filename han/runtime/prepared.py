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

    `planned` is kept if the call may run an alternative or a rival. Their native plans are
    ``native.alternative``, which is made when it is first needed, and ``native.rival``.
    """

    native: _native.Plan
    program: Program
    signature: Signature
    number: int = 0
    planned: Planned | None = None
    is_rival: bool = False
