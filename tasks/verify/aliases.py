"""One walk that proves a reduction with MPI.IN_PLACE and with two buffers.

In place, the send buffer is the receive buffer. The walk sees the bytes through two views, and
notices what would differ with two buffers: a read of an operand that has been replaced, a read of
a result before it is written, or a write into the send buffer. If there is no such access, every
access finds the same bytes in two buffers as in one, and fewer accesses are in conflict.
"""

from __future__ import annotations

from dataclasses import dataclass

from han.tasks.verify.contents import Span
from han.tasks.verify.expressions import Expressions
from han.tasks.verify.memory import Memory
from han.tasks.verify.order import Strand


@dataclass
class Apart:
    """Whether all accesses so far would find the same in two buffers."""

    holds: bool = True


class View(Memory):
    """The bytes of one buffer, as the send buffer or as the receive buffer."""

    __slots__ = ("apart",)
    written = True  # whether the bytes that are read must have been written

    def __init__(self, apart: Apart) -> None:
        super().__init__()
        self.apart = apart

    def read(self, start: int, stop: int, access: Strand) -> list[Span]:
        """Return the spans of bytes, and notice whether they would be the same in two buffers."""
        spans = super().read(start, stop, access)
        for k in self._range(start, stop):
            if (self.segments[k].writer >= 0) != self.written:
                self.apart.holds = False
        return spans

    def accumulate(
        self, start: int, spans: list[Span], expressions: Expressions, access: Strand
    ) -> None:
        """Combine operands into bytes that must have been written."""
        for k in self._range(start, start + spans[-1][1]):
            if self.segments[k].writer < 0:
                self.apart.holds = False
        super().accumulate(start, spans, expressions, access)


class Operand(View):
    """The view of the send buffer: nothing has been written in what it reads."""

    __slots__ = ()
    written = False

    def __init__(self, result: View) -> None:
        super().__init__(result.apart)
        self.starts, self.segments = result.starts, result.segments

    def write(self, start: int, spans: list[Span], access: Strand) -> None:
        """Write to the bytes, which would be wrong in a send buffer."""
        self.apart.holds = False
        super().write(start, spans, access)

    def await_(self, start: int, stop: int, access: Strand) -> None:
        """Let a message write to the bytes, which would be wrong in a send buffer."""
        self.apart.holds = False
        super().await_(start, stop, access)

    def abandon(self, access: Strand) -> None:
        """Do nothing: the view of the receive buffer returns the bytes to their owner."""
