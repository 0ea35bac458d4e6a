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
    elif len(partials) < 2:  # only from left to right one partial result is enough
        _in_turn(stream, last, operands, nbytes, dst, partials, also, block)
    else:
        _on_a_stack(stream, order, operands, nbytes, dst, partials, also, block)


def _in_turn(
    stream: Stream, last: int, operands: Iterable[Ref], nbytes: int, dst: Ref,
    partials: Sequence[Ref], also: Ref | None, block: int | None,
) -> None:  # fmt: skip
    total: Ref | None = None
    for k, operand in enumerate(operands):
        if total is None:
            total = operand
        elif k < last:
            stream.reduce(partials[0], total, operand, nbytes, block=block)
            total = partials[0]
        else:
            stream.reduce(dst, total, operand, nbytes, also=also, block=block)
            return


def _on_a_stack(
    stream: Stream, order: Order, operands: Iterable[Ref], nbytes: int, dst: Ref,
    partials: Sequence[Ref], also: Ref | None, block: int | None,
) -> None:  # fmt: skip
    stack: list[Ref] = []
    for k, operand in enumerate(operands):
        right = operand
        for _ in range(order[k]):
            left = stack.pop()
            if k == len(order) - 1 and not stack:
                stream.reduce(dst, left, right, nbytes, also=also, block=block)
                return
            into = partials[len(stack)]
            stream.reduce(into, left, right, nbytes, block=block)
            right = into
        stack.append(right)
