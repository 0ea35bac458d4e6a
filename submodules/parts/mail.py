"""Messages that carry parts of a task's data, and the requests that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from han.model.program import Ref
from han.tasks.context import Context

MOST = 1 << 30  # bytes of a message, so that MPI's counts stay below 2^31
Start = Callable[[Ref, int, int, int], None]  # a stream's method that starts a message


def misfit(element: int) -> str | None:
    """Return why elements of so many bytes cannot be sent, or None."""
    if element <= MOST:
        return None
    return f"elements of {element} bytes do not fit into a message of {MOST} bytes"


@dataclass(slots=True)
class Transfer:
    """Messages of `step` bytes that carry the bytes [start, stop) of the message at `place`.

    The first `done` of their requests are complete.
    """

    place: Ref
    start: int
    stop: int
    step: int
    requests: list[int]
    done: int = 0

    def overlaps(self, start: int, stop: int) -> bool:
        """Return whether it carries some of the bytes [start, stop)."""
        return start < self.stop and self.start < stop


class Mail:
    """Sends and receives of a context's stream, in messages of whole grains.

    A request that is complete serves a later message.
    """

    def __init__(self, context: Context) -> None:
        self.stream, self.ranks, self.grain = context.stream, context.group.ranks, context.grain
        self._new, self._free = context.builder.request, list[int]()

    def start_over(self) -> None:
        """Use requests from the first one on again; all messages are complete."""
        self._free.sort(reverse=True)

    def receive(self, place: Ref, start: int, stop: int, member: int, most: int) -> Transfer:
        """Start receiving bytes [start, stop) from a member, in messages of at most `most` bytes.

        No bytes are one message. A message has one grain at least.
        """
        return self._start(self.stream.irecv, place, start, stop, member, most)

    def send(self, place: Ref, start: int, stop: int, member: int, most: int) -> Transfer:
        """Start sending bytes [start, stop) to a member, in messages of at most `most` bytes."""
        return self._start(self.stream.isend, place, start, stop, member, most)

    def _start(
        self, start_message: Start, place: Ref, start: int, stop: int, member: int, most: int
    ) -> Transfer:
        step, rank = max(1, most // self.grain) * self.grain, self.ranks[member]
        found = Transfer(place, start, stop, step, [])
        for at in range(start, stop, step) or (start,):
            request = self._free.pop() if self._free else self._new()
            start_message(place.to(at), step if at + step < stop else stop - at, rank, request)
            found.requests.append(request)
        return found

    def complete(self, transfer: Transfer, until: int | None = None) -> None:
        """Wait for the messages that begin before byte `until`, or for all."""
        requests = transfer.requests[transfer.done :] if transfer.done else transfer.requests
        if until is not None and until < transfer.stop:
            number = -((transfer.start - until) // transfer.step)
            requests = requests[: max(0, number - transfer.done)]
        for request in requests:
            self.stream.test(request)
        self._free += requests
        transfer.done += len(requests)

    def complete_all(self, transfers: Iterable[Transfer]) -> None:
        """Wait for all messages of some transfers."""
        for transfer in transfers:
            self.complete(transfer)
