"""Tables of rows: tuned choices in a form that a person can read and edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from han.config.rules import Use, thresholds
from han.model.topology import Topology
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import facts_of_call
from han.tuning.built_in.facts import Facts
from han.tuning.built_in.row import Row, Rows
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.table import INSIDE_NODES, ONLY_INSIDE, Timing, beside
from han.tuning.tuned.texts import at, confirmations, origin


@dataclass(frozen=True)
class Measured:
    """A measurement behind a row: of its choice and of the built-in one, for one size."""

    nbytes: int
    timing: Timing
    default: Timing
    strategy: str = ""
    made: str = ""
    versions: str = ""  # if they are not those of the table
    conditions: str = ""
    gains: tuple[float, ...] = field(
        default=(), kw_only=True
    )  # of runs of han bench that confirmed the choice


@dataclass(frozen=True)
class TunedRow(Row):
    """A row for whole calls: for which it is, what they run, and what was measured.

    `levels` are the names of all levels that it is for, innermost first; (): any.
    """

    use: Use = field(default_factory=Use)
    levels: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class FoundRow:
    """The row that decides for a call of `nbytes` bytes."""

    row: TunedRow
    nbytes: int
    source: str = ""  # the file of the table
    far: str = ""  # how far the machine of the table is from this one

    @property
    def conditions(self) -> str:
        """The conditions of the measurement for the size that is nearest; "" without one."""
        return self._nearest.conditions if self.row.measured else ""

    @property
    def _nearest(self) -> Measured:
        size = max(1, self.nbytes)
        return min(self.row.measured, key=lambda m: max(size, m.nbytes) / min(size, m.nbytes))

    @property
    def runner_up(self) -> None:
        """The best candidate that was not taken: rows have none."""
        return

    @property
    def times(self) -> tuple[Timing, Timing] | None:
        """The times of the choice and of the built-in one for the nearest size, if measured."""
        return (self._nearest.timing, self._nearest.default) if self.row.measured else None

    def of_size(self, nbytes: int) -> FoundRow:
        """Return what decides for a size of the class of sizes whose largest one was asked for."""
        return replace(self, nbytes=nbytes)

    @property
    def use(self) -> Use:
        """What the call runs."""
        return self.row.use

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The row, as explanations name rows."""
        return (("call", self.row.name),)

    def describe(self) -> list[str]:
        """Return the measurement for the size that is nearest, and the file."""
        if not self.row.measured:
            return ["nothing: the row names no measurement", *origin(self.source)]
        one = self._nearest
        return [
            f"{one.timing.describe()} {at(one.nbytes, self.nbytes)}",
            f"built-in {beside(one.default, one.timing)}",
            *confirmations(one.gains),
            *origin(self.source, one.strategy, one.made, one.versions, one.conditions),
        ]


@dataclass(frozen=True)
class RowTable:
    """The rows of one file, and the machine that they were measured on; the first match decides.

    `digest` stands for the content: ranks with the same digest decide alike.
    """

    rows: tuple[TunedRow, ...]
    machine: Fingerprint
    source: str = ""
    digest: str = field(default="", compare=False)
    far: str = field(default="", compare=False)  # how far `machine` is from this one; "": it is not
    inside: bool = field(default=False, compare=False)  # only what holds on one node

    unit: ClassVar = "row"  # what `size` counts

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def about(self, here: Fingerprint) -> str:
        """Return how far the machine of the table is from this one."""
        return "; ".join([here.distance(self.machine), *([ONLY_INSIDE] if self.inside else [])])

    def inside_nodes(self) -> RowTable:
        """Return the table with only those rows that hold on one node."""
        rows = tuple(row for row in self.rows if _may_hold(row, {"nodes": 1}))
        kept = tuple(replace(row, tests=(*row.tests, _ONE_NODE)) for row in rows)
        return replace(self, rows=kept, digest=f"{self.digest} {INSIDE_NODES}", inside=True)

    @cached_property
    def _of(self) -> dict[tuple[str, ...], Rows[TunedRow]]:
        return {}

    def _rows(self, names: tuple[str, ...]) -> Rows[TunedRow]:
        """Return the rows for ranks on levels of these names."""
        if names not in self._of:
            self._of[names] = Rows([row for row in self.rows if row.levels in ((), names)])
        return self._of[names]

    def find(
        self, signature: Signature, topology: Topology, traits: tuple[bool, bool]
    ) -> FoundRow | None:
        """Return the row that decides for a call on nodes with some traits; None without one."""
        rows = self._rows(topology.names)
        if not rows.rows:
            return None
        row = rows.find(signature.collective, facts_of_call(signature, topology, traits))
        return None if row is None else FoundRow(row, signature.nbytes, self.source, self.far)

    def uses(self, topology: Topology) -> list[Use]:
        """Return what calls of ranks of a topology may run."""
        return [row.use for row in self._rows(topology.names).rows]

    def thresholds(self, topology: Topology) -> tuple[int, ...]:
        """Return the sizes from which on another choice may hold for ranks of a topology."""
        rows = self._rows(topology.names).rows
        return tuple(sorted({n for row in rows for n in thresholds(_named(row), topology.size)}))

    def calls_of(self, topology: Topology) -> list[str]:
        """Return the collectives that rows are for on ranks of a topology."""
        here = {"nodes": topology.nodes, "ppn": topology.ppn, "ranks": topology.size}
        rows = [row for row in self._rows(topology.names).rows if _may_hold(row, here)]
        every = [
            f"{name}{' on shared arrays' if _NEEDS_ARRAYS in row.tests else ''}"
            for row in rows
            for name in row.collectives or ("all collectives",)
        ]
        return list(dict.fromkeys(every))


_ONE_NODE = Facts._fields.index("nodes"), 1, 1
_NEEDS_ARRAYS = Facts._fields.index("mapped"), 1, 1


def _named(row: TunedRow) -> Sequence[tuple[str, int, int]]:
    return [(Facts._fields[place], low, high) for place, low, high in row.tests]


def _may_hold(row: TunedRow, here: dict[str, int]) -> bool:
    return all(low <= here.get(name, low) <= high for name, low, high in _named(row))
