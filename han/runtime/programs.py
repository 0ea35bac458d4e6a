"""The programs of a communicator: planned, or shared with communicators alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter

from han.model.program import Program
from han.runtime.alike import ALIKE, Call, Key
from han.tasks.plan import Plan
from han.tuning.planner import Planner

MOST_KEPT = 128  # programs of persistent calls


class Programs:
    """Gets programs: `made` of them in `seconds`.

    `shared` ones had been made before in this process, by this communicator or by one alike.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.made = self.shared = 0
        self.seconds = 0.0
        self._kept: OrderedDict[Call, Program] = OrderedDict()

    def get(self, call: Call, plan: Callable[[], Plan]) -> Program:
        """Return the program of a call; `plan` makes its plan if the program is not kept."""
        begun = perf_counter()
        key = Key(self.planner, call)
        program = ALIKE.get(key)
        self.shared += program is not None
        if program is None:
            program = self.planner.program(plan())
            ALIKE.put(key, program)
        self.seconds += perf_counter() - begun
        self.made += 1
        return program

    def kept(self, call: Call, plan: Callable[[], Plan]) -> Program:
        """Return the program of a persistent call as `get` does, or the one that it had before."""
        program = self._kept.get(call)
        if program is None:
            program = self._kept[call] = self.get(call, plan)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return program
