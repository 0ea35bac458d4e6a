"""Builders: make the Tasks of each collective, without naming a transport."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from han.model.collectives import BOTH, DOWN, ROWS, UP
from han.tasks.graph import Tasks
from han.tasks.signature import Signature
from han.tasks.tree import chain_of_steps, down, up

Steps = list[tuple[str, int]]


def _both_ways(levels: Sequence[int], fused: bool) -> Steps:
    """Reduce up the levels, then broadcast down; `fused`: one task does both on the outermost."""
    if not fused:
        return up(levels) + down(levels)
    *inner, top = levels
    return [*up(inner), ("allreduce", top), *down(inner)]


# By the kinds of a collective's tasks (`Collective.kinds`).
BUILDERS: dict[tuple[str, ...], Callable[[Sequence[int], bool], Steps]] = {
    DOWN: lambda levels, fused: down(levels),  # ib(0), sbib(1) ... sb(u-1)
    UP: lambda levels, fused: up(levels),  # sr(0), irsr(1) ... ir(u-1)
    BOTH: _both_ways,  # sr, irsr, ibirsr, sbibirsr ...
}


def _steps(collective: str, levels: Sequence[int], fused: bool) -> Steps:
    """List the (task kind, level) that each segment passes through."""
    kinds = ROWS[collective].kinds
    if kinds:
        return BUILDERS[kinds](levels, fused)
    return [(collective, level) for level in levels]  # from owner to receiver: sag(0) sag(1) ...


def build(
    signature: Signature,
    levels: Sequence[int],
    symbols: Sequence[str],
    segment: int | None,
    fused: bool,
) -> Tasks:
    """Build the tasks of a collective over `levels`, those on which the call communicates.

    `fused`: the outermost level has one allreduce task instead of a reduce and a broadcast.
    """
    steps = _steps(signature.collective, levels, fused) if levels else []
    return chain_of_steps(steps, symbols, signature, segment)
