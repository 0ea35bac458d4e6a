"""Statistics of collectives: what each rank counts, and the rows of all ranks together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from han.common.units import format_size
from han.common.version import __version__

FORMAT, VERSION = "han-stats", 1
SMALLEST, FACTOR = 64, 4  # bytes: the first class of sizes, and each class to the one before it
UNKNOWN = -1  # the class of objects, whose bytes are not known


def size_class(nbytes: int | None) -> int:
    """Return the largest size of the class of `nbytes` bytes: 0, 64, 256, 1024 ..."""
    if nbytes is None:
        return UNKNOWN
    most = SMALLEST if nbytes else 0
    while most < nbytes:
        most *= FACTOR
    return most


class Key(NamedTuple):
    """What is counted together: calls of one name and class of sizes.

    `why` says why a call was the MPI library's own; "" if han served it.
    """

    call: str
    most_bytes: int
    why: str = ""

    @property
    def size(self) -> str:
        """The class of sizes as text."""
        if self.most_bytes == UNKNOWN:
            return "?"
        return f"{'<= ' if self.most_bytes else ''}{format_size(self.most_bytes)}"


@dataclass
class Counts:
    """The calls of one rank with one key, their bytes, and the seconds spent in them."""

    calls: int = 0
    nbytes: int = 0
    seconds: float = 0.0


Record = Mapping[Key, Counts]  # of one rank


@dataclass(frozen=True)
class Row:
    """The calls of all ranks with one key.

    `calls` and `nbytes` are those of the rank with the most calls, `all_calls` and `seconds` the
    sums over all ranks. The other seconds are those of one rank, among the `ranks` that made calls.
    """

    key: Key
    ranks: int
    calls: int
    nbytes: int
    all_calls: int
    seconds: float
    least: float
    median: float
    most: float

    @classmethod
    def of(cls, key: Key, counts: list[Counts]) -> Row:
        """Return the row of a key."""
        busiest = max(counts, key=lambda c: (c.calls, c.nbytes))
        times = [c.seconds for c in counts]
        return cls(
            key, len(counts), busiest.calls, busiest.nbytes, sum(c.calls for c in counts),
            sum(times), min(times), median(times), max(times),
        )  # fmt: skip

    def record(self) -> dict[str, Any]:
        """Return the row as JSON."""
        numbers = asdict(self)
        del numbers["key"]
        by = "mpi" if self.key.why else "han"
        known = self.key.most_bytes != UNKNOWN
        return {
            "call": self.key.call,
            "most_bytes": self.key.most_bytes if known else None,
            "by": by,
            "why": self.key.why,
            **numbers,
            "nbytes": self.nbytes if known else None,
        }


@dataclass(frozen=True)
class Statistics:
    """The rows of all ranks that reported; `missing` are the ranks that did not."""

    rows: tuple[Row, ...]
    ranks: int
    missing: tuple[int, ...] = ()

    @classmethod
    def merged(cls, records: Mapping[int, Record], ranks: int) -> Statistics:
        """Merge the records of ranks, by rank; the row with the most seconds is first."""
        found: dict[Key, list[Counts]] = {}
        for record in records.values():
            for key, counts in record.items():
                found.setdefault(key, []).append(counts)
        rows = [Row.of(key, counts) for key, counts in found.items()]
        missing = tuple(r for r in range(ranks) if r not in records)
        return cls(tuple(sorted(rows, key=lambda row: -row.seconds)), ranks, missing)

    @property
    def calls(self) -> int:
        """Calls of all ranks."""
        return sum(row.all_calls for row in self.rows)

    @property
    def seconds(self) -> float:
        """Seconds of all ranks."""
        return sum(row.seconds for row in self.rows)

    def of_han(self) -> Statistics:
        """Return the rows of calls that han served."""
        rows = tuple(row for row in self.rows if not row.key.why)
        return Statistics(rows, self.ranks, self.missing)

    def reasons(self) -> dict[str, Statistics]:
        """Return the calls that were the MPI library's own, by the reason."""
        whys = dict.fromkeys(row.key.why for row in self.rows if row.key.why)
        return {
            why: Statistics(tuple(row for row in self.rows if row.key.why == why), self.ranks)
            for why in whys
        }

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        served = self.of_han()
        return {
            "format": FORMAT,
            "version": VERSION,
            "han": __version__,
            "ranks": self.ranks,
            "missing": list(self.missing),
            "calls": self.calls,
            "calls_of_han": served.calls,
            "seconds": self.seconds,
            "seconds_of_han": served.seconds,
            "rows": [row.record() for row in self.rows],
        }
