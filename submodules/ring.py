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

from han.model.channel_layout import LINE
from han.model.program import Ref
from han.tasks.context import Context
from han.tasks.contract import TRIED_SIZES, Algorithm, Parameter, Question, Submodule, order_kept
from han.tasks.graph import Task
from han.tasks.ring import SEGMENT, block_at, blocks_of

MOST = 1 << 30  # bytes of a message, so that MPI's counts stay below 2^31
WINDOW = 8


class Ring(Submodule):
    """Sends pieces round all nodes."""

    name = "ring"
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
        "segment": Parameter("size", "bytes of a piece", 1, MOST, tried=TRIED_SIZES),
        "window": Parameter("int", "receives posted ahead", 1, 256, tried=(2, 1, 3, 8)),
    }

    def supports(self, question: Question) -> str | None:
        """Return None if it can serve the call, else the reason."""
        element = question.signature.element
        if element > MOST:
            return f"elements of {element} bytes do not fit into a message of {MOST} bytes"
        return order_kept(question, self.algorithms[question.choice.algorithm])

    def lower(self, context: Context) -> None:
        """Emit this rank's messages and reductions of each task."""
        room: Room | None = None
        for task in context.tasks:
            turn = _Turn(context, task)
            room = room or Room(context, turn)
            turn.run(room)


class Room:
    """Cells for pieces that arrive, and requests that are free."""

    def __init__(self, context: Context, turn: _Turn) -> None:
        self.builder = context.builder
        stride = max(-(-(b - a) // LINE) * LINE for block in turn.blocks for a, b in block)
        at = context.stream.room(turn.window * stride)
        self.cells = [at + number * stride for number in range(turn.window)]
        self.free: list[int] = []

    def request(self) -> int:
        """Return a request that is free."""
        return self.free.pop() if self.free else self.builder.request()


class _Turn:
    """The hops of one task. Position ``p`` is piece ``p % width`` of hop ``1 + p // width``."""

    def __init__(self, context: Context, task: Task) -> None:
        self.context, self.task, self.stream = context, task, context.stream
        group, choice = context.group, context.choice
        self.before = group.ranks[(group.me - 1) % group.size]
        self.behind = group.ranks[(group.me + 1) % group.size]
        most = choice.get("segment", SEGMENT)
        self.blocks = blocks_of(task, context.grain, group.size, most)
        self.width = max(map(len, self.blocks))
        self.half = (group.size - 1) * self.width  # pieces that arrive from here on are finished
        self.window = min(choice.get("window", WINDOW), self.half)
        self.pieces = self._by_position(group.me, group.size)
        self.arriving: dict[int, tuple[int, Ref]] = {}  # request and place of each
        self.sends: deque[tuple[int, int]] = deque()  # position and request of each

    def _by_position(self, me: int, nodes: int) -> list[Task | None]:
        """Return what is received at each position; the block that is sent first comes last."""
        part, filler = self.context.builder.part, [None] * self.width
        blocks = [[part(self.task, *piece) for piece in block] for block in self.blocks]
        found: list[Task | None] = []
        for hop in (*range(1, 2 * nodes - 1), 0):
            block = blocks[block_at(me, nodes, hop)]
            found += [*block, *filler[len(block) :]]
        return found

    def run(self, room: Room) -> None:
        """Emit all hops."""
        self.room = room
        self.stream.label(self.task)
        positions = range(2 * self.half)
        for position in positions[: self.window]:
            self._post(position)
        for position, piece in enumerate(self.pieces[2 * self.half :]):
            if piece is not None:
                self.stream.begin(piece)
                self._send(position, self.context.source.to(piece.start), piece)
        for position in positions:
            self._take(position)
            if position + self.window < len(positions):
                self._post(position + self.window)
        self._complete(len(positions))

    def _post(self, position: int) -> None:
        """Start receiving a piece: beside what it is combined with, or as a result.

        A result overwrites a partial one, which has been sent before.
        """
        piece = self.pieces[position]
        if piece is None:
            return
        if position < self.half:
            place = self.room.cells[position % self.window].holding(piece.start)
        else:
            self._complete(position - self.half)
            place = self.context.result.to(piece.start)
        request = self.room.request()
        self.arriving[position] = request, place
        self.stream.irecv(place, piece.stop - piece.start, self.before, request)

    def _take(self, position: int) -> None:
        """Wait for a piece, combine it, and send it on."""
        piece = self.pieces[position]
        if piece is None:
            return
        request, place = self.arriving.pop(position)
        self.stream.test(request)
        self.room.free.append(request)
        if position < self.half:
            place = self._combine(place, piece)
        if position >= self.half - self.width:
            self.stream.end(piece)
        if position + self.width < 2 * self.half:
            self._send(position + self.width, place, piece)

    def _combine(self, arrived: Ref, piece: Task) -> Ref:
        """Combine a piece that has arrived with this node's; return where the result is."""
        self.stream.begin(piece)
        own, result = self.context.source.to(piece.start), self.context.result.to(piece.start)
        self.stream.reduce(result, arrived, own, piece.stop - piece.start)
        return result

    def _send(self, position: int, place: Ref, piece: Task) -> None:
        """Send a piece; the next node receives it at this position."""
        self._complete(position - self.width - self.window)
        request = self.room.request()
        self.stream.isend(place, piece.stop - piece.start, self.behind, request)
        self.sends.append((position, request))

    def _complete(self, position: int) -> None:
        """Wait for the sends up to a position."""
        while self.sends and self.sends[0][0] <= position:
            _, request = self.sends.popleft()
            self.stream.test(request)
            self.room.free.append(request)
