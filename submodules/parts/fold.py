"""Combine operands of several members: from left to right, or in the canonical order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from han.model.program import Ref
from han.submodules.measured import FOLD_BLOCK
from han.tasks.canonical import Order
from han.tasks.stream import Stream


def step_of(grain: int) -> int:
    """Return how many bytes are combined at a time: whole grains."""
    return max(1, FOLD_BLOCK // grain) * grain


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
    last = len(order) - 1
    if last < 1:
        (operand,) = operands
        stream.copy(dst, operand, nbytes, block=block)
        if also is not None:
            stream.copy(also, operand, nbytes, block=block)
        return
    stack: list[Ref] = []
    for k, operand in enumerate(operands):
        total = operand
        for _ in range(order[k]):
            left = stack.pop()
            if k == last and not stack:
                stream.reduce(dst, left, total, nbytes, also=also, block=block)
                return
            into = partials[len(stack)]
            stream.reduce(into, left, total, nbytes, block=block)
            total = into
        stack.append(total)
