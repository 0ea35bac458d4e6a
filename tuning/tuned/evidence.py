"""The measurements behind a row, for a size: what was measured nearest to it, as text too."""

from __future__ import annotations

from han.tasks.signature import Signature
from han.tuning.classes import stands_for
from han.tuning.row import Row
from han.tuning.tuned.points import Point, Timing
from han.tuning.tuned.texts import at, confirmations, origin, spell


def nearest(row: Row, nbytes: int) -> Point | None:
    """Return the measurement of a row for the size that is nearest; None: it names none."""
    size = max(1, nbytes)
    return min(row.measured, key=lambda p: max(size, p.nbytes) / min(size, p.nbytes), default=None)


def described(row: Row, signature: Signature) -> list[str]:
    """Return the measurement behind the decision for a call, and that of the runner-up."""
    point = nearest(row, signature.nbytes)
    far = [f"elsewhere: {row.far}"] if row.far else []
    if point is None:
        return ["nothing: the row names no measurement", *origin(row.source), *far]
    lines = [f"{point.best.describe()} {at(point.nbytes, signature.nbytes)}"]
    if point.use is not None:
        lines.append(f"built-in {_beside(point.default, point.best)}")
        lines += confirmations(point.gains)
    if point.runner_up is not None:
        one = point.runner_up
        lines.append(f"runner-up {spell(one.use)}: {_beside(one.timing, point.best)}")
    about = point.conditions.describe()
    lines += origin(row.source, point.strategy, point.made, point.versions, about)
    return [*lines, *stands_for(about, signature), *far]


def _beside(timing: Timing, best: Timing) -> str:
    """Return a time, and how many times as long as the best one it is."""
    return f"{timing.describe()}, {timing.median / best.median:.2f} times as long"
