"""Broadcasts of ``adapt``: a rank forwards each piece when it has arrived."""

from __future__ import annotations

from dataclasses import dataclass

from han.model.program import Ref
from han.submodules.adapt.sends import Sends, cut_for
from han.submodules.adapt.trees import kin
from han.submodules.parts.pieces import Piece
from han.tasks.context import Context
from han.tasks.stream import Stream


def bcast(context: Context) -> None:
    """Broadcast from the group's root along the tree."""
    parent, kids = kin(context)
    children = [context.group.ranks[child.member] for child in kids]
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


@dataclass(slots=True)
class _Arrivals:
    """The receives of pieces from the parent, posted `window` ahead."""

    stream: Stream
    result: Ref
    rank: int
    pieces: list[Piece]
    requests: list[int]
    posted: int = 0

    @classmethod
    def of(cls, context: Context, parent: int, pieces: list[Piece], window: int) -> _Arrivals:
        requests = [context.builder.request() for _ in range(min(window, len(pieces)))]
        rank = context.group.ranks[parent]
        found = cls(context.stream, context.result, rank, pieces, requests)
        for _ in requests:
            found.post_next()
        return found

    def post_next(self) -> None:
        """Post the receive of the next piece, if there is one."""
        number = self.posted
        if number == len(self.pieces):
            return
        piece, stream = self.pieces[number], self.stream
        if piece.first:
            stream.begin(piece.task)  # other streams may still read this part of the buffer
        request = self.requests[number % len(self.requests)]
        stream.irecv(self.result.to(piece.start), piece.nbytes, self.rank, request)
        self.posted = number + 1

    def take(self, piece: Piece) -> None:
        """Wait for a piece."""
        self.stream.test(self.requests[piece.index % len(self.requests)])


@dataclass
class _Forward:
    """The sends to the children, whose ranks stand beside the sends of their branch.

    Where more pieces are sent than fit into a window, each child has a branch, so that those with
    free windows get their pieces.
    """

    context: Context
    shares: list[tuple[Sends, list[int]]]
    branched: bool

    @classmethod
    def of(cls, context: Context, children: list[int], window: int, pieces: int) -> _Forward:
        builder, stream = context.builder, context.stream
        branches = min(len(children), builder.most_branches)
        if len(children) < 2 or pieces <= window or branches < 2:
            return cls(context, [(Sends(stream, window * len(children)), children)], False)
        shares = [children[k::branches] for k in range(branches)]
        sends = [Sends(builder.branch(stream, k), window * len(s)) for k, s in enumerate(shares)]
        return cls(context, list(zip(sends, shares, strict=True)), True)

    def send(self, piece: Piece) -> None:
        """Send a piece that has arrived to all children."""
        at = self.context.source.to(piece.start)
        for sends, ranks in self.shares:
            if self.branched:
                sends.stream.label(piece.task)
                sends.stream.follow(self.context.stream)
            for rank in ranks:
                sends.send(at, piece.nbytes, rank)

    def drain(self) -> None:
        """Complete all sends, in lockstep before the stream goes on."""
        for sends, _ in self.shares:
            sends.drain()
            if self.context.builder.plan.lockstep:
                self.context.stream.follow(sends.stream)
