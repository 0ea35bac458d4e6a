"""Merge the tables of several runs: what was measured on the same inputs is combined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from han.common.units import format_size
from han.config.rules import Use
from han.tuning.costs.estimates import Estimate
from han.tuning.measured import GAIN
from han.tuning.tuned.files import joined, later
from han.tuning.tuned.points import Candidate, Point
from han.tuning.tuned.table import TunedTable
from han.tuning.tuned.uses import spell

VERSIONS = ("library_version", "han")  # of which points are not combined


@dataclass(frozen=True)
class Merge:
    """A table of several runs, and what a person should know: where runs contradict each other."""

    table: TunedTable
    notes: tuple[str, ...] = ()


def merge(tables: Sequence[TunedTable]) -> Merge:
    """Merge tables, the latest last; raises TunedError for other machines or conditions.

    Points of one input are combined if versions of han and the MPI library, element type, operation
    and caches are the same.
    Otherwise the later one counts.
    """
    found, notes = tables[0], list[str]()
    for table in tables[1:]:
        found = joined(found, table, partial(_of_both, table.source, notes))
    return Merge(found, tuple(dict.fromkeys(notes)))


def _of_both(source: str, notes: list[str], known: Point, point: Point) -> Point:
    """Return what to keep of an input that two tables have, and note where they differ."""
    differ = _difference(known, point)
    if differ:
        notes.append(f"{source}: {differ}: where both have a point, the later one counts")
        return later(known, point)
    one = combined(known, point)
    if known.use != point.use:
        notes.append(_conflict(known, point, one))
    return one


def _difference(a: Point, b: Point) -> str:
    """Return which versions or conditions of two points differ, or ""."""
    assert a.machine is not None
    assert b.machine is not None
    versions = b.machine.differences(a.machine)
    differ = {k: pair for k, pair in versions.items() if k in VERSIONS}
    differ |= b.conditions.differences(a.conditions)
    return "; ".join(f"{k}: {old}, then {new}" for k, (new, old) in differ.items())


def combined(a: Point, b: Point) -> Point:
    """Combine what two runs measured on one input.

    Load may differ between runs, so the times of each are scaled until its built-in time is that of
    both. A run's choice is taken if no run found it slower; of two, the faster one.
    """
    if a == b or not (a.candidates and b.candidates):
        return b if b.candidates else a
    default = _pooled([a.default, b.default])
    runs = [_scaled(one, default.median) for one in (a, b)]
    pools = _pools(runs)
    pools.sort(key=lambda one: one.timing.median)
    wins = [one for one in (a.use, b.use) if one is not None and _faster_in_all(one, (a, b))]
    best = next((one for one in pools if one.use in wins), None)
    others = [one for one in pools if one is not best]
    library = [one.library for one in runs if one.library is not None]
    return replace(
        b,
        keeps=best is None,
        candidates=tuple(others if best is None else [best, *others]),
        default=default,
        library=_pooled(library) if library else None,
        strategy=" and ".join(dict.fromkeys(filter(None, (a.strategy, b.strategy)))),
        seconds=a.seconds + b.seconds,
        tried=max(a.tried, b.tried),
        complete=a.complete or b.complete,
    )


def _pools(runs: Sequence[Point]) -> list[Candidate]:
    """Return each candidate once, with the times of all runs."""
    found: list[tuple[Use, list[Candidate]]] = []
    for candidate in (one for run in runs for one in run.candidates):
        same = next((some for use, some in found if use == candidate.use), None)
        if same is None:
            found.append((candidate.use, [candidate]))
        else:
            same.append(candidate)
    return [replace(some[-1], timing=_pooled([one.timing for one in some])) for _, some in found]


def _faster_in_all(use: Use, runs: Sequence[Point]) -> bool:
    """Whether no run that measured a use found it slower than what may replace the built-in one."""
    times = [(run.time_of(use), run.default.median) for run in runs]
    return all(seconds <= GAIN * default for seconds, default in times if seconds is not None)


def _scaled(point: Point, default: float) -> Point:
    """Return a point with its times scaled until the built-in choice takes `default` seconds."""
    scale = default / point.default.median
    candidates = tuple(replace(c, timing=c.timing.scaled(scale)) for c in point.candidates)
    library = None if point.library is None else point.library.scaled(scale)
    return replace(point, candidates=candidates, library=library)


def _pooled(times: Sequence[Estimate]) -> Estimate:
    """Return the weighted geometric mean of medians, in an interval that holds all intervals."""
    count = sum(one.count for one in times)
    mean = math.exp(sum(one.count * math.log(one.median) for one in times) / count)
    low, high = min(one.low for one in times), max(one.high for one in times)
    return Estimate(mean, min(low, mean), max(high, mean), count)


def _conflict(a: Point, b: Point, taken: Point) -> str:
    """Return what two runs found for one input, and what is taken."""
    key = b.key
    first, second = (_found(one) for one in (a, b))
    return (
        f"{key.call} of {format_size(b.nbytes)} on {key.nodes} x {key.ppn}: runs differ, {first} "
        f"and {second}; taken: {_named(taken.use)}"
    )


def _found(point: Point) -> str:
    return f"{_named(point.use)} ({point.default.median / point.best.median:.2f})"


def _named(use: Use | None) -> str:
    return "built-in" if use is None else spell(use)
