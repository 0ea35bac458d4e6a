"""Broadcasts of ``adapt``: a rank forwards each piece when it has arrived."""

from __future__ import annotations

from dataclasses import dataclass

from han.submodules.adapt.sends import Sends, cut_for, sizes_of
from han.submodules.adapt.trees import kin
from han.submodules.parts.pieces import Piece
from han.tasks.context import Context
from han.tasks.stream import Stream


def bcast(context: Context) -> None:
    """Broadcast from the group's root along the tree."""
    (parent, kids), builder = kin(context), context.builder
    children = [child.member for child in kids]
    if (len(children) < 2 or builder.most_branches < 2) and not builder.plan.lockstep:
        _in_one_stream(context, parent, children)
    else:
        _piece_by_piece(context, parent, children)


def _in_one_stream(context: Context, parent: int | None, children: list[int]) -> None:
    """Emit all tasks at once: no branch is of use."""
    ranks, builder, stream = context.group.ranks, context.builder, context.stream
    size, window = sizes_of(context)
    step = max(context.grain, size // context.grain * context.grain)
    ends, builder.requests = stream.forward(
        context.source, context.result, () if parent is None else (ranks[parent],),
        tuple([ranks[child] for child in children]), stream.turns(context.tasks), step, window,
        builder.requests,
    )  # fmt: skip
    stream.end_turns(context.tasks, ends)


def _piece_by_piece(context: Context, parent: int | None, children: list[int]) -> None:
    stream, (pieces, in_all, window) = context.stream, cut_for(context)
    arrivals = None if parent is None else _Arrivals.of(context, parent, pieces, window)
    forward = _Forward.of(context, children, window, in_all)
    for piece in pieces:
        stream.label(piece.task)
        if arrivals is not None:
            arrivals.take(piece)
        elif piece.first:
            stream.begin(piece.task)
        forward.send(piece)
        if piece.last:
            stream.end(piece.task)
        if arrivals is not None:
            arrivals.post_next()
    forward.drain()
    if context.builder.plan.lockstep:
        stream.end(pieces[-1].task)


@dataclass
class _Arrivals:
    """The receives of pieces from the parent, posted `window` ahead."""

    context: Context
    rank: int
    pieces: list[Piece]
    requests: list[int]
    posted: int = 0

    @classmethod
    def of(cls, context: Context, parent: int, pieces: list[Piece], window: int) -> _Arrivals:
        requests = [context.builder.request() for _ in range(min(window, len(pieces)))]
        found = cls(context, context.group.ranks[parent], pieces, requests)
        for _ in requests:
            found.post_next()
        return found

    def post_next(self) -> None:
        """Post the receive of the next piece, if there is one."""
        if self.posted == len(self.pieces):
            return
        piece, stream = self.pieces[self.posted], self.context.stream
        if piece.first:
            stream.begin(piece.task)  # other streams may still read this part of the buffer
        request = self.requests[self.posted % len(self.requests)]
        stream.irecv(self.context.result.to(piece.start), piece.nbytes, self.rank, request)
        self.posted += 1

    def take(self, piece: Piece) -> None:
        """Wait for a piece."""
        self.context.stream.test(self.requests[piece.index % len(self.requests)])


@dataclass
class _Forward:
    """The sends to the children.

    Where more pieces are sent than fit into a window, each child has a branch, so that those with
    free windows get their pieces. `shares` holds the children of each branch.
    """

    context: Context
    sends: list[Sends]
    shares: list[list[int]]

    @classmethod
    def of(cls, context: Context, children: list[int], window: int, pieces: int) -> _Forward:
        builder, stream = context.builder, context.stream
        branches = min(len(children), builder.most_branches)
        if len(children) < 2 or pieces <= window or branches < 2:
            return cls(context, [Sends(stream, window * max(1, len(children)))], [children])
        shares = [children[k::branches] for k in range(branches)]
        return cls(
            context,
            [Sends(builder.branch(stream, k), window * len(s)) for k, s in enumerate(shares)],
            shares,
        )

    def send(self, piece: Piece) -> None:
        """Send a piece that has arrived to all children."""
        at = self.context.source.to(piece.start)
        for sends, children in zip(self.sends, self.shares, strict=True):
            self._label(sends.stream, piece)
            for child in children:
                sends.send(at, piece.nbytes, self.context.group.ranks[child])

    def _label(self, branch: Stream, piece: Piece) -> None:
        branch.label(piece.task)
        branch.follow(self.context.stream)

    def drain(self) -> None:
        """Complete all sends, in lockstep before the stream goes on."""
        for sends in self.sends:
            sends.drain()
            if self.context.builder.plan.lockstep:
                self.context.stream.follow(sends.stream)
