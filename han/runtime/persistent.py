"""Persistent requests. Each has its own engine and channels, so several may be active at once.

Engine and channels make up a slot. A request that is freed leaves its slot to later ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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
LEFT = 16  # slots without a request that a rank keeps, with at most the memory of a communicator


class Slot(NamedTuple):
    """An engine and its channels, which hold about `memory` bytes; `number` is the engine's."""

    number: int
    memory: int
    engine: _native.Engine
    channels: list[Channel]


@dataclass(frozen=True)
class Persistent:
    """Makes the persistent requests of a communicator. `left` are the slots without a request."""

    health: Health
    engines: Engines
    shared: SharedMemory
    binder: Binder
    programs: Programs
    recorder: Recorder
    left: OrderedDict[int, Slot] = field(default_factory=OrderedDict)  # by number, oldest first

    def request(
        self, message: Message, spots: Sequence[Spots], slots: Iterable[int]
    ) -> Request | None:
        """Make a request for a call on which all ranks agree; collective.

        `spots` are the locations of all ranks' buffers, `slots` the numbers of those that all ranks
        have left. Returns None if the call is left to the MPI library.
        """
        planner = self.programs.planner
        with self.health.together("the making of a persistent request"):
            if planner.leaves(message.signature):
                return None
            message, mapping = self._mapped(message, spots)
            nbytes, sized = message.signature.nbytes, planner.sized(message.signature)
            slot = self._slot(self._memory(sized.shown(self.health.size)), slots)
            engine, call = slot.engine, Call(sized, slot.memory, blocking=False)
            signature = message.signature
            planned = planner.persistent(signature, slot.memory)
            if planned.talks:
                self.engines.let_talk()
            program = self.programs.kept(call, lambda: planned.plan)
            message = replace(message, signature=sized)
            prepared = self.binder.bind(program, message, engine, mapping=mapping, own_scratch=True)
            checks = message.begin or (mapping and mapping.windows)
            request = Prequest(
                engine, prepared.native, message.send, message.recv, (*message.keep, mapping),
                self._begin(message, mapping) if checks else None, message.end, True, nbytes,
            )  # fmt: skip
            request.closing = lambda: self._leave(slot)
            return request

    def _slot(self, memory: int, left: Iterable[int]) -> Slot:
        """Take the smallest slot that all ranks have left, or make one; collective."""
        fit = [self.left[k] for k in left if self.left[k].memory >= memory]
        taken = min(fit, key=lambda slot: (slot.memory, slot.number), default=None)
        if taken is not None:
            del self.left[taken.number]
        self._close_oldest()
        if taken is not None:
            return taken
        channels = self.shared.more_channels(memory)
        engine = self.engines.make(channels)
        return Slot(self.engines.number(engine), memory, engine, channels)

    def _leave(self, slot: Slot) -> None:
        """Keep the slot of a request that was freed, also while ranks agree on slots."""
        if self.health.failed is not None:
            self._close(slot)
        else:
            self.left[slot.number] = slot

    def _close_oldest(self) -> None:
        """Close slots until the others are few and have little memory."""
        most = self.programs.planner.config.memory
        while len(self.left) > LEFT or sum(slot.memory for slot in self.left.values()) > most:
            self._close(self.left.popitem(last=False)[1])

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

    def _close(self, slot: Slot) -> None:
        self.recorder.settle(slot.engine)
        slot.engine.stop()
        self.binder.forget(slot.engine)
        for channel in slot.channels:
            channel.close()
