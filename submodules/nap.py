"""``nap``: the messages of a round of the node-aware parallel allreduce.

Every rank of a node exchanges with another node; :mod:`han.tasks.nap` says who sends to whom. The
operands that arrive are combined inside the node, by the submodule of that level. A rank that is
alone on its node combines them itself.

Source: Bienz, Olson, Gropp, Node-aware improvements to allreduce, section III.
"""

from __future__ import annotations

from han.model.program import Ref
from han.submodules.parts.fold import fold
from han.submodules.parts.mail import MOST, Mail, Transfer, misfit
from han.tasks.canonical import linear
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Parameter, Question, Submodule
from han.tasks.graph import Task


class Nap(Submodule):
    """Exchanges partial results between nodes, one message for each rank in a round."""

    name = "nap"
    about = "between nodes: each rank of a node exchanges with another node (Bienz)"
    algorithms = {
        "pairs": Algorithm(
            "one message for each rank in each of log_base(nodes) rounds",
            ("allreduce",),
            "always",
            one_segment=True,
            families=("nap",),
        )
    }
    parameters = {
        "base": Parameter(
            "int",
            "subgroups that a round brings together; 0: the ranks of the smallest node",
            0,
            1 << 16,
        )
    }

    def supports(self, question: Question) -> str | None:
        """Return None if it can serve the call, else the reason."""
        return misfit(question.signature.element)

    def lower(self, context: Context) -> None:
        """Emit this rank's messages of each task."""
        for task in context.tasks:
            context.stream.begin(task)
            _exchange(context, task)
            context.stream.end(task)


def _exchange(context: Context, task: Task) -> None:
    """Send this rank's partial result, receive those of other nodes, and wait for all messages."""
    letters, mail = context.letters, Mail(context)
    assert letters is not None, "the family nap has letters"
    room = context.builder.scratch(task.nbytes) if letters.folds else context.result
    received = [
        mail.receive(room, task.start, task.stop, member, MOST) for member in letters.receives
    ]
    sent = [
        mail.send(context.source, task.start, task.stop, member, MOST) for member in letters.sends
    ]
    mail.complete_all((*received, *sent))
    if letters.folds:
        _fold(context, task, received, letters.before)


def _fold(context: Context, task: Task, received: list[Transfer], before: int) -> None:
    """Combine the operands in the order of subgroups, where no other rank is on the node."""
    operands: list[Ref] = [transfer.place for transfer in received]
    operands.insert(before, context.source)
    here, result = [one.to(task.start) for one in operands], context.result.to(task.start)
    fold(context.stream, linear(len(here)), here, task.nbytes, result, [result])
