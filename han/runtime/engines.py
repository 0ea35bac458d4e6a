"""The engines of one communicator: its own, and one for each persistent request."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from mpi4py import MPI

from han import _native
from han.memory.channel import Channel
from han.model.program import EPOCH_TAGS, MAX_STREAMS
from han.ranks.health import Health
from han.ranks.notices import tag_limit
from han.runtime.native_plans import empty_plan
from han.runtime.reports import Reporter, reporter
from han.runtime.request import Request
from han.runtime.waiting import Waiting
from han.trace.recorder import Recorder

ENGINE_TAGS = MAX_STREAMS * EPOCH_TAGS


class Engines:
    """Makes engines, and stops or fails all of them.

    `own` runs blocking and nonblocking calls; `calls` is its look-up of plain arrays in C.
    """

    own: _native.Engine
    calls: _native.Calls[Request]

    def __init__(
        self, comm: MPI.Intracomm, health: Health, waiting: Waiting, recorder: Recorder
    ) -> None:
        self._comm, self._health = comm, health
        self._waiting, self._recorder = waiting, recorder
        self._live: weakref.WeakSet[_native.Engine] = weakref.WeakSet()
        self._made = health.notices.token  # so tags are not those of a freed communicator
        self._channels: list[Channel] = []

    def open(self, channels: list[Channel]) -> None:
        """Make the communicator's own engine; needs no other rank."""
        self._channels = channels
        self.own = self.make(channels)
        health = self._health
        self.calls = _native.Calls(self.own, MPI.IN_PLACE, Request, health.rank, health.size)
        health.engines = self

    def make(self, channels: list[Channel]) -> _native.Engine:
        """Make an engine over some channels."""
        tags = tag_limit(self._comm) // ENGINE_TAGS - 1
        base = (self._made % tags + 1) * ENGINE_TAGS
        notices = self._health.notices
        number = self._made - notices.token
        self._made += 1
        library = (
            MPI.__file__, int(MPI._sizeof(MPI.COMM_WORLD) > 4), MPI.ANY_SOURCE, notices.tag,
            int(MPI.IN_PLACE), MPI._handleof(MPI.BYTE),
        )  # fmt: skip
        told = Reporter(weakref.ref(self._health), channels, number, self._waiting.timeout)
        engine = _native.Engine(
            mpi=library,
            comm=MPI._handleof(self._comm),
            channels=tuple(channel.spec() for channel in channels),
            tag_base=base,
            wait=self._waiting,
            on_error=told,
        )
        told.engine = weakref.ref(engine)
        self._live.add(engine)
        self._recorder.attach(engine, number)
        return engine

    def __iter__(self) -> Iterator[_native.Engine]:
        """List the engines, also those that only a dropped request still holds.

        The garbage collector clears weak references before it finds out that a request lives on.
        """
        dropped = {r._engine for r in _native.orphans() if r._engine is not None}
        mine = {e for e in dropped if reporter(e).health() is self._health}
        return iter({*self._live, *mine})

    def numbered(self) -> list[tuple[_native.Engine, int]]:
        """List the engines with their numbers, alike on all ranks; 0 is the own one."""
        return [(engine, reporter(engine).number) for engine in self]

    # ---- what errors do to them -------------------------------------------------------------

    def mark_error(self, call: int) -> None:
        """Tell the ranks that share memory that `call` raised here before anything moved."""
        for channel in self._channels:
            channel.mark_error(call)

    def skip(self) -> None:
        """Start a call that moves nothing, in place of one that raised."""
        Request(self.own, empty_plan(self.own, self._health.rank), 0, 0).Start()

    def fail(self) -> None:
        """Let every engine raise from now on."""
        for engine in self:
            engine.fail()
        self.calls.clear()

    # ---- the end ----------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait for everything that was started."""
        for engine in self:
            if self._health.failed is None and engine.issued > engine.epoch:
                engine.run(empty_plan(engine, self._health.rank), 0, 0, None)

    def stop(self) -> None:
        """Stop every engine and unmap its channels."""
        self.calls.clear()
        for engine in self:
            engine.stop()
            reporter(engine).close()
        _native.orphans()  # forgets the requests that are finished
