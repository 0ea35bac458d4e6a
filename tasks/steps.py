"""The steps that each segment of a call passes through, and the tasks of all segments.

Source: Luo et al., HAN, section III-A and III-B.
"""

from __future__ import annotations

from collections.abc import Sequence

from han.model.collectives import BOTH, ROWS
from han.tasks.graph import Segments, Tasks
from han.tasks.signature import Signature

Steps = list[tuple[str, int]]  # kinds of tasks, and levels


def segments(signature: Signature, segment: int | None) -> Segments:
    """Cut the message into segments of whole grains; at least one, perhaps empty."""
    nbytes, grain = signature.nbytes, signature.grain
    step = nbytes if segment is None else max(1, segment // grain) * grain
    return Segments(nbytes, step or 1)


def chain_of_steps(
    steps: Steps,
    symbols: Sequence[str],
    signature: Signature,
    segment: int | None,
) -> Tasks:
    """Make the tasks of every segment, which passes through `steps` (kind, level) in turn."""
    named = tuple([
        (symbols[level] + ROWS[kind].letter + _turn(steps[:k].count((kind, level))), kind, level)
        for k, (kind, level) in enumerate(steps)
    ])  # fmt: skip
    return Tasks(named, segments(signature, segment))


def _turn(before: int) -> str:
    """Number the names of steps of one kind on one level from the second on: ``sa``, ``sa2``."""
    return str(before + 1) if before else ""


def up(levels: Sequence[int]) -> Steps:
    """Return the steps that reduce through these levels, innermost first."""
    return [("reduce", k) for k in levels]


def down(levels: Sequence[int]) -> Steps:
    """Return the steps that broadcast through these levels, outermost first."""
    return [("bcast", k) for k in reversed(levels)]


def of_tree(collective: str, levels: Sequence[int], fused: bool) -> Steps:
    """Return the steps of a tree over `levels`: reduce up the levels, then broadcast down.

    `fused`: one task on the outermost level does both, if the collective has both.
    """
    kinds = ROWS[collective].kinds
    if not kinds:
        return [(collective, level) for level in levels]  # from owner to receiver: sag(0) sag(1)
    if fused and kinds == BOTH:
        *inner, top = levels
        return [*up(inner), ("allreduce", top), *down(inner)]  # sr, iasr, sbiasr ...
    # ib(0), sbib(1) ... sb(u-1); sr(0), irsr(1) ... ir(u-1); sr, irsr, ibirsr, sbibirsr ...
    steps_up = up(levels) if "reduce" in kinds else []
    return steps_up + (down(levels) if "bcast" in kinds else [])
