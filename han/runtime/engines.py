"""The engines of one communicator: its own one, and one for each persistent request."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from han import _native
from han.memory.channel import Channel
from han.message.message import Message
from han.message.reader import READER
from han.model.collectives import ROWS
from han.model.program import EPOCH_TAGS, MAX_STREAMS
from han.ranks.health import Health
from han.ranks.notices import Departure
from han.runtime.base_request import library
from han.runtime.eager import Eager
from han.runtime.native_plans import empty_plan
from han.runtime.reports import Reporter, reporter
from han.runtime.request import Request
from han.runtime.resting import do_all
from han.runtime.waiting import Waiting
from han.tasks.signature import Signature
from han.trace.recording import Recorder

ENGINE_TAGS = (MAX_STREAMS + 1) * EPOCH_TAGS  # the last for ranks that agree on a trial


class Engines:
    """Makes engines, and stops or fails all of them.

    `own` runs blocking and nonblocking calls. `calls` is the look-up in C that finds the plans of
    calls. `eager` are the blocks of calls of objects.
    """

    own: _native.Engine
    calls: _native.Calls[Request]
    eager: Eager

    def __init__(self, health: Health, waiting: Waiting, recorder: Recorder) -> None:
        self.health, self.waiting, self._recorder = health, waiting, recorder
        self._live: weakref.WeakSet[_native.Engine] = weakref.WeakSet()
        self._guard = threading.RLock()  # another thread may receive messages about these engines
        self._made = health.notices.token  # so that tags differ from those of freed communicators
        self._channels: list[Channel] = []
        self._empty: _native.Plan | None = None
        self._drained = 0  # runs of the own engine when all had finished last

    def open(self, channels: list[Channel], bounds: tuple[int, ...]) -> None:
        """Make the communicator's own engine; `bounds` are those of classes. Not collective."""
        self._channels = channels
        self.own, health = self.make(channels), self.health
        self.calls = _native.Calls(self.own, READER, Request, health.rank, health.size, bounds)
        self.eager = reporter(self.own).eager = Eager(self.health.size)

    def remember(self, found: Any, message: Message, sized: Signature) -> None:
        """Let the look-up in C find what serves a class of sizes; `message` is one of its calls."""
        signature, bound = message.signature, sized.bound
        if message.key is None or (signature.uneven and not bound):
            return  # a plan for blocks that differ may serve these sizes only
        code = ROWS[signature.collective].code
        way = signature.root or int(signature.in_place)  # no call has both
        op = message.op if signature.reduces else None
        key = message.key._replace(nbytes=bound or message.key.nbytes)
        self.calls.add(found, code, way, op, key, signature.uneven)

    def make(self, channels: list[Channel]) -> _native.Engine:
        """Make an engine over some channels."""
        notices, own = self.health.notices, self.health.meeting.own
        tags = notices.mail.tag // ENGINE_TAGS - 1
        base = (self._made % tags + 1) * ENGINE_TAGS
        number = self._made - notices.token
        self._made += 1
        report = Reporter(weakref.ref(self.health), channels, number, self.waiting.timeout)
        engine = _native.Engine(
            mpi=library(notices.mail.tag),
            comm=notices.mail.comm.handle,
            channels=tuple(channel.spec() for channel in channels),
            tag_base=base,
            wait=self.waiting,
            on_error=report,
        )
        if own is not None:
            engine.messages = own.handle
        report.engine = weakref.ref(engine)
        with self._guard:
            self._live.add(engine)
        self._recorder.attach(engine, number)
        return engine

    def let_talk(self) -> None:
        """Let runs send messages; the first call is collective: it makes han's own communicator."""
        meeting = self.health.meeting
        if meeting.own is None:
            handle = meeting.messages().handle
            for engine in self:
                engine.messages = handle

    def __iter__(self) -> Iterator[_native.Engine]:
        """Iterate over the engines, also those that only a dropped request still refers to.

        The garbage collector clears weak references to an engine before it finds out that the
        request of a running collective must stay alive.
        """
        if self._made == self.health.notices.token + 1 and "own" in vars(self):
            return iter((self.own,))  # no other one was made
        dropped = {r._engine for r in _native.orphans() if r._engine is not None}
        mine = {e for e in dropped if reporter(e).health() is self.health}
        with self._guard:
            return iter({*self._live, *mine})

    def numbered(self) -> list[tuple[_native.Engine, int]]:
        """List the engines with their numbers, the same on all ranks; the own engine has 0."""
        return [(engine, reporter(engine).number) for engine in self]

    # ---- ranks that leave -------------------------------------------------------------------

    @property
    def room(self) -> int:
        """The bytes of this rank's rings that have memory."""
        channels = (channel for engine in self for channel in reporter(engine).channels)
        return sum(channel.room for channel in channels)

    def departures(self) -> list[Departure]:
        """Return which ranks that share memory with this one have left."""
        return [one for channel in self._channels for one in channel.departures()]

    def leave(self, why: Departure) -> None:
        """Tell the ranks that share memory with this one that it leaves."""
        for channel in self._channels:
            channel.tell_departure(why)
        for engine in self:
            engine.leave()

    def near(self) -> set[int]:
        """Return the ranks that share memory with this one."""
        return {rank for channel in self._channels for rank in channel.ranks}

    def finished(self) -> tuple[tuple[int, int], ...]:
        """Return (number, finished runs) of each engine that has finished any."""
        return tuple((number, engine.epoch) for engine, number in self.numbered() if engine.epoch)

    def outstanding(self) -> list[_native.Engine]:
        """Return the engines with runs that are not finished."""
        return [engine for engine in self if engine.issued > engine.epoch]

    def hold(self, gone: Iterable[Departure]) -> None:
        """Let runs that a rank has left out report a notice, whenever they are started."""
        for engine, number in self.numbered():
            left = [one.finished(number) for one in gone]
            first = [runs + 1 for runs in left if runs is not None]
            engine.held = min([*first, *([engine.held] if engine.held else [])], default=0)

    # ---- what errors do to them -------------------------------------------------------------

    def mark_error(self, call: int) -> None:
        """Store in the control records that `call` raised on this rank before data moved."""
        for channel in self._channels:
            channel.mark_error(call)

    def skip(self) -> None:
        """Start an empty plan in place of a call that raised."""
        Request(self.own, empty_plan(self.own, self.health.rank), 0, 0).Start()

    def fail(self) -> None:
        """Mark every engine as failed: later runs raise."""
        for engine in self:
            engine.fail()
        self.calls.clear()

    # ---- the end ----------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait until all runs that were started have finished.

        The own engine makes one more run, so that all ranks have counted the same runs; none if
        nothing was started since the last one.
        """
        for engine in self:
            started = engine.issued > (self._drained if engine is self.own else engine.epoch)
            if self.health.failed is None and started:
                engine.run(self._nothing(engine), 0, 0, None)
        self._drained = self.own.issued

    def _nothing(self, engine: _native.Engine) -> _native.Plan:
        """Return an empty plan; that of the own engine is kept for the next communicator."""
        if engine is not self.own:
            return empty_plan(engine, self.health.rank)
        if self._empty is None:
            self._empty = empty_plan(engine, self.health.rank)
        return self._empty

    def stop(self) -> None:
        """Stop every engine and unmap its channels."""
        self.calls.clear()
        self._empty = None
        for engine in self:
            do_all([engine.stop, reporter(engine).close])
        _native.orphans()  # releases requests that have finished
