"""Tuned tables as immutable plain data: measured points, and the decisions between them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from han.common.units import format_size, format_us, plural
from han.config.rules import Use
from han.model.topology import Topology
from han.tasks.signature import Signature
from han.tuning.classes import operation_of
from han.tuning.tuned.conditions import UNKNOWN, Conditions
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.texts import at, confirmations, origin, spell

INSIDE = 8  # largest ratio of a size to the nearest measured one, between measured sizes
GAIN = 0.97  # a choice replaces the built-in one if it takes at most so much of its time
ONLY_INSIDE = "used inside nodes only"
INSIDE_NODES = "inside nodes"  # of the digest of a table without what is between nodes
BEYOND = 2  # the same for sizes below or above all measured ones


@dataclass(frozen=True)
class Timing:
    """A measured time in seconds, and the interval that holds its median with 95 %."""

    median: float
    low: float
    high: float
    count: int

    def describe(self) -> str:
        """Return ``12.3 us (12.1 us to 12.6 us, 40 calls)``."""
        median, low, high = (format_us(s * 1e6) for s in (self.median, self.low, self.high))
        return f"{median} us ({low} to {high} us, {self.count} calls)"


@dataclass(frozen=True)
class Candidate:
    """What was measured; `predicted` are the seconds of the cost model, None without it."""

    use: Use
    timing: Timing
    predicted: float | None = None


@dataclass(frozen=True)
class Key:
    """The calls for which points are comparable; points differ in their sizes.

    `operation` is the class of the operation: "" for calls that do not reduce, ``native``,
    ``heavy`` (kernels slower than memory), ``user-defined`` or ``ordered`` (operands that do not
    commute). A point stands for all types and operations of its class. `shared`: all buffers of all
    ranks are shared arrays, which ranks read where they are.
    """

    collective: str
    operation: str
    nodes: int
    ppn: int
    levels: tuple[str, ...]
    shared: bool = False

    @property
    def call(self) -> str:
        """The collective, as tables and pictures name it: ``bcast on shared arrays``."""
        return f"{self.collective} on shared arrays" if self.shared else self.collective


@dataclass(frozen=True)
class Point:
    """What was found for one size. The best candidate is the first one.

    `keeps` says that the built-in choice is kept: no candidate is faster beyond doubt. `default`
    is the time of the built-in choice with its trials, `library` that of the MPI library.
    """

    key: Key
    nbytes: int
    keeps: bool
    candidates: tuple[Candidate, ...]
    default: Timing
    library: Timing | None = None
    strategy: str = ""
    made: str = ""
    seconds: float = 0.0  # that the search took
    tried: int = 0  # candidates that were measured as whole collectives
    machine: Fingerprint | None = None  # as it was for this point; None: as the table says
    conditions: Conditions = UNKNOWN
    gains: tuple[float, ...] = ()  # of runs of han bench that confirmed the choice
    complete: bool = True  # whether the search had the time for all that it wanted to measure

    @property
    def use(self) -> Use | None:
        """What calls run; None for the built-in choice."""
        return None if self.keeps or not self.candidates else self.candidates[0].use

    @property
    def best(self) -> Timing:
        """The time of what calls run."""
        return self.default if self.use is None else self.candidates[0].timing

    @property
    def compares(self) -> bool:
        """Whether anything was compared with the built-in choice, or there is nothing else."""
        return self.complete or bool(self.candidates)

    def replaces(self, known: Point) -> bool:
        """Whether a table should hold this point in place of an earlier one of its input.

        A search whose time was over replaces none that compared more candidates.
        """
        if (known.candidates and not self.candidates) or (known.tried and not self.tried):
            return False
        return self.complete or self.tried >= known.tried

    @property
    def versions(self) -> str:
        """What the point was measured with, if it is not what its table says; or ""."""
        return "" if self.machine is None else self.machine.versions

    def time_of(self, use: Use | None) -> float | None:
        """Return the measured seconds of a use; None if it was not measured here."""
        if use is None:
            return self.default.median
        return next((c.timing.median for c in self.candidates if c.use == use), None)


@dataclass(frozen=True)
class Found:
    """The point that decides for a size, and how far the size is from it."""

    point: Point
    nbytes: int
    between: tuple[int, int] | None = None  # the measured sizes around `nbytes`
    source: str = ""  # the file of the table

    far: str = ""  # how far the machine of the table is from this one
    rows: tuple[tuple[str, str], ...] = ()  # that decided: those of a table of rows
    ranges: Ranges | None = field(default=None, compare=False, repr=False)  # that it is from

    @property
    def conditions(self) -> str:
        """The conditions of the measurement."""
        return self.point.conditions.describe()

    def of_size(self, nbytes: int) -> Found:
        """Return what decides for a size of the class of sizes whose largest one was asked for."""
        found = None if self.ranges is None else self.ranges.find(nbytes, self.source)
        return found if found is not None and found.use == self.use else self

    @property
    def use(self) -> Use | None:
        """What the call runs; None for the built-in choice."""
        return self.point.use

    @property
    def runner_up(self) -> Candidate | None:
        """The best candidate that was not taken; None if there is none."""
        others = self.point.candidates[0 if self.point.use is None else 1 :]
        return others[0] if others else None

    @property
    def times(self) -> tuple[Timing, Timing] | None:
        """The times of the choice and of what trials compare it with: built-in or runner-up."""
        other = self.point.default
        if self.use is None:
            if self.runner_up is None:
                return None
            other = self.runner_up.timing
        return self.point.best, other

    def describe(self) -> list[str]:
        """Return the measurement behind the decision, and that of the runner-up."""
        point, around = self.point, " beyond the measured sizes"
        if self.between is not None:
            around = f" between {' and '.join(map(format_size, self.between))}"
        lines = [f"{point.best.describe()} {at(point.nbytes, self.nbytes, around)}"]
        if point.use is not None:
            lines.append(f"built-in {beside(point.default, point.best)}")
            lines += confirmations(point.gains)
        if self.runner_up is not None:
            one = self.runner_up
            lines.append(f"runner-up {spell(one.use)}: {beside(one.timing, point.best)}")
        more = point.versions, self.conditions
        return [*lines, *origin(self.source, point.strategy, point.made, *more)]


def beside(timing: Timing, best: Timing) -> str:
    """Return a time, and how many times as long as the best one it is."""
    return f"{timing.describe()}, {timing.median / best.median:.2f} times as long"


@dataclass(frozen=True)
class Ranges:
    """The points of one key by size, and the largest size that each decides for."""

    points: tuple[Point, ...]
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, points: Sequence[Point]) -> Ranges:
        """Sort the points, and find where one takes over from another."""
        ordered = tuple(sorted(points, key=lambda p: p.nbytes))
        bounds = [crossing(a, b) for a, b in pairwise(ordered)]
        return cls(ordered, (*bounds, ordered[-1].nbytes * BEYOND))

    def find(self, nbytes: int, source: str = "") -> Found | None:
        """Return the point that decides for a size; None if all are too far away."""
        at, sizes = bisect_left(self.bounds, nbytes), self._sizes
        if at == len(sizes) or nbytes * BEYOND < sizes[0]:
            return None
        point = self.points[at]
        low = bisect_left(sizes, nbytes)
        between = (sizes[low - 1], sizes[low]) if 0 < low < len(sizes) else None
        ratio = max(nbytes, point.nbytes) / max(1, min(nbytes, point.nbytes))
        if ratio > INSIDE:
            return None
        return Found(point, nbytes, between, source, ranges=self)

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(p.nbytes for p in self.points)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The sizes from which on another choice may hold."""
        edges = [bound + 1 for a, b, bound in self._pairs() if a.use != b.use]
        far = [p.nbytes * INSIDE + 1 for p in self.points]
        near = [-(-p.nbytes // INSIDE) for p in self.points]
        gaps = [n for n in (*far, *near) if self.find(n) is None or self.find(n - 1) is None]
        ends = (-(-self.points[0].nbytes // BEYOND), self.bounds[-1] + 1)
        return tuple(sorted({*edges, *gaps, *ends}))

    def _pairs(self) -> list[tuple[Point, Point, int]]:
        return [(a, b, n) for (a, b), n in zip(pairwise(self.points), self.bounds, strict=False)]


def crossing(small: Point, large: Point) -> int:
    """Return the largest size for which the point of the smaller size decides.

    Times are interpolated on a log scale: the sizes' choices cross where both take the same time.
    Where one was not measured at both sizes, the geometric mean of the sizes is the bound.
    """
    ends = [(point.time_of(small.use), point.time_of(large.use)) for point in (small, large)]
    share = 0.5
    if small.use != large.use and all(a and b for a, b in ends):
        gaps = [math.log(a / b) for a, b in ends if a and b]
        if gaps[0] <= 0 <= gaps[1] and gaps[0] < gaps[1]:
            share = gaps[0] / (gaps[0] - gaps[1])
    reach = math.log(large.nbytes / small.nbytes)
    bound = math.floor(small.nbytes * math.exp(share * reach))
    return min(max(bound, small.nbytes), large.nbytes - 1)


def key_of(signature: Signature, topology: Topology) -> Key:
    """Return the key of a call on a topology."""
    nodes, ppn, levels = topology.nodes, topology.ppn, topology.names
    operation = operation_of(signature)
    return Key(signature.collective, operation, nodes, ppn, levels, signature.mapped)


@dataclass(frozen=True)
class TunedTable:
    """The points of one file, and the machine that they were measured on.

    `digest` stands for the content: ranks with the same digest decide alike.
    """

    points: tuple[Point, ...]
    machine: Fingerprint
    source: str = ""
    digest: str = field(default="", compare=False)
    far: str = field(default="", compare=False)  # how far `machine` is from this one; "": it is not
    inside: bool = field(default=False, compare=False)  # only what was measured on one node

    @cached_property
    def _ranges(self) -> dict[Key, Ranges]:
        points: dict[Key, list[Point]] = {}
        for point in self.points:
            points.setdefault(point.key, []).append(point)
        return {key: Ranges.of(some) for key, some in points.items()}

    def ranges(self) -> list[Ranges]:
        """Return the points of each key by size."""
        return list(self._ranges.values())

    unit: ClassVar = "measured input"  # what `size` counts

    @property
    def size(self) -> int:
        """The number of points."""
        return len(self.points)

    @property
    def named_points(self) -> tuple[Point, ...]:
        """The points, each with the machine on which it was measured."""
        return tuple(replace(p, machine=p.machine or self.machine) for p in self.points)

    def about(self, here: Fingerprint) -> str:
        """Return how far the machine of the table is from this one, and points of other versions.

        ``this machine; 2 of 3 measured inputs with MPICH 4.0, han 1.0``.
        """
        only = [ONLY_INSIDE] if self.inside else []
        return "; ".join([here.distance(self.machine), *self.others(), *only])

    def inside_nodes(self) -> TunedTable:
        """Return the table with only those points that were measured on one node."""
        points = tuple(point for point in self.points if point.key.nodes == 1)
        return replace(self, points=points, digest=f"{self.digest} {INSIDE_NODES}", inside=True)

    def others(self) -> list[str]:
        """Return how many points were measured with which other versions."""
        found = Counter(point.versions for point in self.points if point.versions)
        return [f"{n} of {plural(self.size, self.unit)} with {v}" for v, n in found.items()]

    def find(
        self, signature: Signature, topology: Topology, _traits: tuple[bool, bool] = (False, False)
    ) -> Found | None:
        """Return what decides for a call; None if nothing comparable was measured.

        Calls in place or with blocks of different sizes were not measured.
        """
        if signature.in_place or signature.uneven:
            return None
        call, where = operation_of(signature), (topology.nodes, topology.ppn, topology.names)
        ranges = self._of_calls.get((signature.collective, call, *where, signature.mapped))
        found = None if ranges is None else ranges.find(signature.nbytes, self.source)
        return found if found is None or not self.far else replace(found, far=self.far)

    @cached_property
    def _of_calls(self) -> dict[tuple[object, ...], Ranges]:
        """The points by the fields of their keys, which are found without making a key."""
        return {tuple(vars(key).values()): ranges for key, ranges in self._ranges.items()}

    def uses(self, topology: Topology) -> list[Use]:
        """Return what calls of ranks of a topology may run."""
        points = [point for ranges in self._of(topology) for point in ranges.points]
        return [point.use for point in points if point.use is not None]

    def thresholds(self, topology: Topology) -> tuple[int, ...]:
        """Return the sizes from which on another choice may hold for ranks of a topology."""
        return tuple(sorted({n for ranges in self._of(topology) for n in ranges.thresholds}))

    def calls_of(self, topology: Topology) -> list[str]:
        """Return the collectives whose points hold for ranks of a topology."""
        return list(dict.fromkeys(ranges.points[0].key.call for ranges in self._of(topology)))

    def _of(self, topology: Topology) -> list[Ranges]:
        here = topology.nodes, topology.ppn, topology.names
        return [r for k, r in self._ranges.items() if (k.nodes, k.ppn, k.levels) == here]
