"""Persistent requests. Each has its own engine and channels, so several may be active at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from han import _native
from han.memory.channel import Channel
from han.memory.mapping import Mapping
from han.memory.shared import SharedMemory
from han.memory.windows import ARENA, ELSEWHERE, Spots
from han.message.message import Message
from han.model.channel_layout import PAGE
from han.ranks.health import Health
from han.runtime.binder import Binder
from han.runtime.engines import Engines
from han.runtime.programs import Programs
from han.runtime.request import Prequest, Request
from han.runtime.stored_plans import Call
from han.trace.recorder import Recorder

RING = 2 << 20  # bytes of a rank's ring at most; the same as in a communicator's channels


@dataclass(frozen=True)
class Persistent:
    """Makes the persistent requests of a communicator."""

    health: Health
    engines: Engines
    shared: SharedMemory
    binder: Binder
    programs: Programs
    recorder: Recorder

    def request(self, message: Message, spots: Sequence[Spots]) -> Request | None:
        """Make a request for a call on which all ranks agree; collective.

        `spots` are the locations of all ranks' buffers. Returns None if the call is left to the
        MPI library.
        """
        planner = self.programs.planner
        with self.health.together("the making of a persistent request"):
            if planner.leaves(message.signature):
                return None
            message, mapping = self._mapped(message, spots)
            memory = self._memory(message.signature.shown(self.health.size))
            planned = planner.persistent(message.signature, memory)
            channels = self.shared.more_channels(memory)
            engine = self.engines.make(channels)
            call = Call(message.signature, memory, blocking=False)
            program = self.programs.get(call, lambda: planned.plan)
            prepared = self.binder.bind(program, message, engine, mapping=mapping, own_scratch=True)
            checks = message.begin or (mapping and mapping.windows)
            request = Prequest(
                engine, prepared.native, message.send, message.recv, (*message.keep, mapping),
                self._begin(message, mapping) if checks else None, message.end, True,
            )  # fmt: skip
            request.closing = self._close(engine, channels)
            return request

    def _mapped(self, message: Message, spots: Sequence[Spots]) -> tuple[Message, Mapping | None]:
        """Mark a message as mapped if peers can map the buffers of all ranks.

        A buffer in an attached window is always accessed through han's own mapping of the window,
        even if buffers of other ranks cannot be mapped.
        """
        windows = self.shared.windows
        used = {spot.window for pair in spots for spot in pair}
        all_there = bool(used) and ELSEWHERE not in used
        arenas = self.shared.arenas() if all_there and ARENA in used else None
        readable = all_there and not (arenas and arenas.refused)
        if not readable and max(used, default=ARENA) <= ARENA:
            return message, None
        send, recv = spots[self.health.rank]
        message = replace(
            message,
            signature=replace(message.signature, mapped=readable),
            send=windows.moved(message.send, send),
            recv=windows.moved(message.recv, recv),
        )
        return message, windows.mapping(spots, arenas) if readable else windows.held(spots)

    def _memory(self, nbytes: int) -> int:
        """Return the bytes for cells that the channels of one plan need; 0 if it needs no cells."""
        each = 0 if nbytes <= PAGE else min(RING, 8 * nbytes)
        return min(self.programs.planner.config.memory, self.health.size * each)

    def _begin(self, message: Message, mapping: Mapping | None) -> Callable[[], None]:
        """Return what a start does first; an error in packing revokes the communicator."""

        def begin() -> None:
            if mapping is not None:
                mapping.check()
            if message.begin is not None:
                with self.health.together("the start of a persistent request"):
                    message.begin()

        return begin

    def _close(self, engine: _native.Engine, channels: list[Channel]) -> Callable[[], None]:
        def close() -> None:
            self.recorder.settle(engine)
            engine.stop()
            self.binder.forget(engine)
            for channel in channels:
                channel.close()

        return close
