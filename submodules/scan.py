"""``scan``: scans in messages, over all ranks of a communicator.

- ``doubling``: in each step a member receives from twice as far as in the step before. It gets the
  combination of the operands between, so that it has its result after log2(n) steps.
- ``chain``: a member receives from the one before, piece by piece, and sends to the next one.

Source: Hillis and Steele (doubling).
"""

from __future__ import annotations

from collections import deque

from han.model.program import Ref
from han.submodules.measured import SEGMENT
from han.submodules.parts.mail import MOST, Mail, Transfer, misfit
from han.submodules.parts.pieces import Piece, in_turn, numbered
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Parameter, Question, Submodule, order_kept
from han.tasks.graph import Task

KINDS = ("scan", "exscan")


class Scan(Submodule):
    """Scans in messages."""

    name = "scan"
    about = "scans in messages"
    algorithms = {
        "doubling": Algorithm("everything, log2(n) steps", KINDS, "always", takes=()),
        "chain": Algorithm("pieces from rank to rank", KINDS, "always", takes=("segment",)),
    }
    parameters = {"segment": Parameter("size", "bytes of one message of a chain", 1, MOST)}

    def supports(self, question: Question) -> str | None:
        """Return None if the algorithm can serve the call, else the reason."""
        if question.level in question.topology.active[:-1]:
            return "scans in messages serve the outermost level only"
        kept = order_kept(question, self.algorithms[question.choice.algorithm])
        return misfit(question.signature.element) or kept

    def lower(self, context: Context) -> None:
        """Emit this rank's part of the scan of each task."""
        if context.choice.algorithm == "chain":
            _Chain(context).lower()
            return
        for task in context.tasks:
            context.stream.begin(task)
            _double(context, task)
            context.stream.end(task)


def _inclusive(context: Context) -> bool:
    """Return whether a member's result holds its own operand."""
    return context.stream.kind == "scan"


# ---- doubling -----------------------------------------------------------------------------------


def _double(context: Context, task: Task) -> None:
    """Combine what members before this one send, from ever farther away."""
    stream, mail, start, stop = context.stream, Mail(context), task.start, task.stop
    me, size, distance = context.group.me, context.group.size, 1
    source, result, inclusive = context.source, context.result, _inclusive(context)
    total = source  # the combination of the operands from me - distance + 1 to me
    room = stream.room(task.nbytes, "received").holding(start)
    partial = result if inclusive else stream.room(task.nbytes, "total").holding(start)
    if inclusive and not me:
        stream.copy(result.to(start), source.to(start), task.nbytes)
    while distance < size and (me >= distance or me + distance < size):
        got = mail.receive(room, start, stop, me - distance, MOST) if me >= distance else None
        sent = None
        if me + distance < size:
            sent = mail.send(total, start, stop, me + distance, MOST)
        mail.complete_all(filter(None, (got, sent)))
        if got is not None:
            here, before = result.to(start), room.to(start)
            if inclusive or me + 2 * distance < size:
                stream.reduce(partial.to(start), before, total.to(start), task.nbytes)
                total = partial
            if not inclusive and distance == 1:
                stream.copy(here, before, task.nbytes)
            elif not inclusive:
                stream.reduce(here, before, here, task.nbytes)
        distance *= 2


# ---- chain --------------------------------------------------------------------------------------


class _Chain:
    """One member of a chain, which receives a piece ahead and sends while it goes on."""

    def __init__(self, context: Context) -> None:
        self.context, self.stream, self.mail = context, context.stream, Mail(context)
        self.inclusive = _inclusive(context)
        self.me, self.last = context.group.me, context.group.size - 1
        self.pieces = numbered(context, context.choice.get("segment", SEGMENT))
        self.size = max(piece.nbytes for piece in self.pieces)
        self.sent: deque[Transfer] = deque()
        self.received: deque[Transfer] = deque()

    def lower(self) -> None:
        """Combine all pieces."""
        for number, piece in enumerate(in_turn(self.context, self.pieces)):
            for ahead in self.pieces[number + bool(number) : number + 2] if self.me else ():
                self._receive(ahead)
            self._carry(piece)
            while piece.last and self.sent:  # a later task may write where they are sent from
                self.mail.complete(self.sent.popleft())

    def _room(self, what: str, piece: Piece) -> Ref:
        """Return one of two places for pieces, which they use in turn."""
        return self.stream.room(self.size, (what, piece.index % 2)).holding(piece.start)

    def _receive(self, piece: Piece) -> None:
        room = self._room("received", piece)
        self.received.append(
            self.mail.receive(room, piece.start, piece.stop, self.me - 1, self.size or 1)
        )

    def _carry(self, piece: Piece) -> None:
        """Combine a piece with what has come from the member before, and send it."""
        stream, start, nbytes = self.stream, piece.start, piece.nbytes
        own, result, before = self.context.source, self.context.result, None
        if self.me:
            self.mail.complete(self.received.popleft())
            before = self._room("received", piece)
        if len(self.sent) > 1:
            self.mail.complete(self.sent.popleft())
        total = own if before is None else result if self.inclusive else self._room("total", piece)
        if before is None and self.inclusive:
            stream.copy(result.to(start), own.to(start), nbytes)
        if before is not None and (self.inclusive or self.me < self.last):
            stream.reduce(total.to(start), before.to(start), own.to(start), nbytes)
        if before is not None and not self.inclusive:
            stream.copy(result.to(start), before.to(start), nbytes)
        if self.me < self.last:
            self.sent.append(self.mail.send(total, start, piece.stop, self.me + 1, self.size or 1))
