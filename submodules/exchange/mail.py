"""Messages that carry parts of a task's data, and the requests that they use."""

from __future__ import annotations

from dataclasses import dataclass

from han.model.program import Ref
from han.tasks.context import Context


@dataclass
class Transfer:
    """Messages of `step` bytes each with the message's bytes [start, stop), at `place`.

    The first `done` of their `requests` are complete.
    """

    place: Ref
    start: int
    stop: int
    step: int
    requests: tuple[int, ...]
    done: int = 0

    def overlaps(self, start: int, stop: int) -> bool:
        """Return whether it carries some of the bytes [start, stop)."""
        return start < self.stop and self.start < stop

    def before(self, until: int) -> int:
        """Return how many messages begin before byte `until`."""
        return min(len(self.requests), -((self.start - until) // self.step))


class Mail:
    """Sends and receives of one stream, in messages of at most `most` bytes."""

    def __init__(self, context: Context) -> None:
        self.stream, self.builder = context.stream, context.builder
        self.ranks, self.grain = context.group.ranks, context.grain
        self.free: list[int] = []

    def receive(self, place: Ref, start: int, stop: int, member: int, most: int) -> Transfer:
        """Start receiving bytes [start, stop) of the message from a member."""
        found = self._cut(place, start, stop, most)
        rank = self.ranks[member]
        self.stream.receive_each(place, start, stop, found.step, rank, found.requests)
        return found

    def send(self, place: Ref, start: int, stop: int, member: int, most: int) -> Transfer:
        """Start sending bytes [start, stop) of the message to a member."""
        found = self._cut(place, start, stop, most)
        self.stream.send_each(place, start, stop, found.step, self.ranks[member], found.requests)
        return found

    def complete(self, transfer: Transfer, until: int | None = None) -> None:
        """Wait for the messages that begin before byte `until`, or for all."""
        done, number = transfer.done, len(transfer.requests)
        if until is not None:
            number = transfer.before(until)
        if number > done:
            requests = transfer.requests[done:number]
            self.stream.test_each(requests)
            self.free += requests
            transfer.done = number

    def _cut(self, place: Ref, start: int, stop: int, most: int) -> Transfer:
        """Cut bytes into messages, and take a request for each; no bytes are one message."""
        step = max(1, most // self.grain) * self.grain
        number, free = max(1, -((start - stop) // step)), self.free
        requests = [free.pop() if free else self.builder.request() for _ in range(number)]
        return Transfer(place, start, stop, step, tuple(requests))
