"""The memory of the verifier: the content, the writer and the readers of every byte.

The content is an expression over the ranks' contributions (leaves) and the operator, together with
the offset in the message. An access knows the events that precede it in every interleaving. Among
them must be, for a read, the write of the bytes, and for a write, all reads and writes of the
earlier content.
"""

from __future__ import annotations

from bisect import bisect_left

from han.tasks.verify.contents import NOBODY, Content, Span, joined, plain
from han.tasks.verify.expressions import Expressions
from han.tasks.verify.order import Strand

UNUSED = -1  # an expression of no rank's contribution
NO_EVENTS: dict[int, int] = {}  # of segments without readers, or without adders; never changed


class Segment:
    """Contiguous bytes with the same content, writer and readers."""

    __slots__ = ("adders", "chain", "content", "flying", "lent", "readers", "writer")

    def __init__(self, content: Content | None, chain: int = NOBODY, writer: int = NOBODY) -> None:
        self.content = content  # None: never written
        self.chain, self.writer = chain, writer  # the chain and the event that wrote it
        self.readers = NO_EVENTS  # by chain: the last event that read it
        self.adders = NO_EVENTS  # by chain: the last event that accumulated into it
        self.lent: tuple[int, ...] = ()  # sends in flight that read it
        self.flying = NOBODY  # the receive in flight that will write it

    def renew(self, content: Content, chain: int, writer: int) -> None:
        """Become bytes that an event has just written."""
        self.content, self.chain, self.writer = content, chain, writer
        self.readers = self.adders = NO_EVENTS
        self.lent, self.flying = (), NOBODY

    def copy(self) -> Segment:
        """Return a copy, which becomes another part of a segment that is cut."""
        other = Segment(self.content, self.chain, self.writer)
        other.readers = dict(self.readers) if self.readers else NO_EVENTS
        other.adders, other.lent, other.flying = self.adders, self.lent, self.flying
        return other

    def note(self, access: Strand) -> None:
        """Note that an event has read the bytes."""
        if self.readers is NO_EVENTS:
            self.readers = {access.chain: access.event}
        else:
            self.readers[access.chain] = access.event

    def unfinished(self, access: Strand) -> int:
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

    def fill_unused(self, start: int, stop: int) -> None:
        """Let bytes that were never written be read: they hold what no result may have."""
        for k in self._range(start, stop):
            if self.segments[k].content is None:
                self.segments[k].content = UNUSED, 0

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

    def read(self, start: int, stop: int, access: Strand) -> list[Span]:
        """Return the spans of bytes, relative to `start`; raises if the read is not allowed."""
        starts = self.starts
        first = bisect_left(starts, start)
        if first + 1 < len(starts) and starts[first] == start and starts[first + 1] == stop:
            value, delta = self._read(first, access)  # most reads are of one segment
            return [(0, stop - start, (value, delta + start))]
        found: list[Span] = []
        last = NOBODY
        for k in self._range(start, stop):
            value, delta = self._read(k, access, last)
            last = self.segments[k].writer
            found.append((starts[k] - start, starts[k + 1] - start, (value, delta + start)))
        return found

    def _read(self, k: int, access: Strand, known: int = NOBODY) -> Content:
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
        segment.note(access)
        return content

    def _unreadable(self, k: int, access: Strand) -> Exception:
        at, segment = self.starts[k], self.segments[k]
        if segment.flying >= 0:
            return access.problem(f"byte {at} in flight", segment.flying, "a completed receive")
        return access.problem(f"byte {at} never written", NOBODY, "a written byte")

    def write(self, start: int, spans: list[Span], access: Strand) -> None:
        """Write contiguous `spans`, relative to `start`; raises if the write is not allowed."""
        if spans:
            where = self._range(start, start + spans[-1][1])
            for k in where:
                self._check_write(k, access)
            self._replace(where, start, spans, access)

    def _replace(self, where: range, start: int, spans: list[Span], access: Strand) -> None:
        chain, event = access.chain, access.event
        spans = spans if len(spans) == 1 else joined(spans)
        if len(where) == len(spans) == 1:
            value, delta = spans[0][2]
            self.segments[where.start].renew((value, delta - start), chain, event)
            return
        self.starts[where.start : where.stop] = [start + span[0] for span in spans]
        self.segments[where.start : where.stop] = [
            Segment((value, delta - start), chain, event) for _, _, (value, delta) in spans
        ]

    def _check_write(self, k: int, access: Strand) -> None:
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
        self, start: int, spans: list[Span], expressions: Expressions, access: Strand
    ) -> None:
        """Combine operands into bytes, with other accumulations of the same stretch in any order.

        They belong to one rank, which carries them out one at a time.
        """
        self._refine(start, start + spans[-1][1])
        for first, stop, (operand, delta) in plain(spans):
            for k in self._range(start + first, start + stop):
                segment = self.segments[k]
                if segment.content is None:
                    raise self._unreadable(k, access)
                adders, segment.adders = segment.adders, NO_EVENTS
                self._check_write(k, access)
                value, offset = segment.content
                assert isinstance(value, int), "the segments have one expression each"
                if offset + start != delta:
                    found = f"byte {offset + start} of the message combined with byte {delta}"
                    raise access.problem(found, NOBODY, "the same byte")
                segment.content = expressions.accumulate(value, operand), offset
                segment.adders = {**adders, access.chain: access.event}

    def _refine(self, start: int, stop: int) -> None:
        """Cut segments of some bytes where their expressions change."""
        for k in reversed(self._range(start, stop)):
            whole = self.segments[k]
            if whole.content is not None and not isinstance(whole.content[0], int):
                spans = list(plain([(self.starts[k], self.starts[k + 1], whole.content)]))
                parts = [whole.copy() for _ in spans]
                for part, (_, _, content) in zip(parts, spans, strict=True):
                    part.content = content
                self.starts[k : k + 1] = [span[0] for span in spans]
                self.segments[k : k + 1] = parts

    def _in_use(self, k: int, access: Strand) -> Exception:
        at, segment = self.starts[k], self.segments[k]
        if segment.flying >= 0:
            return access.problem(f"byte {at} in flight", segment.flying, "a TEST of that receive")
        return access.problem(f"byte {at} still being sent", segment.lent[0], "a TEST of that send")

    def lend(self, start: int, stop: int, access: Strand) -> list[Span]:
        """Let a message read bytes until :meth:`give_back`; return their spans."""
        spans = self.read(start, stop, access)
        for k in self._range(start, stop):
            self.segments[k].lent = (*self.segments[k].lent, access.event)
        return spans

    def give_back(self, start: int, stop: int, by: int, access: Strand) -> None:
        """End the read that event `by` began with :meth:`lend`."""
        for k in self._range(start, stop):
            segment = self.segments[k]
            segment.lent = tuple(e for e in segment.lent if e != by)
            segment.note(access)

    def await_(self, start: int, stop: int, access: Strand) -> None:
        """Let a message write bytes until :meth:`arrive`; no event may access them before."""
        for k in self._range(start, stop):
            self._check_write(k, access)
            self.segments[k].flying = access.event

    def arrive(self, start: int, spans: list[Span], access: Strand) -> None:
        """End the write that :meth:`await_` began, with `spans` as the data."""
        if spans:
            self._replace(self._range(start, start + spans[-1][1]), start, spans, access)

    def abandon(self, access: Strand) -> None:
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
