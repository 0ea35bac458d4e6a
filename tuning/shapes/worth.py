"""Which shapes of a cluster are worth a run of the tuner: few, where predictions are in doubt.

All models explain the costs that were measured. Where one of them sees the choice of another far
from its best, only a measurement tells which is right. A prediction for a shape that is far from
all measured ones has an error of its own. One run serves the shapes around it too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from han.common.grouped import grouped
from han.tuning.search.portfolio import Case

Shape = tuple[int, int]  # nodes, and ranks of each

MOST = 3  # shapes that are named
DOUBTFUL = 1.05  # from which doubt on a run is worth while
AROUND = 1.0  # factors of two, of nodes and of ranks together, that a run reaches


class Worth(NamedTuple):
    """A shape, and the doubt about its calls: how many times as long as the best one a choice may
    take, a geometric mean."""

    shape: Shape
    doubt: float


def worth_a_run(
    ratios: Mapping[Case, Mapping[int, Sequence[float]]], measured: Iterable[Shape], error: float
) -> list[Worth]:
    """Return the shapes that are worth a run, the most doubtful first.

    `error` is the mean relative error of the models where costs were measured. It grows with the
    distance from there.
    """
    known = [*measured]
    of_shapes = grouped(((case.nodes, case.ppn), _doubt(found)) for case, found in ratios.items())
    doubts = {
        shape: math.exp(sum(some) / len(some) + error * min(_distance(shape, one) for one in known))
        for shape, some in of_shapes.items()
        if shape not in known
    }
    found: list[Worth] = []
    for shape in sorted(doubts, key=lambda one: (-doubts[one], one)):
        near = any(_distance(shape, one.shape) <= AROUND for one in found)
        if doubts[shape] >= DOUBTFUL and not near and len(found) < MOST:
            found.append(Worth(shape, doubts[shape]))
    return found


def _doubt(found: Mapping[int, Sequence[float]]) -> float:
    """Return the logarithm of how far a model's choice is from the best one of another model."""
    machines = range(len(next(iter(found.values()))))
    best = [min(found, key=lambda k: found[k][machine]) for machine in machines]
    return math.log(max(found[k][machine] for k in best for machine in machines))


def _distance(a: Shape, b: Shape) -> float:
    """Return the factors of two between two shapes, of nodes and of ranks."""
    return sum(abs(math.log2(x / y)) for x, y in zip(a, b, strict=True))
