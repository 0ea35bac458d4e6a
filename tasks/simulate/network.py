"""Messages in virtual time, by the max-rate model: latency, bandwidth of a pair, adapters."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from han.config.machine import Link, MachineModel
from han.model.rails import local_ranks, rail_of

NEVER = float("inf")


class Message:
    """A message between two ranks; times are NEVER until known.

    It reaches the adapter of its receiver at `due`, and the receiver at `arrival`.
    """

    __slots__ = ("arrival", "dst", "due", "gone", "link", "nbytes", "posted", "sent", "src")

    def __init__(self, src: int, dst: int, link: Link) -> None:
        self.src, self.dst, self.link = src, dst, link
        self.nbytes = 0
        self.sent = self.posted = self.due = self.arrival = self.gone = NEVER


@dataclass
class Adapter:
    """One direction of a node's adapter: a queue that takes `rate` bytes a second.

    After a pause it takes up to `burst` bytes at once: a token bucket, which is empty at first.
    """

    rate: float
    burst: float
    free: float = 0.0
    tokens: float = 0.0
    counted: float = 0.0

    def take(self, at: float, nbytes: int) -> tuple[float, float]:
        """Queue `nbytes` at a time; return when the first and the last byte have passed."""
        start = max(at, self.free)
        if self.burst:
            self.tokens = min(self.burst, self.tokens + (start - self.counted) * self.rate)
            wait = max(0.0, nbytes - self.tokens) / self.rate
            self.tokens = self.tokens + wait * self.rate - nbytes
            self.counted = self.free = start + wait
        else:
            self.free = start + nbytes / self.rate
        return start, self.free


class Network:
    """The ranks' places in the machine, and the messages between them."""

    def __init__(self, machine: MachineModel, place: Sequence[Sequence[int]]) -> None:
        self.machine, self.place = machine, place
        node, size = machine.node, len(place[0])
        self.node_of = list(place[machine.node_level])
        nodes = max(self.node_of) + 1
        self.out, self.into = (
            [[Adapter(node.injection, node.burst) for _ in range(node.rails)] for _ in range(nodes)]
            for _ in range(2)
        )
        self.rail = [rail_of(local, node.rails) for local in local_ranks(self.node_of)]
        self.line = [0.0] * size  # until when a rank's messages occupy its bandwidth R_b
        self.queues: dict[tuple[int, int, int], tuple[deque[Message], deque[Message]]] = {}
        self.links: dict[tuple[int, int], Link] = {}
        # Between nodes: when a message is due, its number, and the least time of its arrival.
        self.coming: list[tuple[float, int, float, Message]] = []
        self.started = 0
        self.bytes = [0] * len(machine.levels)
        self.messages = [0] * len(machine.levels)

    def link(self, a: int, b: int) -> Link:
        """Return the innermost level that contains both ranks."""
        found = self.links.get((a, b))
        if found is None:
            found = self.links[a, b] = self.machine.levels[self.level(a, b)]
        return found

    def level(self, a: int, b: int) -> int:
        """Return the number of the innermost level that contains both ranks."""
        for k, domains in enumerate(self.place):
            if domains[a] == domains[b]:
                return k
        return len(self.place) - 1

    def send(self, now: float, src: int, dst: int, tag: int, nbytes: int) -> Message:
        """Start a send; a message that is not eager moves once its receive is posted."""
        message = self._meet(src, dst, tag, sending=True)
        message.nbytes, message.sent = nbytes, now
        level = self.level(src, dst)
        self.bytes[level] += nbytes
        self.messages[level] += 1
        eager = nbytes <= message.link.eager
        if eager:
            message.gone = now
        if eager or message.posted < NEVER:
            self._transfer(message, eager)
        return message

    def receive(self, now: float, src: int, dst: int, tag: int) -> Message:
        """Post a receive."""
        message = self._meet(src, dst, tag, sending=False)
        message.posted = now
        if message.sent < NEVER and message.due == NEVER:
            self._transfer(message, eager=False)
        return message

    def deliver(self, now: float) -> list[Message]:
        """Let adapters take the messages that are due, the earliest first; return these."""
        found = []
        while self.coming and self.coming[0][0] <= now:
            due, _, least, message = heappop(self.coming)
            dst = message.dst
            adapter = self.into[self.node_of[dst]][self.rail[dst]]
            message.arrival = max(least, adapter.take(due, message.nbytes)[1])
            found.append(message)
        return found

    def _meet(self, src: int, dst: int, tag: int, sending: bool) -> Message:
        """Match sends and receives of one (sender, receiver, tag) in order; return the message."""
        key = (src, dst, tag)
        queues = self.queues.get(key)
        if queues is None:
            queues = self.queues[key] = (deque(), deque())
        mine, others = queues if sending else (queues[1], queues[0])
        if others:
            return others.popleft()
        message = Message(src, dst, self.link(src, dst))
        mine.append(message)
        return message

    def _transfer(self, message: Message, eager: bool) -> None:
        link, nbytes, src, dst = message.link, message.nbytes, message.src, message.dst
        start = message.sent
        if not eager:  # rendezvous: the sender asks, the receiver answers
            start = max(message.sent + link.latency, message.posted) + link.latency
        start = max(start, self.line[src])
        self.line[src] = last = start + nbytes / link.bandwidth
        a, b = self.node_of[src], self.node_of[dst]
        if a == b:
            message.due = message.arrival = last + link.latency
        else:
            first, through = self.out[a][self.rail[src]].take(start, nbytes)
            last = max(last, through)
            message.due = first + link.latency
            self.started += 1
            heappush(self.coming, (message.due, self.started, last + link.latency, message))
        message.gone = min(message.gone, last)
