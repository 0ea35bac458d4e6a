"""Messages that carry parts of a task's data, and the requests that they use."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from han.model.program import Ref
from han.tasks.context import Context


@dataclass
class Transfer:
    """Messages with the message's bytes [start, stop), at `place`; `waiting`: where each begins."""

    place: Ref
    start: int
    stop: int
    waiting: deque[tuple[int, int]] = field(default_factory=deque)

    def overlaps(self, start: int, stop: int) -> bool:
        """Return whether it carries some of the bytes [start, stop)."""
        return start < self.stop and self.start < stop


class Mail:
    """Sends and receives of one stream, in messages of at most `most` bytes."""

    def __init__(self, context: Context) -> None:
        self.stream, self.builder = context.stream, context.builder
        self.ranks, self.grain = context.group.ranks, context.grain
        self.free: list[int] = []

    def receive(self, place: Ref, start: int, stop: int, member: int, most: int) -> Transfer:
        """Start receiving bytes [start, stop) of the message from a member."""
        found = Transfer(place, start, stop)
        for at, nbytes in self._cut(start, stop, most):
            request = self._request()
            self.stream.irecv(place.to(at), nbytes, self.ranks[member], request)
            found.waiting.append((at, request))
        return found

    def send(self, place: Ref, start: int, stop: int, member: int, most: int) -> Transfer:
        """Start sending bytes [start, stop) of the message to a member."""
        found = Transfer(place, start, stop)
        for at, nbytes in self._cut(start, stop, most):
            request = self._request()
            self.stream.isend(place.to(at), nbytes, self.ranks[member], request)
            found.waiting.append((at, request))
        return found

    def complete(self, transfer: Transfer, until: int | None = None) -> None:
        """Wait for the messages that begin before byte `until`, or for all."""
        while transfer.waiting and (until is None or transfer.waiting[0][0] < until):
            _, request = transfer.waiting.popleft()
            self.stream.test(request)
            self.free.append(request)

    def _request(self) -> int:
        return self.free.pop() if self.free else self.builder.request()

    def _cut(self, start: int, stop: int, most: int) -> list[tuple[int, int]]:
        """Return where messages begin, and their sizes; no bytes are one message."""
        step = max(1, most // self.grain) * self.grain
        return [(a, min(step, stop - a)) for a in range(start, stop, step)] or [(start, 0)]
