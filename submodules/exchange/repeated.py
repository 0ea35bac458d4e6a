"""The exchanges of repeated steps (nap), in which some members have no operand.

Such a member shows nothing, so it does not tell the others that it has read what they have shown
before. Where banks of cells are used again, each member of an allreduce therefore counts the pieces
that it has finished, and those that write wait for all counts. In a reduce the root counts, also
where it alone has an operand or nobody has: members without one take no part.
"""

from __future__ import annotations

from dataclasses import replace

from han.model.topology import Group
from han.submodules.exchange import halves
from han.submodules.exchange.node import Exchange, exchange_pieces
from han.submodules.exchange.rounds import Joined, Rounds
from han.submodules.parts.cells import COMBINED, READ
from han.submodules.parts.pieces import Piece, in_turn, numbered
from han.tasks.context import Context
from han.tasks.outline import Outline


def footprint(plan: Outline, level: int) -> int:
    """Return how many bytes of each rank's ring of cells a run takes."""
    if ("allreduce", level) in plan.worked:
        return Rounds.of(plan, level, "allreduce").nbytes
    return halves.footprint(plan, level)


def lower(context: Context) -> None:
    """Emit this rank's operations for the tasks of a step."""
    kind, operands = context.stream.kind, context.contributors
    if kind == "bcast":
        halves.lower(context)
    elif kind == "allreduce":
        others = (m for m in range(context.group.size) if m not in operands)
        ordered = replace(context, group=_among(context.group, (*operands, *others)))
        exchange_pieces(context, _Allreduce(ordered, len(operands)))
    elif context.group.me in operands:
        ordered = replace(context, group=_among(context.group, operands), contributes=())
        exchange_pieces(context, _Reduce(ordered))
    else:
        _pass(context)


def _among(group: Group, members: tuple[int, ...]) -> Group:
    """Return the group of some members, in another order.

    In a reduce, the root has an operand if any member has one.
    """
    ranks, slots = (tuple(of[m] for m in members) for of in (group.ranks, group.slots))
    return Group(group.level, ranks, slots, members.index(group.root), members.index(group.me))


def _pass(context: Context) -> None:
    """Take no part in a reduce; a root counts the pieces if nobody has an operand."""
    stream, group, level = context.stream, context.group, context.group.level
    rounds = Rounds.of(context.builder.plan, level, "reduce")
    for piece in in_turn(context, numbered(context, rounds.chunk)):
        if group.leads and rounds.recycled:
            flag = context.flag(group.me, COMBINED)
            stream.post(flag, piece.index * rounds.values + rounds.values - 1)


class _Allreduce(Exchange):
    """One member's part in an allreduce; the first members of the group have operands."""

    def __init__(self, context: Context, operands: int) -> None:
        self.rounds = Rounds.of(context.builder.plan, context.group.level, "allreduce")
        self.operands = operands
        super().__init__(context, self.rounds.layout(context.group.size, operands))
        self.bank, self.banks = self.rounds.bank, self.rounds.banks
        self.values, self.unheard = self.rounds.values, ()

    def combine(self, piece: Piece) -> None:
        """Carry out all combining stages.

        If a piece is empty, a further member waits for a first one, which has heard of all others.
        """
        super().combine(piece)
        if piece.nbytes or not isinstance(self.pattern, Joined):
            return
        if self.group.me < self.operands:
            self.post(piece, self.pattern.stages)
        else:
            self.wait_for(piece, (self.pattern.twin(self.group.me), self.pattern.stages))

    def combine_and_take(self, piece: Piece) -> None:
        """Carry out a piece, then count it."""
        super().combine_and_take(piece)
        if self.rounds.recycled:
            self.stream.post(self.context.flag(self.group.me, READ), piece.index + 1)

    def await_readers(self, piece: Piece) -> None:
        """Wait until all members have finished the piece that was in the bank before."""
        if self.group.me >= self.operands or piece.index < self.banks:
            return
        for member in range(self.group.size):
            if member != self.group.me:
                self.wait_until(member, READ, piece.index - self.banks + 1)


class _Reduce(halves.Reduce):
    """One member's part in a reduce among the members that have operands."""

    def __init__(self, context: Context) -> None:
        self.rounds = Rounds.of(context.builder.plan, context.group.level, "reduce")
        members = context.group.size
        super().__init__(context, self.rounds.layout(members, members))
        self.bank, self.values = self.rounds.bank, self.rounds.values
        self.taken = self.values - 1
