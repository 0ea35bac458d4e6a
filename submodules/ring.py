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

from itertools import chain

from han.model.channel_layout import LINE
from han.submodules.parts.mail import MOST
from han.tasks.context import Context
from han.tasks.contract import TRIED_SIZES, Algorithm, Parameter, Question, Submodule, order_kept
from han.tasks.graph import Task
from han.tasks.ring import SEGMENT, Piece, block_at, blocks_of

WINDOW = 8


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
        stride = max(-(-(b - a) // LINE) * LINE for block in turn.blocks for a, b in block)
        at = context.stream.room(turn.window * stride)
        self.cells = tuple([at + number * stride for number in range(turn.window)])
        self.free: tuple[int, ...] = ()


class _Turn:
    """The hops of one task. Position ``p`` is piece ``p % width`` of hop ``1 + p // width``."""

    def __init__(self, context: Context, task: Task) -> None:
        self.context, self.task, self.stream = context, task, context.stream
        group, choice = context.group, context.choice
        before, behind = ((group.me + step) % group.size for step in (-1, 1))
        self.peers = group.ranks[before], group.ranks[behind]
        most = choice.get("segment", SEGMENT)
        self.blocks = blocks_of(task, context.grain, group.size, most)
        self.width = max(map(len, self.blocks))
        self.half = (group.size - 1) * self.width  # pieces that arrive from here on are finished
        self.window = min(choice.get("window", WINDOW), self.half)

    def _by_position(self) -> tuple[Piece | None, ...]:
        """Return what is received at each position; the block that is sent first comes last."""
        me, nodes = self.context.group.me, self.context.group.size
        blocks = [block + (None,) * (self.width - len(block)) for block in self.blocks]
        once = [blocks[block_at(me, nodes, hop)] for hop in range(nodes)]
        return tuple(chain.from_iterable((*once[1:], *once[:-1], once[0])))

    def run(self, room: Room) -> None:
        """Emit all hops: of each piece a receive, a reduction in the first half, and a send.

        A result overwrites a partial one, which has been sent before.
        """
        context, builder, pieces = self.context, self.context.builder, self._by_position()
        begun = [*pieces[2 * self.half :], *pieces[: self.half]]
        ended = list(filter(None, pieces[self.half - self.width : 2 * self.half]))
        awaits = tuple(self.stream.begin_parts(self.task, filter(None, begun)))
        ends, room.free, builder.requests = self.stream.circulate(
            context.source, context.result, room.cells[: self.window], self.peers, pieces,
            self.width, awaits, room.free, builder.requests,
        )  # fmt: skip
        self.stream.end_parts(self.task, ended, ends)
