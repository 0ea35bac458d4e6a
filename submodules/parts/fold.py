"""Combine operands of several members: from left to right, or in the canonical order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from han.model.program import Ref
from han.tasks.canonical import Order
from han.tasks.stream import Stream


def fold(
    stream: Stream,
    order: Order,
    operands: Iterable[Ref],
    nbytes: int,
    dst: Ref,
    partials: Sequence[Ref],
    also: Ref | None = None,
    block: int | None = None,
) -> None:
    """Combine `nbytes` bytes of all operands into `dst`, and into `also` at the same time.

    Each operand is asked for when all earlier combinations have been emitted. `partials` are
    :func:`han.tasks.canonical.rooms` places for partial results. `dst` is written last, unless it
    is one of them. `block` is what is combined, where blocks differ in size.
    """
    stack: list[Ref] = []
    last = len(order) - 1
    for k, (operand, combinations) in enumerate(zip(operands, order, strict=True)):
        stack.append(operand)
        for _ in range(combinations):
            right, left = stack.pop(), stack.pop()
            if k == last and not stack:
                stream.reduce(dst, left, right, nbytes, also=also, block=block)
                return
            stream.reduce(partials[len(stack)], left, right, nbytes, block=block)
            stack.append(partials[len(stack)])
    stream.copy(dst, stack[0], nbytes)
    if also is not None:
        stream.copy(also, stack[0], nbytes)
