"""Persistent requests: each has an engine and channels of its own, to be live beside others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from han.memory.channel import Channel, open_channels
from han.memory.windows import ARENA, ELSEWHERE
from han.message.message import Message
from han.model.channel_layout import PAGE
from han.runtime.request import Request

if TYPE_CHECKING:
    from han.runtime.state import State

RING = 2 << 20  # bytes of a rank's ring at most, as many as a communicator's


def make(state: State, message: Message) -> Request:
    """Make a request of a call that all ranks agree on; collective."""
    message = mapped(state, message)
    memory = _memory(state, message.signature.shown(state.size))
    channels = open_channels(state.meeting, state.topology, memory, state.naps)
    engine = state.engine_on(channels)
    prepared = state.plans.make(message, engine, memory, own_scratch=True)
    mapping = message.mapping
    checks = message.begin or (mapping and mapping.windows)
    request = Request(
        engine, prepared.native, message.send, message.recv, (*message.keep, mapping),
        _begin(state, message) if checks else None, message.end, True,
    )  # fmt: skip
    request.closing = _close(state, engine, channels)
    return request


def mapped(state: State, message: Message) -> Message:
    """Say of a message whose buffers all are where others can map them that they are mapped.

    What is in a window of MPI's is used where han has mapped it, also if other buffers are not.
    """
    spots, windows = message.spots, state.windows
    used = {spot.window for pair in spots for spot in pair}
    all_there = bool(used) and ELSEWHERE not in used
    arenas = state.arenas() if all_there and ARENA in used else None
    readable = all_there and not (arenas and arenas.refused)
    if not readable and max(used, default=ARENA) <= ARENA:
        return message
    send, recv = spots[state.rank]
    return replace(
        message,
        signature=replace(message.signature, mapped=readable),
        send=windows.moved(message.send, send),
        recv=windows.moved(message.recv, recv),
        mapping=windows.mapping(spots, arenas) if readable else windows.held(spots),
    )


def _memory(state: State, nbytes: int) -> int:
    """What channels of one plan need, if any cells."""
    each = 0 if nbytes <= PAGE else min(RING, 8 * nbytes)
    most: int = state.config.memory
    return min(most, state.size * each)


def _begin(state: State, message: Message) -> Callable[[], None]:
    """What a start does first: whatever of it fails, all ranks hear of."""

    def begin() -> None:
        if message.mapping is not None:
            message.mapping.check()
        if message.begin is not None:
            with state.together("the start of a persistent request"):
                message.begin()

    return begin


def _close(state: State, engine: Any, channels: list[Channel]) -> Callable[[], None]:
    def close() -> None:
        state.tracing.recorder.settle(engine)
        engine.stop()
        state.plans.forget(engine)
        for channel in channels:
            channel.close()

    return close
