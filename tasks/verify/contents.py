"""What bytes hold in the verifier: expressions, byte by byte of the message.

Most stretches of memory hold one expression. Where blocks of a message were combined by different
ranks, a stretch holds many of them, and is moved as a whole. It then holds a *strip*, which names
the bytes of the message and no addresses, so that copies and parts of a stretch share it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from han.tasks.verify.expressions import Expressions
from han.tasks.verify.order import Strand

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Strip:
    """The expressions of a stretch of the message: each from its cut to the next one.

    `cuts` are offsets in the message. The last expression has no end; spans say where they end.
    """

    cuts: tuple[int, ...]
    expressions: tuple[int, ...]

    def among(self, start: int, stop: int) -> range:
        """Return the indices of the expressions of bytes `start` to `stop` of the message."""
        return range(bisect_right(self.cuts, start) - 1, bisect_left(self.cuts, stop))


Value = int | Strip  # one expression, or several
Content = tuple[Value, int]  # the value, and the offset in the message minus the address
Span = tuple[int, int, Content]  # start, stop and content of bytes
Plain = tuple[int, int, tuple[int, int]]  # a span with one expression


def plain(spans: list[Span]) -> Iterator[Plain]:
    """Yield spans with one expression each."""
    for start, stop, (value, delta) in spans:
        if isinstance(value, int):
            yield start, stop, (value, delta)
            continue
        found = value.among(start + delta, stop + delta)
        inner = (value.cuts[k] - delta for k in found[1:])
        for k, (first, last) in zip(found, pairwise((start, *inner, stop)), strict=True):
            yield first, last, (value.expressions[k], delta)


def joined(spans: list[Span]) -> list[Span]:
    """Return contiguous spans as few ones: one where the bytes of the message are contiguous too.

    Equal bytes give equal spans, however they were cut before.
    """
    if len(spans) == 1 and isinstance(spans[0][2][0], int):
        return spans
    found: list[Span] = []
    for delta, group in groupby(spans, lambda span: span[2][1]):
        some = list(group)
        found.append((some[0][0], some[-1][1], (_value(some, delta), delta)))
    return found


def _value(spans: list[Span], delta: int) -> Value:
    """Return the value of contiguous spans of contiguous bytes of the message."""
    cuts: list[int] = []
    expressions: list[int] = []
    for start, stop, (value, _) in spans:
        if isinstance(value, int):
            first, more = value, range(0)
        else:
            here = value.among(start + delta, stop + delta)
            first, more = value.expressions[here.start], here[1:]
        if not expressions or expressions[-1] != first:
            cuts.append(start + delta)
            expressions.append(first)
        if more and not isinstance(value, int):
            cuts += value.cuts[more.start : more.stop]
            expressions += value.expressions[more.start : more.stop]
    return expressions[0] if len(expressions) == 1 else Strip(tuple(cuts), tuple(expressions))


def combine(a: list[Span], b: list[Span], expressions: Expressions, access: Strand) -> list[Span]:
    """Combine two operands byte by byte; both must hold the same bytes of the message."""
    if len(a) == len(b) == 1:
        ((start, stop, (x, dx)),), ((_, _, (y, dy)),) = a, b
        if dx == dy and isinstance(x, int) and isinstance(y, int):
            return [(start, stop, (expressions.combine(x, y), dx))]
    left, right = list(plain(a)), list(plain(b))
    cuts = sorted({*(s[0] for s in left), *(s[0] for s in right), left[-1][1]})
    found: list[Span] = []
    i = j = 0
    for start, stop in pairwise(cuts):
        i += left[i][1] <= start
        j += right[j][1] <= start
        (x, dx), (y, dy) = left[i][2], right[j][2]
        if dx != dy:
            raise access.problem(
                f"byte {start + dx} of the message combined with byte {start + dy}", NOBODY,
                "the same byte",
            )  # fmt: skip
        found.append((start, stop, (expressions.combine(x, y), dx)))
    return joined(found)
