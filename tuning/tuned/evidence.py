"""The measurements behind a row, for a size: what was measured nearest to it, as text too."""

from __future__ import annotations

from collections.abc import Sequence

from han.common.units import format_size
from han.tasks.signature import Signature
from han.tuning.classes import stands_for
from han.tuning.costs.estimates import Estimate
from han.tuning.row import Row
from han.tuning.tuned.points import Point
from han.tuning.tuned.uses import spell


def nearest(row: Row, nbytes: int) -> Point | None:
    """Return the measurement of a row for the size that is nearest; None: it names none."""
    size = max(1, nbytes)
    return min(row.measured, key=lambda p: max(size, p.nbytes) / min(size, p.nbytes), default=None)


def described(row: Row, signature: Signature) -> list[str]:
    """Return the measurement behind the decision for a call, and that of the runner-up."""
    point = nearest(row, signature.nbytes)
    far = [f"elsewhere: {row.far}"] if row.far else []
    if point is None:
        return ["nothing: the row names no measurement", *_origin(row.source), *far]
    lines = [f"{point.best.describe()} {_at(point.nbytes, signature.nbytes)}"]
    if point.use is not None:
        lines.append(f"built-in {_beside(point.default, point.best)}")
        lines += _confirmations(point.gains)
    if point.runner_up is not None:
        one = point.runner_up
        lines.append(f"runner-up {spell(one.use)}: {_beside(one.timing, point.best)}")
    about = point.conditions.describe()
    lines += _origin(row.source, point.strategy, point.made, point.versions, about)
    return [*lines, *stands_for(about, signature), *far]


def _beside(timing: Estimate, best: Estimate) -> str:
    """Return a time, and how many times as long as the best one it is."""
    return f"{timing.describe()}, {timing.median / best.median:.2f} times as long"


def _at(measured: int, wanted: int) -> str:
    """Return the size that was measured and, if it is another one, the size that is wanted."""
    where = f"at {format_size(measured)}"
    return where if measured == wanted else f"{where}, for {format_size(wanted)}"


def _origin(source: str, strategy: str = "", made: str = "", *more: str) -> list[str]:
    """Return the line that says where a measurement is kept and how it was made, if known."""
    how = " ".join(text for text in (strategy, made) if text)
    told = [text for text in (f"in {source}" if source else "", how, *more) if text]
    return [", ".join(told)] if told else []


def _confirmations(gains: Sequence[float]) -> list[str]:
    """Return the line that says what runs of the bench have found, if there were any."""
    told = ", ".join(f"{gain:.2f}" for gain in gains)
    return [f"built-in {told} times as long by han bench --tuned"] if gains else []
