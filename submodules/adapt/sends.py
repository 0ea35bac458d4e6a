"""Sends in flight."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from han.model.program import Ref
from han.submodules.measured import SEGMENT, WINDOW
from han.submodules.parts.pieces import Piece, cut, number
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.stream import Stream


def cut_for(context: Context) -> tuple[list[Piece], int, int]:
    """Return the pieces of the context's tasks, how many its stream has in all, and the window.

    So many pieces are under way between two ranks at most.
    """
    size, window = context.choice.get("segment", SEGMENT), context.choice.get("window", WINDOW)
    pieces = cut(context.tasks, size, context.grain)
    whole = context.builder.tasks_of(context.stream)
    return pieces, number(whole, size, context.grain), window


@dataclass
class Sends:
    """The sends in flight: at most `window` requests, completed in order."""

    stream: Stream
    window: int
    in_flight: deque[tuple[int, Task | None]] = field(default_factory=deque)
    free: list[int] = field(default_factory=list)

    def send(self, src: Ref, nbytes: int, rank: int, ends: Task | None = None) -> None:
        """Start a send, after completing the oldest one if `window` are in flight.

        The task `ends` ends when the send is complete.
        """
        if len(self.in_flight) >= self.window:
            self._complete_oldest()
        request = self.free.pop() if self.free else self.stream.builder.request()
        self.stream.isend(src, nbytes, rank, request)
        self.in_flight.append((request, ends))

    def _complete_oldest(self) -> None:
        request, ends = self.in_flight.popleft()
        self.stream.test(request)
        self.free.append(request)
        if ends is not None:
            self.stream.end(ends)

    def drain(self) -> None:
        """Complete all sends."""
        while self.in_flight:
            self._complete_oldest()
