"""What a rank does with each piece of some tasks, told once for all pieces.

A row is an operation of every piece: ``(stream, name, ahead, *operands)``. In step k it is that of
piece ``k + ahead``, if there is such a piece. So a row may receive pieces ahead of those that
others use, or complete sends long after they were started.

=============== ==================================================================================
name            operands
=============== ==================================================================================
``label``       none: operations that follow belong to the piece's task
``begin``       none: before a task's first piece, wait for what the task needs of other streams
``end``         none: the stream has done a task with its last piece
``follow``      another stream and its number: wait until it has done all that it has been given
``copy``        two places
``reduce``      three places
``accumulate``  two places
``fold``        result and own operand; the cells of all operands, in turn; the place of the own
                one, the order, places for partial results; flags, ranks, and a count
``post``        a flag, and a count
``wait``        flags, ranks, and a count
``isend``       a place, a rank, and requests in turn; likewise ``irecv``
``test``        requests in turn
=============== ==================================================================================

A place is memory of the whole message, or a tuple of cells that pieces use in turn. A count is two
numbers: the value of a flag is so many for each earlier piece, and some more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from han._native import each_piece
from han.common.kept import kept
from han.model.program import Ref
from han.submodules.parts.pieces import number
from han.tasks.context import Context

Place = Ref | tuple[Ref, ...]
Row = tuple[Any, ...]  # a stream, a name, how many pieces ahead, and operands


class Series:
    """The pieces of a context's tasks: whole grains, at most `size` bytes, numbered."""

    def __init__(self, context: Context, size: int, index: int = 0) -> None:
        self.stream, self.tasks, self.index = context.stream, context.tasks, index
        self.step = max(context.grain, size // context.grain * context.grain)
        self.count = number(self.tasks, size, context.grain)
        self.turns = self.stream.turns(self.tasks)

    @classmethod
    def numbered(cls, context: Context, size: int) -> Series:
        """Return the pieces, numbered on from the stream's earlier ones."""
        found = cls(context, size, context.stream.sequence)
        context.stream.sequence += found.count
        return found

    @kept
    def most(self) -> int:
        """Bytes of the largest piece."""
        return min(self.step, max([task.nbytes for task in self.tasks]))

    def emit(self, rows: Sequence[Row], first: int = 0, stop: int | None = None) -> None:
        """Emit the rows of steps; by default of one for each piece."""
        stop = self.count if stop is None else stop
        ends = each_piece(tuple(rows), self.turns, self.step, self.index, first, stop)
        for task, position in zip(self.tasks, ends, strict=False):
            self.stream.end(task, position)
