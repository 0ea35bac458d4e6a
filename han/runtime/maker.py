"""The maker: what was planned for a call becomes native plans."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from mpi4py import MPI

from han import _native
from han.memory.mapping import Mapping
from han.memory.shared import SharedMemory
from han.message.message import Message
from han.message.unlocked import group_of, return_errors
from han.model.program import Program
from han.ranks.health import Health
from han.runtime.alike import ALIKE, ProgramKey
from han.runtime.engines import Engines
from han.runtime.native_plans import Prepared, identity, native_plan, trial_class
from han.runtime.reports import reporter
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.trace.recording import Names, Recorder
from han.tuning.planner import Planned, Planner
from han.tuning.trials import burst_of

Members = tuple[int, ...]


class Maker:
    """Makes the native plans of blocking, nonblocking and persistent calls; it keeps none.

    All plans that a call may run take the same part of the rings. `living` holds by number every
    prepared plan that is still referenced. `made` programs took `seconds`; `reused` ones had
    been made before in this process, by this communicator or by one alike.
    """

    def __init__(
        self,
        planner: Planner,
        health: Health,
        shared: SharedMemory,
        engines: Engines,
        recorder: Recorder,
    ) -> None:
        self.planner, self._health, self._shared = planner, health, shared
        self._engines, self._recorder = engines, recorder
        self.count_anew()
        self.living: WeakValueDictionary[int, Prepared] = WeakValueDictionary()
        self._numbers = itertools.count(1)
        self._scratch: np.ndarray[Any, Any] | None = None
        self._comms: dict[_native.Engine, dict[tuple[int, Members], MPI.Intracomm]] = {}

    def count_anew(self) -> None:
        """Forget how many programs were made."""
        self.made = self.reused = 0
        self.seconds = 0.0

    def make(
        self,
        planned: Planned,
        message: Message,
        engine: _native.Engine,
        *,
        mapping: Mapping | None = None,
        known_as: Signature | None = None,
    ) -> Prepared:
        """Make the plan of a call for an engine, and its rival.

        `mapping` and `known_as` are those of :meth:`bind`.
        """
        if planned.talks:
            self._engines.let_talk()
        program = self.program(planned.plan)
        for other in planned.others:
            program = program.reaching(other.footprint())
        prepared = self.bind(
            program,
            replace(message, signature=planned.signature),
            engine,
            planned if planned.others else None,
            mapping=mapping,
            known_as=known_as,
        )
        if planned.rival is not None:
            rival = self._other(prepared, planned.rival, message, engine, is_rival=True)
            prepared.native.rival = rival
        return prepared

    def offer(
        self, prepared: Prepared, message: Message, engine: _native.Engine, send: int, recv: int
    ) -> None:
        """Make the alternative when this rank first has buffers for it; peers may have none."""
        planned, native = prepared.planned, prepared.native
        if planned is None or planned.alternative is None or native.alternative is not None:
            return
        if self._shared.holds(send, recv):
            native.alternative = self._other(prepared, planned.alternative, message, engine)

    def _other(
        self,
        prepared: Prepared,
        plan: Plan,
        message: Message,
        engine: _native.Engine,
        is_rival: bool = False,
    ) -> _native.Plan:
        program = replace(self.program(plan), footprint=prepared.program.footprint)
        message = replace(message, signature=plan.signature)
        made = self.bind(program, message, engine, is_rival=is_rival)
        prepared.others.append(made)
        return made.native

    def program(self, plan: Plan) -> Program:
        """Return this rank's program of a plan of the planner."""
        begun = perf_counter()
        key = ProgramKey(self.planner, plan.signature, plan.choice, plan.geometries)
        program = ALIKE.get(key)
        self.reused += program is not None
        if program is None:
            program = self.planner.program(plan)
            ALIKE.put(key, program)
        self.seconds += perf_counter() - begun
        self.made += 1
        return program

    # ---- binding ----------------------------------------------------------------------------

    def bind(
        self,
        program: Program,
        message: Message,
        engine: _native.Engine,
        planned: Planned | None = None,
        *,
        is_rival: bool = False,
        mapping: Mapping | None = None,
        known_as: Signature | None = None,
    ) -> Prepared:
        """Make the native plan of a program.

        `planned` holds the plans that the call may run instead; a rival is set next. `is_rival`:
        this one is a rival.
        `mapping` is where this rank finds mapped buffers of its peers; None: the arenas. `known_as`
        is the call that peers compare and messages name, if it is not that of the message.
        """
        signature = known_as or message.signature
        for channel, nbytes in zip(reporter(engine).channels, program.footprint, strict=False):
            channel.make_room(nbytes)
        comms = tuple(self._comm(engine, *key, signature) for key in program.comms)
        scratch = self._memory(program.scratch, engine)
        number = next(self._numbers)
        mapped = (mapping or self._shared.mapping) if signature.mapped else None
        native = native_plan(
            engine, program, message, identity(signature, is_rival), comms, scratch, mapped,
            number=number, whole=self._shared.whole_channel, **self._choices(planned),
        )  # fmt: skip
        prepared = Prepared(native, program, signature, number, planned, is_rival)
        reporter(engine).know(prepared)
        self.living[number] = prepared
        self._recorder.know(partial(names_of, prepared))
        return prepared

    def _choices(self, planned: Planned | None) -> dict[str, Any]:
        """Return what `native_plan` takes for a call that may run other plans."""
        found: dict[str, Any] = {}
        if planned is not None and planned.alternative is not None:
            found["arena"] = self._shared.arena or (0, 0)
        if planned is not None and planned.rival is not None:
            health, burst = self._health, burst_of(planned.signature)
            found["tried"] = trial_class(planned), planned.first, health.rank, health.size, burst
        return found

    def _memory(self, nbytes: int, engine: _native.Engine) -> np.ndarray[Any, Any] | None:
        """Return scratch memory; plans of the own engine share it, as their runs do not overlap."""
        if not nbytes:
            return None
        if engine is not self._engines.own:
            return np.empty(nbytes, np.uint8)
        if self._scratch is None or self._scratch.nbytes < nbytes:
            self._scratch = np.empty(nbytes, np.uint8)
        return self._scratch

    @property
    def room(self) -> int:
        """The bytes of the scratch memory that plans share."""
        return 0 if self._scratch is None else self._scratch.nbytes

    def _comm(
        self, engine: _native.Engine, tag: int, ranks: Members, signature: Signature
    ) -> MPI.Intracomm:
        """Return a communicator of some ranks, for submodules that use MPI's collectives.

        Each engine has communicators of its own: collectives on one communicator must start in the
        same order on all ranks, and the order between two engines is undefined. A communicator is
        made when it is first needed. That call waits for its peers, even if it is nonblocking.
        """
        mine = self._comms.setdefault(engine, {})
        if (tag, ranks) not in mine:
            self._health.gather(f"the first {signature.describe()}", ranks)
            whole = self._health.meeting.messages()
            with group_of(whole, ranks) as members:
                comm = whole.Create_group(members, tag)
            return_errors(comm)
            mine[tag, ranks] = comm
        return mine[tag, ranks]

    def names(self) -> list[tuple[int, Names]]:
        """List the numbers of the plans in use with the names that they stand for in traces."""
        return [names_of(prepared) for prepared in self.living.values()]

    def forget(self, engine: _native.Engine) -> None:
        """Free the communicators of an engine's plans."""
        for comm in self._comms.pop(engine, {}).values():
            comm.Free()

    def clear(self, free: bool) -> None:
        """Forget the communicators of all engines; free them if `free`."""
        if not free:
            self._comms.clear()
        for engine in list(self._comms):
            self.forget(engine)


def names_of(prepared: Prepared) -> tuple[int, Names]:
    """Return the number of a plan and the names of its streams and tasks."""
    signature, program = prepared.signature, prepared.program
    streams = tuple(stream.name for stream in program.streams)
    names = Names(signature.collective, signature.nbytes, streams, program.tasks)
    return prepared.number, names
