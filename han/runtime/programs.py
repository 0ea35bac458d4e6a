"""The programs of a communicator: lowered, or shared with communicators alike."""

from __future__ import annotations

from time import perf_counter

from han.model.program import Program
from han.runtime.alike import ALIKE, Key
from han.tasks.plan import Plan
from han.tuning.planner import Planner


class Programs:
    """Gets programs: `made` of them in `seconds`.

    `shared` ones had been made before in this process, by this communicator or by one alike.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.made = self.shared = 0
        self.seconds = 0.0

    def of(self, plan: Plan) -> Program:
        """Return the program of a plan of the planner."""
        begun = perf_counter()
        key = Key(self.planner, plan.signature, plan.choice, plan.geometries)
        program = ALIKE.get(key)
        self.shared += program is not None
        if program is None:
            program = self.planner.program(plan)
            ALIKE.put(key, program)
        self.seconds += perf_counter() - begun
        self.made += 1
        return program
