"""A plan that can run, and what it was made from."""

from __future__ import annotations

from dataclasses import dataclass

from han import _native
from han.model.program import Program
from han.tasks.signature import Signature
from han.tuning.planner import Planned


@dataclass(frozen=True)
class Prepared:
    """A native plan, the program it runs and the call that it serves; `number` is its own.

    `planned` is kept where the call may run something else. The native plans of those are made
    when a call first needs them, and hang on `native` (``native.alternative``, ``native.rival``).
    """

    native: _native.Plan
    program: Program
    signature: Signature
    number: int = 0
    planned: Planned | None = None
    is_rival: bool = False
