"""The builder of each collective: a Choice becomes Tasks that name no transport."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from han.tasks.graph import Tasks
from han.tasks.signature import BY_BLOCKS, Signature
from han.tasks.tree import chain_of_steps, down, up

Steps = list[tuple[str, int]]


def _bcast(levels: Sequence[int], fused: bool) -> Steps:
    return down(levels)


def _reduce(levels: Sequence[int], fused: bool) -> Steps:
    return up(levels)


def _allreduce(levels: Sequence[int], fused: bool) -> Steps:
    if not fused:
        return up(levels) + down(levels)
    *inner, top = levels
    return [*up(inner), ("allreduce", top), *down(inner)]


def _by_blocks(kind: str) -> Callable[[Sequence[int], bool], Steps]:
    """Every block goes straight from who has it to who wants it: one task, on one level."""
    return lambda levels, fused: [(kind, level) for level in levels]


BUILDERS: dict[str, Callable[[Sequence[int], bool], Steps]] = {
    "bcast": _bcast,  # ib(0), sbib(1) ... sb(u-1)
    "reduce": _reduce,  # sr(0), irsr(1) ... ir(u-1)
    "allreduce": _allreduce,  # sr, irsr, ibirsr, sbibirsr ...; fused: the top level at one go
    "barrier": _allreduce,  # the same without data
    **{kind: _by_blocks(kind) for kind in BY_BLOCKS},  # sag(0) sag(1) ...
}


def build(
    signature: Signature,
    levels: Sequence[int],
    symbols: Sequence[str],
    segment: int | None,
    fused: bool,
) -> Tasks:
    """Build the tasks of a collective over `levels` (those that have something to do).

    `fused` lets the outermost level allreduce in one task rather than reduce and broadcast.
    """
    steps = BUILDERS[signature.collective](levels, fused) if levels else []
    return chain_of_steps(steps, symbols, signature, segment)
