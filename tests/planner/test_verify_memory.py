"""The verifier's memory holds the bytes, and refuses the accesses, that one byte by byte does."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from han.tasks.verify.contents import Span, Strip, combine, joined, plain
from han.tasks.verify.expressions import Expressions
from han.tasks.verify.memory import Memory

RANKS, SIZE, CHAINS = 3, 8, 3
KINDS = (
    *("copy", "copy", "combine", "combine", "accumulate", "accumulate"),
    *("lend", "give back", "give back", "await", "arrive", "arrive"),
)
Bytes = list[tuple[int, int]]  # the expression and the offset in the message of each byte


class Refusal(Exception):
    """An access is not allowed."""


@dataclass
class Event:
    """An access, and the last event of each chain that precedes it."""

    chain: int
    event: int
    seen: list[int]

    def after(self, chain: int, event: int) -> bool:
        return chain == self.chain or self.seen[chain] >= event

    def problem(self, found: str, other: int, wanted: str) -> Exception:
        return Refusal(found)


@dataclass
class Byte:
    """One byte: what it holds, and the chain and number of all events that touched it."""

    content: tuple[int, int] | None = None
    writers: set[tuple[int, int]] = field(default_factory=set)
    readers: set[tuple[int, int]] = field(default_factory=set)
    adders: set[tuple[int, int]] = field(default_factory=set)
    lent: set[int] = field(default_factory=set)
    flying: bool = False

    def require(self, allowed: bool, by: Event, *others: set[tuple[int, int]]) -> None:
        if not allowed or not all(by.after(*other) for other in set().union(*others)):
            raise Refusal

    def read(self, by: Event) -> tuple[int, int]:
        self.require(self.content is not None and not self.flying, by, self.writers, self.adders)
        self.readers.add((by.chain, by.event))
        return self.content

    def check_write(self, by: Event, *others: set[tuple[int, int]]) -> None:
        self.require(not self.flying and not self.lent, by, self.writers, self.readers, *others)


class Naive:
    """The interface of the verifier's memory, with a record for every byte."""

    def __init__(self) -> None:
        self.bytes = [Byte() for _ in range(SIZE)]

    def fill(self, rank: int) -> None:
        for at, byte in enumerate(self.bytes):
            byte.content = rank, at

    def read(self, start: int, stop: int, by: Event) -> Bytes:
        return [byte.read(by) for byte in self.bytes[start:stop]]

    def write(self, start: int, contents: Bytes, by: Event) -> None:
        for byte in self.bytes[start : start + len(contents)]:
            byte.check_write(by, byte.adders)
        self.arrive(start, contents, by)

    def arrive(self, start: int, contents: Bytes, by: Event) -> None:
        new = [Byte(content, {(by.chain, by.event)}) for content in contents]
        self.bytes[start : start + len(new)] = new

    def accumulate(self, start: int, contents: Bytes, numbers: Expressions, by: Event) -> None:
        for byte, (number, at) in zip(self.bytes[start:], contents, strict=False):
            byte.require(byte.content is not None and byte.content[1] == at, by)
            byte.check_write(by)
            byte.content = numbers.accumulate(byte.content[0], number), at
            byte.adders.add((by.chain, by.event))

    def lend(self, start: int, stop: int, by: Event) -> Bytes:
        found = self.read(start, stop, by)
        for byte in self.bytes[start:stop]:
            byte.lent.add(by.event)
        return found

    def give_back(self, start: int, stop: int, sent: int, by: Event) -> None:
        for byte in self.bytes[start:stop]:
            byte.lent.discard(sent)
            byte.readers.add((by.chain, by.event))

    def await_(self, start: int, stop: int, by: Event) -> None:
        for byte in self.bytes[start:stop]:
            byte.check_write(by, byte.adders)
            byte.flying = True

    def abandon(self, by: Event) -> None:
        for byte in self.bytes:
            byte.require(True, by, byte.writers, byte.readers, byte.adders)


def bytes_of(spans: list[Span]) -> Bytes:
    return [(number, at + delta) for a, b, (number, delta) in plain(spans) for at in range(a, b)]


def spans_of(contents: Bytes) -> list[Span]:
    return [(k, k + 1, (number, at - k)) for k, (number, at) in enumerate(contents)]


def combined(a: Bytes, b: Bytes, numbers: Expressions) -> Bytes:
    if any(x[1] != y[1] for x, y in zip(a, b, strict=True)):
        raise Refusal
    return [(numbers.combine(x[0], y[0]), x[1]) for x, y in zip(a, b, strict=True)]


def tried(act: Callable[[], Any]) -> tuple[bool, Any]:
    """Return whether an access is allowed, and its result."""
    try:
        return True, act()
    except Refusal:
        return False, None


class Both:
    """Memories beside naive ones: whatever is done to both must have the same outcome."""

    def __init__(self) -> None:
        self.numbers = Expressions(RANKS)
        self.real, self.naive = ([kind() for _ in range(RANKS)] for kind in (Memory, Naive))
        for rank in range(RANKS):
            self.real[rank].fill(0, SIZE, (rank, 0))
            self.naive[rank].fill(rank)
        self.lent: list[tuple[int, int, int, int]] = []
        self.awaited: list[tuple[int, int, int]] = []
        self.strips = 0

    def outcome(self, real: Callable[[], Any], naive: Callable[[], Any]) -> tuple[Any, Any]:
        """Return the results of both; raises Refusal if both do."""
        (allowed, one), (wanted, other) = tried(real), tried(naive)
        assert allowed == wanted
        if not allowed:
            raise Refusal
        return one, other

    def on(self, memory: int, name: str, *arguments: Any) -> None:
        """Call a method without result; pairs of spans and bytes are given to each its own."""
        real, naive = ([a[k] if isinstance(a, tuple) else a for a in arguments] for k in (0, 1))
        self.outcome(
            lambda: getattr(self.real[memory], name)(*real),
            lambda: getattr(self.naive[memory], name)(*naive),
        )

    def get(self, memory: int, start: int, n: int, by: Event, name: str = "read") -> Any:
        """Return the spans and the bytes of a read, which are the same."""
        spans, contents = self.outcome(
            lambda: getattr(self.real[memory], name)(start, start + n, by),
            lambda: getattr(self.naive[memory], name)(start, start + n, by),
        )
        return self.compared(spans, contents)

    def compared(self, spans: list[Span], contents: Bytes) -> tuple[list[Span], Bytes]:
        assert bytes_of(spans) == contents
        assert joined(spans) == joined(spans_of(contents))
        self.strips += any(isinstance(value, Strip) for _, _, (value, _) in spans)
        return spans, contents

    def do(self, kind: str, a: int, b: int, n: int, at: int, apart: int, by: Event) -> None:
        """Carry out an operation of `n` bytes from memory `a` to memory `b`."""
        x, to = at % (SIZE - n + 1), (at + apart) % (SIZE - n + 1)
        if kind == "copy":
            self.on(b, "write", to, self.get(a, x, n, by), by)
        elif kind == "combine":
            one, other = self.get(a, x, n, by), self.get(b, to, n, by)
            both = self.outcome(
                lambda: combine(one[0], other[0], self.numbers, by),
                lambda: combined(one[1], other[1], self.numbers),
            )
            self.on(b, "write", x, self.compared(*both), by)
        elif kind == "accumulate":
            self.on(b, "accumulate", to, self.get(a, x, n, by), self.numbers, by)
        elif kind == "lend":
            self.get(a, x, n, by, "lend")
            self.lent.append((a, x, x + n, by.event))
        elif kind == "give back" and self.lent:
            memory, start, stop, sent = self.lent.pop(x % len(self.lent))
            self.on(memory, "give_back", start, stop, sent, by)
        elif kind == "await":
            self.on(b, "await_", to, to + n, by)
            self.awaited.append((b, to, n))
        elif kind == "arrive" and self.awaited:
            memory, start, n = self.awaited.pop(x % len(self.awaited))
            self.on(memory, "arrive", start, self.get(a, start, n, by), by)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, RANKS - 1),
        st.integers(0, RANKS - 1),
        st.integers(1, SIZE),
        st.integers(0, SIZE),
        st.sampled_from((0, 0, 0, 0, 0, 0, 1, 7)),  # bytes between the places in both memories
        st.integers(0, CHAINS - 1),
        st.sampled_from((*[0] * 10, 1, 2, 4)),  # events of a chain that it does not know
    ),
    min_size=3,
    max_size=24,
)


@settings(max_examples=600)
@given(operations=OPERATIONS)
def test_it_does_what_a_memory_byte_by_byte_does(operations):
    """Random accesses, nearly all of which know what precedes them, up to the first refusal."""
    both, count = Both(), 0
    try:
        for count, (kind, a, b, n, at, apart, chain, late) in enumerate(operations):
            seen = [count - 1 - (late if k == a else 0) for k in range(CHAINS)]
            both.do(kind, a, b, n, at, apart, Event(chain, count, seen))
        for memory in range(RANKS):
            both.on(memory, "abandon", Event(0, len(operations), [len(operations) - 2] * CHAINS))
        event("nothing refused")
    except Refusal:
        event("refused")
    event(f"strips: {both.strips > 0}")


def test_both_parts_of_a_cut_keep_their_readers():
    whole, half = spans_of([(0, k) for k in range(8)]), spans_of([(0, k) for k in range(4)])
    memory = Memory()
    memory.write(0, whole, Event(0, 0, [-1, -1, -1]))
    memory.read(0, 8, Event(1, 1, [0, -1, -1]))
    memory.read(0, 4, Event(2, 2, [0, -1, -1]))
    knows_one, knows_neither = Event(0, 3, [0, 1, -1]), Event(0, 4, [0, -1, -1])
    assert tried(lambda: memory.write(0, half, knows_one)) == (False, None)
    assert tried(lambda: memory.write(4, half, knows_neither)) == (False, None)
    memory.write(4, half, knows_one)


def test_bytes_are_complete_before_they_are_read_or_overwritten():
    spans, memory = spans_of([(0, k) for k in range(8)]), Memory()
    memory.write(0, spans, Event(0, 0, [-1, -1, -1]))
    memory.accumulate(0, spans, Expressions(RANKS), Event(1, 1, [0, -1, -1]))
    early, late = Event(2, 2, [0, 0, -1]), Event(2, 3, [0, 1, -1])
    assert tried(lambda: memory.write(0, spans, early)) == (False, None)
    assert tried(lambda: memory.read(0, 8, early)) == (False, None)
    memory.read(0, 8, late)
    memory.write(0, spans, late)
