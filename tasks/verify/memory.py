"""Memory as the verifier sees it: for every byte, what it is, who wrote it and who reads it.

What bytes are is an expression over the ranks' contributions (leaves) and the operator, kept with
the distance from the byte's address to its place in the message. Accesses carry vector clocks: a
read must come after the write of what it reads, a write after all reads and writes of what was
there, whatever the interleaving.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Clock = npt.NDArray[np.int32]
Content = tuple[int, int]  # expression, and the place in the message less the address
Span = tuple[int, int, Content]  # start, stop: what these bytes are
Problem = Callable[[str, int, str], Exception]  # (found, the other event or -1, expected)


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
        if number < self.size:
            return (number,)
        if number not in self.flat:
            a, b = self.pairs[number - self.size]
            self.flat[number] = self.ranks(a) + self.ranks(b)
        return self.flat[number]


class Segment:
    """Neighbouring bytes that have had the same fate."""

    __slots__ = ("content", "flying", "lent", "readers", "writer")

    def __init__(self) -> None:
        self.content: Content | None = None  # None: never written
        self.writer: tuple[int, int, int] | None = None  # chain, position, event
        self.readers: dict[int, tuple[int, int]] = {}  # chain: position, event
        self.lent: tuple[int, ...] = ()  # sends under way that read it
        self.flying: int = -1  # the receive under way that will write it

    def copy(self) -> Segment:
        """Return the other half of a segment that is cut."""
        other = Segment()
        other.content, other.writer = self.content, self.writer
        other.readers, other.lent, other.flying = dict(self.readers), self.lent, self.flying
        return other


@dataclass(frozen=True)
class Access:
    """Who accesses: an event with its place in its chain and its clock."""

    event: int
    chain: int
    position: int
    clock: Clock
    problem: Problem

    def after(self, chain: int, position: int) -> bool:
        """Whether that has happened before, however things are interleaved."""
        return bool(self.clock[chain] >= position)


class Memory:
    """One rank's buffer, or an area of a channel; `flags` are offsets of 8-byte flags in it."""

    def __init__(self, flags: tuple[int, ...] = ()) -> None:
        self.flags = flags
        self.starts: list[int] = [0]
        self.segments: list[Segment] = [Segment()]

    def fill(self, start: int, stop: int, content: Content) -> None:
        """Say what bytes are from the beginning."""
        for segment in self._range(start, stop):
            segment.content = content

    def _cut(self, at: int) -> int:
        """Let a segment begin at `at`; return its index."""
        index = bisect_left(self.starts, at)
        if index == len(self.starts) or self.starts[index] != at:
            self.starts.insert(index, at)
            self.segments.insert(index, self.segments[index - 1].copy())
        return index

    def _range(self, start: int, stop: int) -> list[Segment]:
        first = self._cut(start)
        return self.segments[first : self._cut(stop)]

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, int, Segment]]:
        first, last = self._cut(start), self._cut(stop)
        for k in range(first, last):
            yield self.starts[k], self.starts[k + 1], self.segments[k]

    def _keep_off_flags(self, start: int, stop: int, access: Access) -> None:
        k = bisect_right(self.flags, start - 8)
        if k < len(self.flags) and self.flags[k] < stop:
            raise access.problem(f"a flag at {self.flags[k]}", -1, "data beside the flags")

    def read(self, start: int, stop: int, access: Access) -> list[Span]:
        """Return what the bytes are, relative to `start`."""
        self._keep_off_flags(start, stop, access)
        found: list[Span] = []
        for begin, end, segment in self._spans(start, stop):
            self._check_read(segment, begin, access)
            segment.readers[access.chain] = access.position, access.event
            assert segment.content is not None
            number, delta = segment.content
            found.append((begin - start, end - start, (number, delta + start)))
        return found

    def _check_read(self, segment: Segment, at: int, access: Access) -> None:
        if segment.flying >= 0:
            raise access.problem(f"byte {at} in flight", segment.flying, "a message that is here")
        if segment.content is None:
            raise access.problem(f"byte {at} never written", -1, "data")
        if segment.writer is not None and not access.after(*segment.writer[:2]):
            raise access.problem(
                f"byte {at} not ordered after its write", segment.writer[2], "a wait for it"
            )

    def write(self, start: int, spans: list[Span], access: Access) -> None:
        """Fill bytes from `start` on with `spans`, which are relative to it and without gaps."""
        if not spans:
            return
        stop = start + spans[-1][1]
        self._keep_off_flags(start, stop, access)
        for begin, _, segment in self._spans(start, stop):
            self._check_write(segment, begin, access)
        self._replace(start, spans, access)

    def _replace(self, start: int, spans: list[Span], access: Access) -> None:
        first = self._cut(start)
        last = self._cut(start + spans[-1][1])
        fresh = []
        for _, _, (number, delta) in spans:
            segment = Segment()
            segment.content = number, delta - start
            segment.writer = access.chain, access.position, access.event
            fresh.append(segment)
        self.starts[first:last] = [start + s[0] for s in spans]
        self.segments[first:last] = fresh

    def _check_write(self, segment: Segment, at: int, access: Access) -> None:
        if segment.flying >= 0:
            raise access.problem(f"byte {at} in flight", segment.flying, "memory that is free")
        if segment.lent:
            raise access.problem(f"byte {at} still being sent", segment.lent[0], "a TEST of that")
        if segment.writer is not None and not access.after(*segment.writer[:2]):
            raise access.problem(
                f"byte {at} not ordered after an earlier write", segment.writer[2], "order"
            )
        for chain, (position, event) in segment.readers.items():
            if not access.after(chain, position):
                raise access.problem(
                    f"byte {at} overwritten before a reader is done", event, "a wait for it"
                )

    def lend(self, start: int, stop: int, access: Access) -> list[Span]:
        """Let a message read bytes until :meth:`give_back`; return what they are."""
        spans = self.read(start, stop, access)
        for segment in self._range(start, stop):
            segment.lent = (*segment.lent, access.event)
        return spans

    def give_back(self, start: int, stop: int, by: int, access: Access) -> None:
        """End what the event `by` began with :meth:`lend`."""
        for segment in self._range(start, stop):
            segment.lent = tuple(e for e in segment.lent if e != by)
            segment.readers[access.chain] = access.position, access.event

    def await_(self, start: int, stop: int, access: Access) -> None:
        """Let a message write bytes until :meth:`arrive`; nobody may touch them."""
        self._keep_off_flags(start, stop, access)
        for begin, _, segment in self._spans(start, stop):
            self._check_write(segment, begin, access)
            segment.flying = access.event

    def arrive(self, start: int, spans: list[Span], access: Access) -> None:
        """End what :meth:`await_` began: the bytes are there."""
        if spans:
            self._replace(start, spans, access)


def combine(a: list[Span], b: list[Span], expressions: Expressions, access: Access) -> list[Span]:
    """Combine two operands byte by byte; they must be the same bytes of the message."""
    cuts = sorted({s[0] for s in (*a, *b)} | {a[-1][1]})
    found: list[Span] = []
    left = right = 0
    for start, stop in itertools.pairwise(cuts):
        left += a[left][1] <= start
        right += b[right][1] <= start
        (x, dx), (y, dy) = a[left][2], b[right][2]
        if dx != dy:
            raise access.problem(
                f"byte {start + dx} of the message combined with byte {start + dy}", -1,
                "the same byte",
            )  # fmt: skip
        found.append((start, stop, (expressions.combine(x, y), dx)))
    return merged(found)


def merged(spans: list[Span]) -> list[Span]:
    """Join neighbours that are alike."""
    found: list[Span] = []
    for start, stop, content in spans:
        if found and found[-1][2] == content:
            found[-1] = found[-1][0], stop, content
        else:
            found.append((start, stop, content))
    return found


__all__ = ["Access", "Expressions", "Memory", "combine", "merged"]
