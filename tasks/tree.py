"""The tree family (HAN): reduce up the levels, broadcast down, segment by segment.

Source: Luo et al., HAN, section III-A and III-B.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from han.tasks.graph import LETTERS, Task, TaskGraph
from han.tasks.signature import Signature


def segments(signature: Signature, segment: int | None) -> list[tuple[int, int]]:
    """Cut the message into segments of whole elements; at least one, perhaps empty."""
    nbytes = signature.nbytes
    step = nbytes if segment is None else max(1, segment // signature.element) * signature.element
    if not nbytes:
        return [(0, 0)]
    return [(a, min(a + step, nbytes)) for a in range(0, nbytes, step)]


def chain_of_steps(
    steps: Sequence[tuple[str, int]],
    symbols: Sequence[str],
    signature: Signature,
    segment: int | None,
) -> TaskGraph:
    """Make the graph in which every segment passes through `steps` (kind, level) in turn."""
    graph = TaskGraph()
    before: list[Task] = []
    for i, (start, stop) in enumerate(segments(signature, segment)):
        tasks = [
            Task(symbols[level] + LETTERS[kind], kind, level, i, start, stop)
            for kind, level in steps
        ]
        graph.add_nodes_from(tasks)
        for first, second in pairwise(tasks):
            graph.after(first, second, "data")
        for first, second in zip(before, tasks, strict=False):
            graph.after(first, second, "order")
        before = tasks
    return graph


def up(levels: Sequence[int]) -> list[tuple[str, int]]:
    """Reduce through these levels, innermost first."""
    return [("reduce", k) for k in levels]


def down(levels: Sequence[int]) -> list[tuple[str, int]]:
    """Broadcast through these levels, outermost first."""
    return [("bcast", k) for k in reversed(levels)]
