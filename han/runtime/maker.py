"""The maker: what was planned for a call becomes native plans."""

from __future__ import annotations

from dataclasses import replace

from han import _native
from han.memory.mapping import Mapping
from han.memory.shared import SharedMemory
from han.message.message import Message
from han.runtime.binder import Binder
from han.runtime.engines import Engines
from han.runtime.prepared import Prepared
from han.runtime.programs import Programs
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.planner import Planned


class Maker:
    """Makes the native plans of blocking, nonblocking and persistent calls; it keeps none.

    All plans that a call may run take the same part of the rings.
    """

    def __init__(
        self, programs: Programs, binder: Binder, shared: SharedMemory, engines: Engines
    ) -> None:
        self.programs, self.binder = programs, binder
        self._shared, self._engines = shared, engines

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

        `mapping` and `known_as` are those of :meth:`Binder.bind`.
        """
        if planned.talks:
            self._engines.let_talk()
        program = self.programs.of(planned.plan)
        for other in planned.others:
            program = program.reaching(other.footprint())
        prepared = self.binder.bind(
            program,
            replace(message, signature=planned.signature),
            engine,
            planned if planned.others else None,
            mapping=mapping,
            own_scratch=self._alone(engine),
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
        program = replace(self.programs.of(plan), footprint=prepared.program.footprint)
        message = replace(message, signature=plan.signature)
        return self.binder.bind(
            program, message, engine, is_rival=is_rival, own_scratch=self._alone(engine)
        ).native

    def _alone(self, engine: _native.Engine) -> bool:
        """Whether runs of an engine may overlap those of the communicator's own one."""
        return engine is not self._engines.own
