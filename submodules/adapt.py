"""``adapt``: event-driven trees of point-to-point messages.

A rank posts receives ahead, forwards each piece when it arrives, and lets sends complete in the
background. A stream waits only for the piece that it needs next.

Source: HAN, section III (ADAPT).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from han.model.program import Ref
from han.submodules.parts.pieces import Piece, cut
from han.submodules.parts.trees import Place, place
from han.tasks.context import Context
from han.tasks.contract import (
    PLAIN,
    TRIED_SIZES,
    Algorithm,
    Parameter,
    Question,
    Submodule,
    order_kept,
)
from han.tasks.graph import Task
from han.tasks.stream import Stream

SEGMENT = 32 * 1024
WINDOW = 8
MOST = 1 << 30  # bytes of a message, so that MPI's counts stay below 2^31

# algorithm: (shape in submodules/parts/trees.py, default radix)
SHAPE = {
    "linear": ("flat", 1),
    "chain": ("chain", 1),
    "binary": ("kary", 2),
    "binomial": ("knomial", 2),
    "knomial": ("knomial", 4),
}


class Adapt(Submodule):
    """Sends pieces along trees of point-to-point messages."""

    name = "adapt"
    by_place = True
    about = "event-driven point-to-point trees, internally segmented (HAN's ADAPT)"
    algorithms = {
        "linear": Algorithm(
            "the root communicates with every member", ordered="always", takes=("segment", "window")
        ),
        "chain": Algorithm("`radix` chains of neighbours from the root", families=(*PLAIN, "ring")),
        "binary": Algorithm("binary tree", ordered="never", takes=("segment", "window")),
        "binomial": Algorithm("binomial tree", takes=("segment", "window")),
        "knomial": Algorithm("k-nomial tree of base `radix`"),
    }
    parameters = {
        "radix": Parameter(
            "int", "base of the tree (knomial), number of chains (chain)", 1, 64, tried=(2, 3, 5)
        ),
        "segment": Parameter("size", "bytes of one message", 1, MOST, tried=TRIED_SIZES),
        "window": Parameter(
            "int",
            "receives posted ahead, and sends in flight, for each peer",
            1,
            256,
            tried=(2, 1, 3, 8),
        ),
    }

    def supports(self, question: Question) -> str | None:
        """Return None if the algorithm can serve the call, else the reason."""
        choice = question.choice
        if choice.algorithm == "knomial" and choice.get("radix", 4) < 2:
            return "a k-nomial tree needs a radix of at least 2"
        if question.signature.element > MOST:
            size = question.signature.element
            return f"elements of {size} bytes do not fit into a message of {MOST} bytes"
        return order_kept(question, self.algorithms[choice.algorithm])

    def lower(self, context: Context) -> None:
        """Emit this rank's messages and reductions."""
        if context.tasks[0].kind == "bcast":
            _bcast(context)
        elif context.choice.algorithm == "linear" and not context.builder.signature.commutative:
            _ordered_linear(context)
        else:
            _reduce(context)


def _tree(context: Context) -> Place:
    shape, radix = SHAPE[context.choice.algorithm]
    return place(context.group, shape, context.choice.get("radix", radix))


def _pieces(context: Context) -> list[Piece]:
    return cut(context.tasks, context.choice.get("segment", SEGMENT), context.grain)


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


def _bcast(context: Context) -> None:
    """Broadcast from the group's root: a rank forwards each piece when it has arrived."""
    stream, group = context.stream, context.group
    tree, pieces = _tree(context), _pieces(context)
    window = context.choice.get("window", WINDOW)
    sends = Sends(stream, window * max(1, len(tree.children)))
    posted = [stream.builder.request() for _ in range(min(window, len(pieces)))]

    def post(piece: Piece) -> None:
        if piece.first:
            stream.begin(piece.task)  # other streams may still read this part of the buffer
        at = context.result.to(piece.start)
        request = posted[piece.index % len(posted)]
        stream.irecv(at, piece.nbytes, group.ranks[_sure(tree.parent)], request)

    if tree.parent is not None:
        for piece in pieces[: len(posted)]:
            post(piece)
    for k, piece in enumerate(pieces):
        stream.label(piece.task)
        if tree.parent is not None:
            stream.test(posted[k % len(posted)])
        elif piece.first:
            stream.begin(piece.task)
        for child in tree.children:
            at = context.source.to(piece.start)
            sends.send(at, piece.nbytes, group.ranks[child])
        if piece.last:
            stream.end(piece.task)
        if tree.parent is not None and k + len(posted) < len(pieces):
            post(pieces[k + len(posted)])
    sends.drain()
    stream.end(pieces[-1].task)


def _sure(parent: int | None) -> int:
    assert parent is not None
    return parent


def _reduce(context: Context) -> None:
    """Reduce towards the root: a rank combines its children's pieces with its own operand."""
    stream, group = context.stream, context.group
    tree, pieces = _tree(context), _pieces(context)
    window = min(context.choice.get("window", WINDOW), len(pieces))
    sends = Sends(stream, window)
    inbox = _Inbox.of(context, tree.children, pieces, window)
    stream.label(pieces[0].task)
    for piece in pieces[:window]:
        inbox.post(piece)
    for k, piece in enumerate(pieces):
        if piece.first:
            stream.begin(piece.task)
        dst, own = _place_of_result(context, tree, piece, inbox)
        for j, child in enumerate(tree.children):
            arrived = inbox.take(piece, child)
            stream.reduce(dst, dst if j else own, arrived, piece.nbytes)
        if k + window < len(pieces):
            inbox.post(pieces[k + window])
        if tree.parent is not None:
            at = dst if tree.children else own
            parent = group.ranks[tree.parent]
            sends.send(at, piece.nbytes, parent, piece.task if piece.last else None)
        elif piece.last:
            stream.end(piece.task)
    sends.drain()


def _place_of_result(context: Context, tree: Place, piece: Piece, inbox: _Inbox) -> tuple[Ref, Ref]:
    """Return where this rank combines a piece, and where its own operand of the piece is.

    A rank with a parent and children combines in the accumulator, as its send buffer is the user's.
    """
    own = context.source.to(piece.start)
    if tree.parent is None or not tree.children:
        return context.result.to(piece.start), own
    return inbox.accumulator.to(piece.start), own


@dataclass(frozen=True)
class _Inbox:
    """Receive buffers and requests for pieces from the children: `window` of each per child."""

    context: Context
    window: int
    size: int
    room: dict[int, Ref]
    requests: dict[int, list[int]]
    accumulator: Ref

    @classmethod
    def of(
        cls, context: Context, children: tuple[int, ...], pieces: list[Piece], window: int
    ) -> _Inbox:
        builder = context.builder
        size = -(-max(p.nbytes for p in pieces) // 64) * 64
        room = {c: builder.scratch(window * size) for c in children}
        requests = {c: [builder.request() for _ in range(window)] for c in children}
        return cls(context, window, size, room, requests, builder.accumulator())

    def post(self, piece: Piece) -> None:
        """Post a receive of the piece from every child."""
        ranks = self.context.group.ranks
        turn = piece.index % self.window
        for child in self.room:
            request = self.requests[child][turn]
            self.context.stream.irecv(self._cell(piece, child), piece.nbytes, ranks[child], request)

    def take(self, piece: Piece, child: int) -> Ref:
        """Wait for a child's piece; return where it is."""
        turn = piece.index % self.window
        self.context.stream.test(self.requests[child][turn])
        return self._cell(piece, child)

    def _cell(self, piece: Piece, child: int) -> Ref:
        turn = piece.index % self.window
        return (self.room[child] + turn * self.size).holding(piece.start)


def _ordered_linear(context: Context) -> None:
    """Reduce at the root in rank order, for any root.

    The root waits for all operands of a piece before it combines the first two.
    """
    stream, group = context.stream, context.group
    pieces = _pieces(context)
    if not group.leads:
        _reduce(context)
        return
    others = tuple(m for m in range(group.size) if m != group.me)
    inbox = _Inbox.of(context, others, pieces, 1)
    left = context.builder.scratch(inbox.size)
    for piece in pieces:
        if piece.first:
            stream.begin(piece.task)
        inbox.post(piece)
        arrived = [inbox.take(piece, m) for m in others]
        arrived.insert(group.me, context.source.to(piece.start))
        dst = context.result.to(piece.start)
        total = arrived[0]
        for m, operand in enumerate(arrived[1:], start=1):
            # In place, dst holds this rank's own operand until it has been combined.
            target = dst if m >= group.me else left.holding(piece.start)
            stream.reduce(target, total, operand, piece.nbytes)
            total = target
        if piece.last:
            stream.end(piece.task)
