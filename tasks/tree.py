"""The tree family (HAN): reduce up the levels, broadcast down, segment by segment.

Source: Luo et al., HAN, section III-A and III-B.
"""

from __future__ import annotations

from collections.abc import Sequence

from han.model.collectives import ROWS
from han.tasks.graph import Chains, Segments, Tasks
from han.tasks.signature import Signature


def segments(signature: Signature, segment: int | None) -> Segments:
    """Cut the message into segments of whole grains; at least one, perhaps empty."""
    nbytes, grain = signature.nbytes, signature.grain
    step = nbytes if segment is None else max(1, segment // grain) * grain
    return Segments(nbytes, step or 1)


def chain_of_steps(
    steps: Sequence[tuple[str, int]],
    symbols: Sequence[str],
    signature: Signature,
    segment: int | None,
) -> Tasks:
    """Make the tasks of every segment, which passes through `steps` (kind, level) in turn."""
    named = [
        (symbols[level] + ROWS[kind].letter + _turn(steps[:k].count((kind, level))), kind, level)
        for k, (kind, level) in enumerate(steps)
    ]
    return Chains(named, segments(signature, segment))


def _turn(before: int) -> str:
    """Number the names of steps of one kind on one level from the second on: ``sa``, ``sa2``."""
    return str(before + 1) if before else ""


def up(levels: Sequence[int]) -> list[tuple[str, int]]:
    """Return the steps that reduce through these levels, innermost first."""
    return [("reduce", k) for k in levels]


def down(levels: Sequence[int]) -> list[tuple[str, int]]:
    """Return the steps that broadcast through these levels, outermost first."""
    return [("bcast", k) for k in reversed(levels)]
