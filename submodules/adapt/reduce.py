"""Reductions of ``adapt``: a rank combines its children's pieces with its own operand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from han.model.program import Ref
from han.submodules.adapt.sends import Sends, cut_for
from han.submodules.adapt.trees import Child, Kin, kin
from han.submodules.parts.pieces import Piece
from han.tasks.context import Context
from han.tasks.stream import Stream


def reduce(context: Context) -> None:
    """Reduce towards the group's root along the tree."""
    pieces, in_all, window = cut_for(context)
    tree = kin(context)
    inbox = _Inbox.of(context, tree, pieces, min(window, len(pieces)), in_all)
    combine = _as_they_arrive if inbox.arrival else _in_order
    for child in tree.children:
        for piece in pieces[: inbox.window]:
            inbox.post(piece, child)
    _pass_on(context, tree, pieces, inbox, combine)


Combine = Callable[["_Inbox", Piece, Ref, Ref], None]


def _pass_on(
    context: Context, tree: Kin, pieces: list[Piece], inbox: _Inbox, combine: Combine
) -> None:
    """Combine piece after piece; send the result to the parent, if there is one."""
    stream = context.stream
    sends = Sends(stream, inbox.window)
    for piece in pieces:
        dst, own = _place_of_result(context, tree, piece.start)
        combine(inbox, piece, dst, own)
        stream.label(piece.task)
        for branch in inbox.branches:
            stream.follow(branch)
        if tree.parent is not None:
            at = dst if tree.children else own
            parent = context.group.ranks[tree.parent]
            sends.send(at, piece.nbytes, parent, piece.task if piece.last else None)
        elif piece.last:
            stream.end(piece.task)
    sends.drain()


def _place_of_result(context: Context, tree: Kin, start: int) -> tuple[Ref, Ref]:
    """Return where this rank combines a piece from byte `start` on, and where its own operand is.

    A rank with a parent and children combines in the accumulator, as its send buffer is the user's.
    """
    own = context.source.to(start)
    if tree.parent is None:
        return context.result.to(start), own
    if not tree.children:
        return own, own
    return context.builder.accumulator().to(start), own


def _in_order(inbox: _Inbox, piece: Piece, dst: Ref, own: Ref) -> None:
    """Combine the children's operands in a fixed order."""
    before = inbox.stream(0)
    before.label(piece.task)
    if piece.first:
        before.begin(piece.task)
    for k, child in enumerate(inbox.children):
        branch, so_far = inbox.stream(k), dst if k else own
        branch.label(piece.task)
        arrived = inbox.take(piece, child)
        branch.follow(before)
        a, b = (arrived, so_far) if child.before else (so_far, arrived)
        branch.reduce(dst, a, b, piece.nbytes)
        inbox.post_next(piece, child)
        before = branch


def _as_they_arrive(inbox: _Inbox, piece: Piece, dst: Ref, own: Ref) -> None:
    """Combine every child's operand with the result as soon as it is there."""
    first = inbox.first
    first.label(piece.task)
    if piece.first:
        first.begin(piece.task)
    first.copy(dst, own, piece.nbytes)
    for k, child in enumerate(inbox.children):
        branch = inbox.stream(k)
        branch.label(piece.task)
        arrived = inbox.take(piece, child)
        branch.follow(first)
        branch.accumulate(dst, arrived, piece.nbytes)
        inbox.post_next(piece, child)


@dataclass(frozen=True)
class _Inbox:
    """Receive buffers and requests for pieces from the children: `window` of each per child.

    Where branches help, each child has one, which takes its pieces and combines them. Children
    share branches if there are more of them.
    """

    context: Context
    children: tuple[Child, ...]
    pieces: list[Piece]
    window: int
    branches: tuple[Stream, ...] = ()
    arrival: bool = False
    room: dict[Child, Ref] = field(default_factory=dict)
    requests: dict[Child, list[int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, context: Context, tree: Kin, pieces: list[Piece], window: int, in_all: int
    ) -> _Inbox:
        """Choose branches for a stream of `in_all` pieces, the same for all of its tasks."""
        arrival = dict(context.choice.parameters).get("order") == "arrival"
        builder, stream, children = context.builder, context.stream, tree.children
        most = builder.most_branches - arrival  # one more makes the first copy
        useful = most > 1 and len(children) > 1 and (arrival or in_all > 1)
        branches = [builder.branch(stream, k) for k in range(min(len(children), most) * useful)]
        found = cls(context, children, pieces, window, tuple(branches), arrival and useful)
        for k, child in enumerate(children):  # a rank with several lanes has several such trees
            found.room[child] = found.stream(k).room(window * found.size, k)
            found.requests[child] = [builder.request() for _ in range(window)]
        return found

    @cached_property
    def size(self) -> int:
        """Bytes from one piece's buffer to the next one's."""
        return -(-max(p.nbytes for p in self.pieces) // 64) * 64

    @cached_property
    def first(self) -> Stream:
        """The stream that copies this rank's own operand, where operands arrive in any order."""
        return self.context.builder.branch(self.context.stream, len(self.branches))

    @cached_property
    def numbers(self) -> dict[Child, int]:
        """The place of each child in the order of combination."""
        return {child: k for k, child in enumerate(self.children)}

    def stream(self, number: int) -> Stream:
        """Return the stream that takes the pieces of a child."""
        branches = self.branches
        return branches[number % len(branches)] if branches else self.context.stream

    def post(self, piece: Piece, child: Child) -> None:
        """Post a receive of a piece from a child."""
        stream = self.stream(self.numbers[child])
        request = self.requests[child][piece.index % self.window]
        stream.label(piece.task)
        rank = self.context.group.ranks[child.member]
        stream.irecv(self._cell(piece, child), piece.nbytes, rank, request)

    def post_next(self, piece: Piece, child: Child) -> None:
        """Post a receive into the buffer of a piece that has been combined."""
        if piece.index + self.window < len(self.pieces):
            self.post(self.pieces[piece.index + self.window], child)

    def take(self, piece: Piece, child: Child) -> Ref:
        """Wait for a child's piece; return where it is."""
        stream = self.stream(self.numbers[child])
        stream.test(self.requests[child][piece.index % self.window])
        return self._cell(piece, child)

    def _cell(self, piece: Piece, child: Child) -> Ref:
        turn = piece.index % self.window
        return (self.room[child] + turn * self.size).holding(piece.start)
