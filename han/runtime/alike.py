"""What communicators of this process that are alike share: their planner and its programs.

The programs of a rank follow from its communicator's topology, configuration, node traits and rank,
and from the submodules and collectives that the program has added. Communicators that are equal in
all of these are alike.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock
from typing import NamedTuple
from weakref import WeakValueDictionary

from han.config.config import Config
from han.model.channel_layout import Geometry
from han.model.collectives import added
from han.model.program import Program
from han.model.topology import Topology
from han.runtime.measured import BESIDE, MOST_PROGRAMS
from han.submodules.registry import others
from han.tasks.choice import Choice
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.planner import Planner
from han.tuning.tuned.table import TunedTable


class ProgramKey(NamedTuple):
    """Identifies a program of this process: the planner, and what a plan of it depends on."""

    planner: Planner
    signature: Signature
    choice: Choice
    channels: tuple[Geometry | None, ...]


class Alike:
    """Planners by what they depend on, and programs by planner and call; for any thread.

    A planner stays while a communicator or a program uses it.
    """

    def __init__(self, most: int = MOST_PROGRAMS) -> None:
        self._most = most
        self._lock = RLock()  # a signal handler may make a call too
        self._planners: WeakValueDictionary[object, Planner] = WeakValueDictionary()
        self._programs: OrderedDict[ProgramKey, Program] = OrderedDict()
        self.nbytes = 0

    def planner(
        self,
        topology: Topology,
        config: Config,
        traits: NodeTraits,
        rank: int,
        maps_arrays: bool,
        tuned: TunedTable | None = None,
    ) -> Planner:
        """Return the planner of communicators with these properties; make it for the first."""
        rules = tuple(config.place("rules", k) for k in range(len(config.rules)))  # for messages
        table = "" if tuned is None else tuned.digest
        about = (
            topology, config.fingerprint(), rules, traits, rank, maps_arrays, table,
            others(), added(),
        )  # fmt: skip
        with self._lock:
            found = self._planners.get(about)
            if found is None:
                found = Planner(topology, config, traits, rank, maps_arrays, tuned)
                self._planners[about] = found
        return found

    def get(self, key: ProgramKey) -> Program | None:
        """Return a program, if it is kept."""
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
        return program

    def put(self, key: ProgramKey, program: Program) -> None:
        """Keep a program; drop others if they are too many bytes."""
        with self._lock:
            if key not in self._programs:
                self._programs[key] = program
                self.nbytes += _nbytes(program)
            while self.nbytes > self._most:
                _, dropped = self._programs.popitem(last=False)
                self.nbytes -= _nbytes(dropped)

    def clear(self) -> None:
        """Forget all planners and programs; communicators keep theirs."""
        with self._lock:
            self._planners.clear()
            self._programs.clear()
            self.nbytes = 0


ALIKE = Alike()


def _nbytes(program: Program) -> int:
    return BESIDE + program.nbytes
