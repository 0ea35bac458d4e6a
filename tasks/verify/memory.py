"""Memory as the verifier sees it: for every byte, what it is, who wrote it and who reads it.

What bytes are is an expression over the ranks' contributions (leaves) and the operator, kept with
the distance from the byte's address to its place in the message. Accesses know what has happened
before them: a read must come after the write of what it reads, a write after all reads and writes
of what was there, whatever the interleaving.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

Content = tuple[int, int]  # expression, and the place in the message less the address
Span = tuple[int, int, Content]  # start, stop: what these bytes are
NOBODY = -1


@dataclass
class Expressions:
    """Combinations of contributions; equal ones have equal numbers. The first are the leaves."""

    size: int
    pairs: list[tuple[int, int]] = field(default_factory=list)
    known: dict[tuple[int, int], int] = field(default_factory=dict)
    flat: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def combine(self, a: int, b: int) -> int:
        """Return the number of ``a op b``."""
        number = self.known.setdefault((a, b), self.size + len(self.pairs))
        if number == self.size + len(self.pairs):
            self.pairs.append((a, b))
        return number

    def ranks(self, number: int) -> tuple[int, ...]:
        """The contributions in the order of the operands."""
        if number not in self.flat:
            self.flat[number] = tuple(self._leaves(number))
        return self.flat[number]

    def _leaves(self, number: int) -> Iterable[int]:
        left = [number]  # what is still to be spelt, the next one last: trees may be deep
        while left:
            number = left.pop()
            if number < self.size:
                yield number
            else:
                left += reversed(self.pairs[number - self.size])


class Access(Protocol):
    """Who accesses: an event of a chain."""

    chain: int
    event: int

    def after(self, chain: int, event: int) -> bool:
        """Whether that has happened before, however things are interleaved."""

    def problem(self, found: str, other: int, wanted: str) -> Exception:
        """Say what is wrong; `other` is the event that it is wrong with, or -1."""


class Segment:
    """Neighbouring bytes that have had the same fate."""

    __slots__ = ("chain", "content", "flying", "lent", "readers", "writer")

    def __init__(self, content: Content | None, chain: int = NOBODY, writer: int = NOBODY) -> None:
        self.content = content  # None: never written
        self.chain, self.writer = chain, writer  # the event that wrote it, and its chain
        self.readers: dict[int, int] = {}  # chain: the last event that read it
        self.lent: tuple[int, ...] = ()  # sends under way that read it
        self.flying = NOBODY  # the receive under way that will write it

    def copy(self) -> Segment:
        """Return the other half of a segment that is cut."""
        other = Segment(self.content, self.chain, self.writer)
        other.readers, other.lent, other.flying = dict(self.readers), self.lent, self.flying
        return other


class Memory:
    """One rank's buffer, or an area of a channel."""

    __slots__ = ("segments", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = [0]
        self.segments: list[Segment] = [Segment(None)]

    def fill(self, start: int, stop: int, content: Content) -> None:
        """Say what bytes are from the beginning."""
        for k in self._range(start, stop):
            self.segments[k].content = content

    def _cut(self, at: int) -> int:
        """Let a segment begin at `at`; return its index."""
        starts = self.starts
        index = bisect_left(starts, at)
        if index == len(starts) or starts[index] != at:
            starts.insert(index, at)
            self.segments.insert(index, self.segments[index - 1].copy())
        return index

    def _range(self, start: int, stop: int) -> range:
        """The segments that make up some bytes; most often these are all of one."""
        starts = self.starts
        first = bisect_left(starts, start)
        if first + 1 < len(starts) and starts[first] == start and starts[first + 1] == stop:
            return range(first, first + 1)
        return range(self._cut(start), self._cut(stop))

    def read(self, start: int, stop: int, access: Access) -> list[Span]:
        """Return what the bytes are, relative to `start`."""
        found: list[Span] = []
        starts, segments, chain = self.starts, self.segments, access.chain
        for k in self._range(start, stop):
            segment = segments[k]
            content, writer = segment.content, segment.chain
            if content is None or segment.flying >= 0:
                raise self._unreadable(k, access)
            if writer >= 0 and writer != chain and not access.after(writer, segment.writer):
                found_ = f"byte {starts[k]} not ordered after its write"
                raise access.problem(found_, segment.writer, "a wait for it")
            segment.readers[chain] = access.event
            span = starts[k] - start, starts[k + 1] - start, (content[0], content[1] + start)
            found.append(span)
        return found

    def _unreadable(self, k: int, access: Access) -> Exception:
        at, segment = self.starts[k], self.segments[k]
        if segment.flying >= 0:
            return access.problem(f"byte {at} in flight", segment.flying, "a message that is here")
        return access.problem(f"byte {at} never written", NOBODY, "data")

    def write(self, start: int, spans: list[Span], access: Access) -> None:
        """Fill bytes from `start` on with `spans`, which are relative to it and without gaps."""
        if spans:
            where = self._range(start, start + spans[-1][1])
            for k in where:
                self._check_write(k, access)
            self._replace(where, start, spans, access)

    def _replace(self, where: range, start: int, spans: list[Span], access: Access) -> None:
        chain, event = access.chain, access.event
        if len(where) == len(spans) == 1:
            ((_, _, (number, delta)),) = spans
            self.segments[where.start] = Segment((number, delta - start), chain, event)
            return
        self.starts[where.start : where.stop] = [start + span[0] for span in spans]
        self.segments[where.start : where.stop] = [
            Segment((number, delta - start), chain, event) for _, _, (number, delta) in spans
        ]

    def _check_write(self, k: int, access: Access) -> None:
        segment = self.segments[k]
        if segment.flying >= 0 or segment.lent:
            raise self._in_use(k, access)
        if segment.writer >= 0 and not access.after(segment.chain, segment.writer):
            found = f"byte {self.starts[k]} not ordered after an earlier write"
            raise access.problem(found, segment.writer, "order")
        for chain, event in segment.readers.items():
            if not access.after(chain, event):
                found = f"byte {self.starts[k]} overwritten before a reader is done"
                raise access.problem(found, event, "a wait for it")

    def _in_use(self, k: int, access: Access) -> Exception:
        at, segment = self.starts[k], self.segments[k]
        if segment.flying >= 0:
            return access.problem(f"byte {at} in flight", segment.flying, "memory that is free")
        return access.problem(f"byte {at} still being sent", segment.lent[0], "a TEST of that")

    def lend(self, start: int, stop: int, access: Access) -> list[Span]:
        """Let a message read bytes until :meth:`give_back`; return what they are."""
        spans = self.read(start, stop, access)
        for k in self._range(start, stop):
            self.segments[k].lent = (*self.segments[k].lent, access.event)
        return spans

    def give_back(self, start: int, stop: int, by: int, access: Access) -> None:
        """End what the event `by` began with :meth:`lend`."""
        for k in self._range(start, stop):
            segment = self.segments[k]
            segment.lent = tuple(e for e in segment.lent if e != by)
            segment.readers[access.chain] = access.event

    def await_(self, start: int, stop: int, access: Access) -> None:
        """Let a message write bytes until :meth:`arrive`; nobody may touch them."""
        for k in self._range(start, stop):
            self._check_write(k, access)
            self.segments[k].flying = access.event

    def arrive(self, start: int, spans: list[Span], access: Access) -> None:
        """End what :meth:`await_` began: the bytes are there."""
        if spans:
            self._replace(self._range(start, start + spans[-1][1]), start, spans, access)

    def abandon(self, access: Access) -> None:
        """Give the memory back to its owner: nobody may still be reading or writing it."""
        for at, segment in zip(self.starts, self.segments, strict=True):
            if segment.writer >= 0 and not access.after(segment.chain, segment.writer):
                found = f"byte {at} given back before a writer is done"
                raise access.problem(found, segment.writer, "a wait for it")
            for chain, event in segment.readers.items():
                if not access.after(chain, event):
                    found = f"byte {at} given back before a reader is done"
                    raise access.problem(found, event, "a wait for it")


def combine(a: list[Span], b: list[Span], expressions: Expressions, access: Access) -> list[Span]:
    """Combine two operands byte by byte; they must be the same bytes of the message."""
    cuts = [s[0] for s in a]
    if len(b) > 1:
        cuts = sorted({*cuts, *(s[0] for s in b)})
    cuts.append(a[-1][1])
    found: list[Span] = []
    left = right = 0
    for start, stop in itertools.pairwise(cuts):
        left += a[left][1] <= start
        right += b[right][1] <= start
        (x, dx), (y, dy) = a[left][2], b[right][2]
        if dx != dy:
            raise access.problem(
                f"byte {start + dx} of the message combined with byte {start + dy}", NOBODY,
                "the same byte",
            )  # fmt: skip
        found.append((start, stop, (expressions.combine(x, y), dx)))
    return merged(found)


def merged(spans: list[Span]) -> list[Span]:
    """Join neighbours that are alike."""
    if len(spans) == 1:
        return spans
    found: list[Span] = []
    for start, stop, content in spans:
        if found and found[-1][2] == content:
            found[-1] = found[-1][0], stop, content
        else:
            found.append((start, stop, content))
    return found
