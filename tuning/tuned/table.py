"""Tuned tables: points become rows, and what of the rows of a machine holds on some ranks.

A row ends where another choice takes over, or where measurements do not reach.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from han.common.units import format_size, plural
from han.config.rules import Use, When
from han.model.collectives import ROWS
from han.model.facts import PLACES, Facts
from han.model.topology import Topology
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import NodeTraits, facts_of_call
from han.tuning.classes import TUNED
from han.tuning.measured import REACH_BEYOND, REACH_INSIDE
from han.tuning.row import Row, Rows, thresholds
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.points import MeasuredCall, Point
from han.tuning.tuned.tasks import TaskCost

OPERATIONS = {  # the facts of reductions of each class
    "native": {"commutative": True, "native": True, "heavy": False},
    "heavy": {"commutative": True, "native": True, "heavy": True},
    "user-defined": {"commutative": True, "native": False},
    "ordered": {"commutative": False},
}
OF_POINTS = {
    "bytes", "nodes", "ppn", "mapped", "in_place", "uneven", "commutative", "native", "heavy",
}  # fmt: skip

Reach = tuple[Point, int, int]  # a point, and the least and the largest size that it decides for


def rows_of(points: Iterable[Point]) -> tuple[Row, ...]:
    """Return the rows that decide by points: adjacent sizes with one choice are one row."""
    return tuple(
        _row(key, run) for key, some in by_key(points).items() for run in _runs([*_reaches(some)])
    )


def by_key(points: Iterable[Point]) -> dict[MeasuredCall, list[Point]]:
    """Return the points of each key by size; of two of one size, the later one."""
    found: dict[MeasuredCall, dict[int, Point]] = {}
    for point in points:
        found.setdefault(point.key, {})[point.nbytes] = point
    return {key: [some[nbytes] for nbytes in sorted(some)] for key, some in found.items()}


def _reaches(points: Sequence[Point]) -> Iterator[Reach]:
    """Yield each point of a key with the least and the largest size that it decides for."""
    bounds = [crossing(a, b) for a, b in pairwise(points)]
    lows = [-(-points[0].nbytes // REACH_BEYOND), *(bound + 1 for bound in bounds)]
    highs = [*bounds, points[-1].nbytes * REACH_BEYOND]
    for point, low, high in zip(points, lows, highs, strict=True):
        yield (
            point,
            max(low, -(-point.nbytes // REACH_INSIDE)),
            min(high, point.nbytes * REACH_INSIDE),
        )


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


def _runs(reaches: Sequence[Reach]) -> Iterator[list[Reach]]:
    """Yield what adjoins and decides for one choice."""
    run = [*reaches[:1]]
    for last, one in pairwise(reaches):
        if one[0].use != last[0].use or one[1] != last[2] + 1:
            yield run
            run = []
        run.append(one)
    yield run


def _row(key: MeasuredCall, run: Sequence[Reach]) -> Row:
    points = tuple(point for point, _, _ in run)
    low, high = run[0][1], run[-1][2]
    of = f" ({key.operation})" if key.operation not in ("", "native") else ""
    sizes = f"{format_size(low)} to {format_size(high)}"
    name = f"{key.call}{of}, {sizes}, {key.nodes} x {key.ppn}"
    return Row(name, _when(key, low, high), points[0].use, measured=points, rule=TUNED)


def _when(key: MeasuredCall, low: int, high: int) -> When:
    """Return the calls of a key from one size to another."""
    row = ROWS[key.collective]
    flags = {
        **OPERATIONS.get(key.operation, {}),
        "mapped": key.shared,
        **({"in_place": False} if row.replaces else {}),
        **({"uneven": False} if row.uneven else {}),
    }
    ends = {"bytes": (low, high), "nodes": (key.nodes,) * 2, "ppn": (key.ppn,) * 2}
    return When.of((key.collective,), {**ends, **flags}, key.levels)


def when_of_key(key: MeasuredCall, nbytes: int) -> dict[str, Any]:
    """Return the calls of a key and a size, as files write them."""
    return _when(key, nbytes, nbytes).document() | {"levels": [*key.levels]}


def key_of_row(when: When) -> MeasuredCall | None:
    """Return the key of the points that made a row; None for a row that a person wrote."""
    names = {Facts._fields[k] for k, _, _ in when.tests}
    ends = {Facts._fields[k]: low for k, low, high in when.tests if low == high}
    if len(when.collective) != 1 or not {"nodes", "ppn"} <= {*ends} or not names <= OF_POINTS:
        return None
    operations = (name for name, own in OPERATIONS.items() if own.items() <= ends.items())
    shared = bool(ends.get("mapped", 0))
    operation = next(operations, "")
    return MeasuredCall(
        when.collective[0], operation, ends["nodes"], ends["ppn"], when.levels, shared
    )


SHAPES = 64  # of which a table remembers its rows
INSIDE_NODES = "inside nodes"  # of the digest of a table without what is between nodes
ONLY_INSIDE = "used inside nodes only"
_ONE_NODE = PLACES["nodes"], 1, 1
_NEEDS_ARRAYS = PLACES["mapped"], 1, 1


# ---- tables -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TunedTable:
    """The rows of one file, or of several, and the machine that the first was measured on.

    `digest` stands for the content: ranks with the same digest decide alike. `note` says that the
    file is of an earlier format. `tasks` tell of other numbers of nodes and ranks.
    """

    rows: tuple[Row, ...]
    machine: Fingerprint
    source: str = ""
    digest: str = field(default="", compare=False)
    note: str = field(default="", compare=False)
    tasks: tuple[TaskCost, ...] = ()

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.rows)

    @property
    def predicted(self) -> tuple[Row, ...]:
        """The rows for numbers of nodes and ranks that were not measured."""
        return tuple(row for row in self.rows if row.predicted)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The measurements from which rows were made, in the order of files."""
        found = (p for row in self.rows if key_of_row(row.when) for p in row.measured)
        return tuple(sorted(found, key=_order))

    @property
    def named_points(self) -> tuple[Point, ...]:
        """The points, each with the machine on which it was measured."""
        return tuple(replace(p, machine=p.machine or self.machine) for p in self.points)

    def about(self, here: Fingerprint) -> str:
        """Return how far the machine of the table is from this one, and points of other versions.

        ``this machine; 2 of 3 measured inputs with MPICH 4.0, han 1.0``.
        """
        only = [] if here.links_as(self.machine) else [ONLY_INSIDE]
        return "; ".join([here.distance(self.machine), *self.others(), *only])

    def others(self) -> list[str]:
        """Return how many points were measured with which other versions."""
        found = Counter(point.versions for point in self.points if point.versions)
        return [f"{n} of {plural(len(self.points), 'measured input')} with {v}"
                for v, n in found.items()]  # fmt: skip

    def seen_from(self, here: Fingerprint) -> TunedTable:
        """Return the table with rows that say how far their machine is from this one.

        Of a machine with other links, it has only what holds on one node.
        """
        far = here.distance(self.machine) if here.differences(self.machine) else ""
        rows = tuple(replace(row, far=far) for row in self.rows)
        if here.links_as(self.machine):
            return replace(self, rows=rows)
        kept = (row for row in rows if row.when.may_hold({"nodes": 1}))
        tested = tuple(replace(row, when=_inside(row)) for row in kept)
        return replace(self, rows=tested, digest=f"{self.digest} {INSIDE_NODES}")

    def find(self, signature: Signature, topology: Topology, traits: NodeTraits) -> Row | None:
        """Return the row that decides for a call on nodes with some traits; None without one."""
        rows = self.on(topology)
        facts = facts_of_call(signature, topology, traits)
        return Rows(rows).find(signature.collective, facts)

    def on(self, topology: Topology) -> tuple[Row, ...]:
        """Return the rows that may serve calls of ranks of a topology.

        They are found once for all communicators of one shape.
        """
        shape = topology.nodes, topology.ppn, topology.size, topology.names
        found = self._on.get(shape)
        if found is None:
            here = {"nodes": topology.nodes, "ppn": topology.ppn, "ranks": topology.size}
            rows = (row for row in self.rows if row.when.levels in ((), topology.names))
            found = tuple(row for row in rows if row.when.may_hold(here))
            if len(self._on) < SHAPES:
                self._on[shape] = found
        return found

    @cached_property
    def _on(self) -> dict[tuple[int, int, int, tuple[str, ...]], tuple[Row, ...]]:
        return {}

    def says_of(self, topology: Topology) -> str:
        """Return what the table says of ranks of a topology: measured, predicted, or nothing.

        "" on one node, and if nothing was measured between nodes.
        """
        if topology.nodes == 1 or all(point.key.nodes == 1 for point in self.points):
            return ""
        rows = self.on(topology)
        here = f"{topology.nodes} x {topology.ppn}"
        if any(row.measured for row in rows):
            return f"measured on {here}"
        told = next((row.predicted for row in rows if row.predicted), None)
        if rows:
            return "" if told is None else f"predicted for {here} from {', '.join(told.shapes)}"
        why = "han tune shapes predicts them" if self.tasks else "it keeps no costs of tasks"
        return f"nothing for {here}: {why}"

    def uses(self, topology: Topology) -> list[Use]:
        """Return what calls of ranks of a topology may run."""
        return [row.use for row in self.on(topology) if row.use is not None]

    def thresholds(self, topology: Topology) -> tuple[int, ...]:
        """Return the sizes from which on another choice may hold for ranks of a topology."""
        return thresholds(self.on(topology), topology.size)

    def calls_of(self, topology: Topology) -> list[str]:
        """Return the collectives that rows are for on ranks of a topology."""
        every = [
            f"{name}{' on shared arrays' if _NEEDS_ARRAYS in row.when.tests else ''}"
            for row in self.on(topology)
            for name in row.when.collective or ("all collectives",)
        ]
        return list(dict.fromkeys(every))


def _inside(row: Row) -> When:
    return replace(row.when, tests=(*row.when.tests, _ONE_NODE))


def _order(point: Point) -> tuple[str, bool, int, int]:
    return point.key.collective, point.key.shared, point.key.nodes, point.nbytes


def of_points(points: Iterable[Point], machine: Fingerprint) -> TunedTable:
    """Return the table of what was measured on a machine."""
    return TunedTable(rows_of(points), machine)


def with_points(table: TunedTable, points: Iterable[Point]) -> TunedTable:
    """Return a table with other points; those of its machine do not name it.

    Rows that a person wrote stay, and come first; those that are predicted stay, and come last.
    """
    own = (replace(p, machine=None) if p.machine == table.machine else p for p in points)
    others = [row for row in table.rows if not (row.measured and key_of_row(row.when))]
    written, told = ([r for r in others if bool(r.predicted) is last] for last in (False, True))
    return replace(table, rows=(*written, *rows_of(sorted(own, key=_order)), *told))


def with_predictions(table: TunedTable, rows: Iterable[Row]) -> TunedTable:
    """Return a table with other predicted rows."""
    return replace(table, rows=(*(row for row in table.rows if not row.predicted), *rows))


def stacked(tables: Sequence[TunedTable]) -> TunedTable | None:
    """Return the table that stands for several, the first of which decides first; None: of none."""
    if not tables:
        return None
    rows = tuple(row for table in tables for row in table.rows)
    return replace(tables[0], rows=rows, digest=" ".join(table.digest for table in tables))
