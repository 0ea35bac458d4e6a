"""The memory of the verifier: the content, the writer and the readers of every byte.

The content is an expression over the ranks' contributions (leaves) and the operator, together with
the offset in the message. An access knows the events that precede it in every interleaving. Among
them must be, for a read, the write of the bytes, and for a write, all reads and writes of the
earlier content.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

Content = tuple[int, int]  # expression, and the offset in the message minus the address
Span = tuple[int, int, Content]  # start, stop and content of bytes
NOBODY = -1
SPELLED = 200  # characters of an expression
NO_ADDERS: dict[int, int] = {}  # of most segments; it is never changed


@dataclass
class Expressions:
    """Numbers of combinations of contributions, equal for equal ones; the first are the leaves."""

    size: int
    pairs: list[tuple[int, ...]] = field(default_factory=list)
    known: dict[tuple[int, int], int] = field(default_factory=dict)
    sums: dict[tuple[int, ...], int] = field(default_factory=dict)  # by operands, sorted
    flat: dict[tuple[int, bool], tuple[int, ...]] = field(default_factory=dict)
    right: dict[tuple[int, bool, int], tuple[int, ...]] = field(default_factory=dict)
    blocks: dict[tuple[int, ...], int] = field(default_factory=dict)  # canonical, by ranks

    def combine(self, a: int, b: int) -> int:
        """Return the number of ``a op b``."""
        number = self.known.setdefault((a, b), self.size + len(self.pairs))
        if number == self.size + len(self.pairs):
            self.pairs.append((a, b))
        return number

    def accumulate(self, a: int, b: int) -> int:
        """Return the number of `a`, maybe a combination in any order, with one more operand."""
        parts = self.pairs[a - self.size] if a >= self.size else ()
        flat = parts if self.sums.get(parts) == a else (a,)
        parts = tuple(sorted((*flat, b)))
        number = self.sums.setdefault(parts, self.size + len(self.pairs))
        if number == self.size + len(self.pairs):
            self.pairs.append(parts)
        return number

    def ranks(self, number: int, ordered: bool) -> tuple[int, ...]:
        """Return the contributions of an expression, in the order of the operands or sorted."""
        if (number, ordered) not in self.flat:
            leaves = self._leaves(number)
            self.flat[number, ordered] = tuple(leaves if ordered else sorted(leaves))
        return self.flat[number, ordered]

    def canonical(self, ranks: tuple[int, ...]) -> int:
        """Return the number of the canonical combination of the contributions of ranks.

        It follows the definition, by halves of blocks, and none of the code that makes programs.
        """
        if ranks not in self.blocks:
            found = self._block(frozenset(ranks), 0, 1 << (self.size - 1).bit_length())
            assert found is not None, "a result has contributions"
            self.blocks[ranks] = found
        return self.blocks[ranks]

    def _block(self, ranks: frozenset[int], first: int, width: int) -> int | None:
        """Return the combination of a block of ranks; None if none of them contributes."""
        if width == 1:
            return first if first in ranks else None
        half = width // 2
        left, right = (self._block(ranks, at, half) for at in (first, first + half))
        if left is None or right is None:
            return right if left is None else left
        return self.combine(left, right)

    def spelled(self, number: int) -> str:
        """Return an expression as text such as ``((0 1) 2)``; of a long one the beginning."""
        found, left = "", [str(number)]
        while left and len(found) < SPELLED:
            text = left.pop()
            one = int(text) if text.isdigit() else -1
            if one < self.size:
                found += text
                continue
            parts = [str(part) for part in self.pairs[one - self.size]]
            spaced = [text for part in parts for text in (" ", part)][1:]
            left += [")", *reversed(spaced), "("]
        return found + (" ..." if left else "")

    def combines(self, number: int, ranks: tuple[int, ...], ordered: bool) -> bool:
        """Return whether an expression combines the contributions of `ranks`, maybe in order.

        Answers are kept by the identity of `ranks`, because many bytes share few expressions.
        """
        key = number, ordered, id(ranks)
        if self.right.get(key) is not ranks and self.ranks(number, ordered) == ranks:
            self.right[key] = ranks
        return self.right.get(key) is ranks

    def _leaves(self, number: int) -> Iterable[int]:
        left = [number]  # a stack in place of recursion, as expressions may be deep
        while left:
            number = left.pop()
            if number < self.size:
                yield number
            else:
                left += reversed(self.pairs[number - self.size])


class Access(Protocol):
    """An event of a chain that accesses memory."""

    chain: int
    event: int

    def after(self, chain: int, event: int) -> bool:
        """Return whether `event` of `chain` precedes this one in every interleaving."""

    def problem(self, found: str, other: int, wanted: str) -> Exception:
        """Return the error; `other` is the event that conflicts with this one, or -1."""


class Segment:
    """Contiguous bytes with the same content, writer and readers."""

    __slots__ = ("adders", "chain", "content", "flying", "lent", "readers", "writer")

    def __init__(self, content: Content | None, chain: int = NOBODY, writer: int = NOBODY) -> None:
        self.content = content  # None: never written
        self.chain, self.writer = chain, writer  # the chain and the event that wrote it
        self.readers: dict[int, int] = {}  # by chain: the last event that read it
        self.adders = NO_ADDERS  # by chain: the last event that accumulated into it
        self.lent: tuple[int, ...] = ()  # sends in flight that read it
        self.flying = NOBODY  # the receive in flight that will write it

    def copy(self) -> Segment:
        """Return a copy, which becomes the second part of a segment that is cut."""
        other = Segment(self.content, self.chain, self.writer)
        other.readers, other.lent, other.flying = dict(self.readers), self.lent, self.flying
        other.adders = self.adders
        return other

    def unfinished(self, access: Access) -> int:
        """Return an event that accumulates and need not precede the access, or NOBODY."""
        late = (event for chain, event in self.adders.items() if not access.after(chain, event))
        return next(late, NOBODY)


class Memory:
    """One rank's buffer, or an area of a channel."""

    __slots__ = ("segments", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = [0]
        self.segments: list[Segment] = [Segment(None)]

    def fill(self, start: int, stop: int, content: Content) -> None:
        """Set the content that bytes have when a run begins."""
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
        """Return the indices of the segments of some bytes; cut segments at both ends."""
        starts = self.starts
        first = bisect_left(starts, start)
        if first + 1 < len(starts) and starts[first] == start and starts[first + 1] == stop:
            return range(first, first + 1)
        return range(self._cut(start), self._cut(stop))

    def read(self, start: int, stop: int, access: Access) -> list[Span]:
        """Return the spans of bytes, relative to `start`; raises if the read is not allowed."""
        starts = self.starts
        first = bisect_left(starts, start)
        if first + 1 < len(starts) and starts[first] == start and starts[first + 1] == stop:
            number, delta = self._read(first, access)  # most reads are of one segment
            return [(0, stop - start, (number, delta + start))]
        found: list[Span] = []
        last = NOBODY
        for k in self._range(start, stop):
            number, delta = self._read(k, access, last)
            last = self.segments[k].writer
            found.append((starts[k] - start, starts[k + 1] - start, (number, delta + start)))
        return found

    def _read(self, k: int, access: Access, known: int = NOBODY) -> Content:
        """Return the content of a segment, which an event reads; `known` precedes the event."""
        segment, chain = self.segments[k], access.chain
        content, writer = segment.content, segment.writer
        if content is None or segment.flying >= 0:
            raise self._unreadable(k, access)
        own = writer < 0 or writer == known or segment.chain == chain
        if not own and not access.after(segment.chain, writer):
            found = f"byte {self.starts[k]} not ordered after its write"
            raise access.problem(found, writer, "a wait for it")
        if segment.adders and (late := segment.unfinished(access)) >= 0:
            raise access.problem(f"byte {self.starts[k]} not complete", late, "a wait for it")
        segment.readers[chain] = access.event
        return content

    def _unreadable(self, k: int, access: Access) -> Exception:
        at, segment = self.starts[k], self.segments[k]
        if segment.flying >= 0:
            return access.problem(f"byte {at} in flight", segment.flying, "a completed receive")
        return access.problem(f"byte {at} never written", NOBODY, "a written byte")

    def write(self, start: int, spans: list[Span], access: Access) -> None:
        """Write contiguous `spans`, relative to `start`; raises if the write is not allowed."""
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
        segment, mine = self.segments[k], access.chain
        if segment.flying >= 0 or segment.lent:
            raise self._in_use(k, access)
        other = segment.writer >= 0 and segment.chain != mine
        if other and not access.after(segment.chain, segment.writer):
            found = f"byte {self.starts[k]} not ordered after an earlier write"
            raise access.problem(found, segment.writer, "a wait for it")
        for chain, event in segment.readers.items():
            if chain != mine and not access.after(chain, event):
                found = f"byte {self.starts[k]} overwritten before a reader is done"
                raise access.problem(found, event, "a wait for it")
        if segment.adders and (late := segment.unfinished(access)) >= 0:
            found = f"byte {self.starts[k]} overwritten before it is complete"
            raise access.problem(found, late, "a wait for it")

    def accumulate(
        self, start: int, spans: list[Span], expressions: Expressions, access: Access
    ) -> None:
        """Combine operands into bytes, with other accumulations of the same stretch in any order.

        They belong to one rank, which carries them out one at a time.
        """
        for first, stop, (operand, delta) in spans:
            for k in self._range(start + first, start + stop):
                segment = self.segments[k]
                if segment.content is None:
                    raise self._unreadable(k, access)
                adders, segment.adders = segment.adders, NO_ADDERS
                self._check_write(k, access)
                number, offset = segment.content
                if offset + start != delta:
                    found = f"byte {offset + start} of the message combined with byte {delta}"
                    raise access.problem(found, NOBODY, "the same byte")
                segment.content = expressions.accumulate(number, operand), offset
                segment.adders = {**adders, access.chain: access.event}

    def _in_use(self, k: int, access: Access) -> Exception:
        at, segment = self.starts[k], self.segments[k]
        if segment.flying >= 0:
            return access.problem(f"byte {at} in flight", segment.flying, "a TEST of that receive")
        return access.problem(f"byte {at} still being sent", segment.lent[0], "a TEST of that send")

    def lend(self, start: int, stop: int, access: Access) -> list[Span]:
        """Let a message read bytes until :meth:`give_back`; return their spans."""
        spans = self.read(start, stop, access)
        for k in self._range(start, stop):
            self.segments[k].lent = (*self.segments[k].lent, access.event)
        return spans

    def give_back(self, start: int, stop: int, by: int, access: Access) -> None:
        """End the read that event `by` began with :meth:`lend`."""
        for k in self._range(start, stop):
            segment = self.segments[k]
            segment.lent = tuple(e for e in segment.lent if e != by)
            segment.readers[access.chain] = access.event

    def await_(self, start: int, stop: int, access: Access) -> None:
        """Let a message write bytes until :meth:`arrive`; no event may access them before."""
        for k in self._range(start, stop):
            self._check_write(k, access)
            self.segments[k].flying = access.event

    def arrive(self, start: int, spans: list[Span], access: Access) -> None:
        """End the write that :meth:`await_` began, with `spans` as the data."""
        if spans:
            self._replace(self._range(start, start + spans[-1][1]), start, spans, access)

    def abandon(self, access: Access) -> None:
        """Return the memory to its owner; raises if an access need not have ended."""
        written = read = NOBODY  # the last ones that precede the access
        for at, segment in zip(self.starts, self.segments, strict=True):
            if segment.writer != written:
                written = segment.writer
                if written >= 0 and not access.after(segment.chain, written):
                    found = f"byte {at} returned to its owner before a writer is done"
                    raise access.problem(found, written, "a wait for it")
            for users in (segment.readers, segment.adders):
                for chain, event in users.items():
                    if event != read and not access.after(chain, event):
                        found = f"byte {at} returned to its owner before a reader is done"
                        raise access.problem(found, event, "a wait for it")
                    read = event


def combine(a: list[Span], b: list[Span], expressions: Expressions, access: Access) -> list[Span]:
    """Combine two operands byte by byte; both must hold the same bytes of the message."""
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
    """Join contiguous spans of the same content."""
    if len(spans) == 1:
        return spans
    found: list[Span] = []
    for start, stop, content in spans:
        if found and found[-1][2] == content:
            found[-1] = found[-1][0], stop, content
        else:
            found.append((start, stop, content))
    return found
