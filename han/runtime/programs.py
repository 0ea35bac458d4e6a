"""The programs of a communicator: shared with others, read from stored plans, or planned."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter

from han.model.loops import roll
from han.model.program import Program
from han.runtime.alike import ALIKE, Key
from han.runtime.stored_plans import Call, PlanStore, complete, key_of
from han.tasks.plan import Plan
from han.tuning.planner import Planner

MOST_KEPT = 128  # programs of persistent calls


class Programs:
    """Gets programs: `made` of them in `seconds`.

    `stored` of them were read from files. `shared` ones had been made before in this process, by
    this communicator or by one alike.
    """

    def __init__(self, planner: Planner, folder: str = "") -> None:
        self.planner = planner
        self.made = self.stored = self.shared = 0
        self.seconds = 0.0
        self._kept: OrderedDict[Call, Program] = OrderedDict()
        # A submodule of another package may change without notice, so its plans are not stored.
        keeps = bool(folder) and complete(planner.config, planner.named_submodules())
        self.store = PlanStore(folder, key_of(planner)) if keeps else None
        self._folder = folder if keeps else ""

    def get(self, call: Call, plan: Callable[[], Plan]) -> Program:
        """Return the program of a call; `plan` makes its plan if it is neither kept nor stored."""
        begun = perf_counter()
        key = Key(self.planner, self._folder, call)
        program = ALIKE.get(key)
        self.shared += program is not None
        if program is None:
            program = self._read(call)
            if program is None:
                program = self.planner.program(plan())
                self._write(call, program)
            program = roll(program)
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

    def _keeps(self, call: Call) -> bool:
        """Return whether a program may be stored; one for mapped buffers may not."""
        return self.store is not None and not call.signature.mapped

    def _read(self, call: Call) -> Program | None:
        if self.store is None or not self._keeps(call):
            return None
        from han.tasks.files.program_check import check, ground

        where = ground(self.planner.topology, call.signature, self.planner.rank, call.memory)
        program = self.store.read(call, lambda found: check(found, where))
        self.stored += program is not None
        return program

    def _write(self, call: Call, program: Program) -> None:
        if self.store is not None and self._keeps(call):
            self.store.write(call, program)
