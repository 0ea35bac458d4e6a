"""``ring``: an allreduce between nodes in which pieces go round all nodes.

A piece is sent on as soon as it has arrived and is combined, and pieces that the node has not
combined yet hold up no earlier ones. A piece that has come round is finished, and the node's
broadcast takes it at once. So the ring overlaps with the tasks inside nodes, piece by piece, in a
single segment.

A rank has `window` receives posted. A receive overwrites a partial result, so the rank first waits
until it has sent that one on. It posts no receive further ahead than the send of such a result.

Source: Jocksch et al., section 2.4; Thakur et al. (ring).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

from han.model.channel_layout import lines
from han.model.program import Ref
from han.submodules.measured import WINDOW
from han.submodules.parts.mail import MOST, Mail, Transfer, misfit
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Parameter, Question, Submodule, order_kept
from han.tasks.graph import Task
from han.tasks.ring import SEGMENT, Span, block_at, blocks_of
from han.tasks.stream import Awaits


class Ring(Submodule):
    """Sends pieces round all nodes."""

    name = "ring"
    by_place = True
    about = "between nodes: pieces go round all nodes while these combine and broadcast others"
    algorithms = {
        "pieces": Algorithm(
            "blocks of pieces go round twice, 2 (n - 1) hops between neighbours",
            ("allreduce",),
            "never",
            families=("ring",),
        )
    }
    parameters = {
        "segment": Parameter("size", "bytes of a piece", 1, MOST),
        "window": Parameter("int", "receives posted ahead", 1, 256),
    }

    def supports(self, question: Question) -> str | None:
        """Return None if it can serve the call, else the reason."""
        kept = order_kept(question, self.algorithms[question.choice.algorithm])
        return misfit(question.signature.element) or kept

    def lower(self, context: Context) -> None:
        """Emit this rank's messages and reductions of each task."""
        mail = Mail(context)
        for task in context.tasks:
            _Turn(context, task, mail).run()


class _Turn:
    """The hops of one task. Position ``p`` is piece ``p % width`` of hop ``1 + p // width``."""

    def __init__(self, context: Context, task: Task, mail: Mail) -> None:
        self.context, self.task, self.stream, self.mail = context, task, context.stream, mail
        group, choice = context.group, context.choice
        self.before, self.behind = ((group.me + step) % group.size for step in (-1, 1))
        most = choice.get("segment", SEGMENT)
        self.blocks = blocks_of(task, context.grain, group.size, most)
        self.width = max(map(len, self.blocks))
        self.half = (group.size - 1) * self.width  # pieces that arrive from here on are finished
        self.window = min(choice.get("window", WINDOW), self.half)
        self.stride = max(lines(b - a) for block in self.blocks for a, b in block)
        self.cells = self.stream.room(self.window * self.stride)
        self.pieces = self._by_position()
        self.awaits = self._awaits()
        self.arriving: dict[int, Transfer] = {}  # by position
        self.sends = deque[tuple[int, Transfer]]()  # under way, with the receiver's position
        self.ends: list[int] = []  # how long the stream is after each piece that is finished

    def _by_position(self) -> tuple[Span | None, ...]:
        """Return what is received at each position; the block that is sent first comes last."""
        me, nodes = self.context.group.me, self.context.group.size
        blocks = [block + (None,) * (self.width - len(block)) for block in self.blocks]
        once = [blocks[block_at(me, nodes, hop)] for hop in range(nodes)]
        return tuple(chain.from_iterable((*once[1:], *once[:-1], once[0])))

    def _awaits(self) -> Iterator[Awaits]:
        """Return what the pieces of the block that is sent first, and those combined, wait for."""
        begun = (*self.pieces[2 * self.half :], *self.pieces[: self.half])
        return self.stream.begin_parts(self.task, filter(None, begun))

    def run(self) -> None:
        """Emit all hops: of each piece a receive, a reduction in the first half, and a send."""
        positions = 2 * self.half
        for position in range(self.window):
            self._post(position)
        self._send_first()
        for position in range(positions):
            self._take(position)
            if position + self.window < positions:
                self._post(position + self.window)
        self._complete_sends(positions)
        ended = list(filter(None, self.pieces[self.half - self.width : positions]))
        self.stream.end_parts(self.task, ended, self.ends)

    def _post(self, position: int) -> None:
        """Start receiving a piece: beside what it is combined with, or as a result.

        A result overwrites a partial one, which has been sent before.
        """
        piece, place = self.pieces[position], self.context.result
        if piece is None:
            return
        if position < self.half:
            place = self._cell(position, piece)
        else:
            self._complete_sends(position - self.half)
        self.arriving[position] = self.mail.receive(place, *piece, self.before, MOST)

    def _cell(self, position: int, piece: Span) -> Ref:
        return (self.cells + position % self.window * self.stride).holding(piece[0])

    def _send_first(self) -> None:
        """Send the pieces of the block that this node sends first."""
        for k, piece in enumerate(self.pieces[2 * self.half :]):
            if piece is not None:
                self._begin()
                self._send(k, self.context.source, piece)

    def _take(self, position: int) -> None:
        """Wait for a piece, combine it, and send it on."""
        piece = self.pieces[position]
        if piece is None:
            return
        self.mail.complete(self.arriving.pop(position))
        if position < self.half:
            self._combine(position, piece)
        if position >= self.half - self.width:
            self.ends.append(len(self.stream))
        if position + self.width < 2 * self.half:
            self._send(position + self.width, self.context.result, piece)

    def _combine(self, position: int, piece: Span) -> None:
        """Combine a piece that has arrived with this node's."""
        start, stop = piece
        self._begin()
        result, own = self.context.result.to(start), self.context.source.to(start)
        self.stream.reduce(result, self._cell(position, piece), own, stop - start)

    def _begin(self) -> None:
        """Wait for this rank's other streams before a piece."""
        for stream, position in next(self.awaits):
            self.stream.await_stream(stream, position)

    def _send(self, position: int, place: Ref, piece: Span) -> None:
        """Send a piece, for which the receiver has a window of receives posted."""
        self._complete_sends(position - self.width - self.window)
        sent = self.mail.send(place, *piece, self.behind, MOST)
        self.sends.append((position, sent))

    def _complete_sends(self, position: int) -> None:
        """Wait for the sends up to a position."""
        while self.sends and self.sends[0][0] <= position:
            self.mail.complete(self.sends.popleft()[1])
