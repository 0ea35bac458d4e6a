"""Statistics of collectives: what each rank counts, and the rows of all ranks together.

Each rank counts the calls that it makes. A row divides their sum by the number of ranks of the
communicators, so that a collective call counts once, however many ranks make it and however many
communicators share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from han.common.grouped import grouped
from han.common.units import format_duration, format_size
from han.common.version import __version__
from han.model.collectives import ROWS, carried_as

FORMAT, VERSION = "han-stats", 2
SMALLEST, FACTOR = 64, 4  # bytes: the first class of sizes, and each class to the one before it
UNKNOWN = -1  # the class of objects, whose bytes are not known
CLEARLY = 0.25  # of the others' seconds: a rank that spent so much less came late
WORTH = 5e-6  # seconds a call


def size_range(nbytes: int | None) -> int:
    """Return the largest size of the class of `nbytes` bytes: 0, 64, 256, 1024 ..."""
    if nbytes is None:
        return UNKNOWN
    most = SMALLEST if nbytes else 0
    while most < nbytes:
        most *= FACTOR
    return most


class CountedCalls(NamedTuple):
    """What is counted together: calls of one name, class of sizes, and size of communicators.

    `ranks` is the number of ranks of the communicators. `why` says why a call was the MPI library's
    own; "" if han served it.
    """

    call: str
    most_bytes: int
    ranks: int
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


Record = Mapping[CountedCalls, Counts]  # of one rank


@dataclass(frozen=True)
class Late:
    """The rank that came last to calls, as it waited least; seconds of an average call.

    It came `late` seconds after the median of the other ranks. After that a call took `then`
    seconds. `early` is the share of the ranks' seconds that passed before it came.
    """

    rank: int
    late: float
    then: float
    early: float

    @classmethod
    def of(cls, key: CountedCalls, counts: Mapping[int, Counts]) -> Late | None:
        """Return it for the calls of one communicator; None if the seconds do not tell.

        They tell where no rank leaves a call before all have come.
        """
        if not _synchronises(key.call) or not 1 < len(counts) == key.ranks:
            return None
        if len({c.calls for c in counts.values()}) > 1:
            return None
        rank = min(counts, key=lambda r: counts[r].seconds)
        least, calls = counts[rank].seconds, counts[rank].calls
        usual = median(c.seconds for r, c in counts.items() if r != rank)
        if not calls or usual - least < max(CLEARLY * usual, WORTH * calls):
            return None
        whole = sum(c.seconds for c in counts.values())
        return cls(rank, (usual - least) / calls, least / calls, 1 - key.ranks * least / whole)

    def describe(self) -> str:
        """Return the end of a sentence that begins with the calls."""
        return (
            f"rank {self.rank} came last, by {format_duration(self.late)} in an average call; "
            f"then {format_duration(self.then)}. "
            f"{self.early * 100:.0f} % of the seconds were waiting for it"
        )


def _synchronises(call: str) -> bool:
    """Return whether no rank leaves a blocking call before all have come."""
    name = call.lower()
    row = ROWS.get(carried_as().get(name, name))
    return row is not None and row.synchronises


@dataclass(frozen=True)
class Row:
    """The calls of all ranks with one key.

    `calls` and `nbytes` are the sums over all ranks, divided by the ranks of a communicator. They
    are no whole numbers where some ranks of a call are missing, or its sizes on the ranks are in
    different classes. `seconds` is the sum over all ranks. The other seconds are those of one rank,
    among the `callers`, the ranks that made such calls.
    """

    key: CountedCalls
    callers: int
    calls: float
    nbytes: float
    seconds: float
    least: float
    median: float
    most: float
    late: Late | None = None

    @classmethod
    def of(cls, key: CountedCalls, by_rank: Mapping[int, Counts]) -> Row:
        """Return the row of a key."""
        counts = by_rank.values()
        calls, nbytes = sum(c.calls for c in counts), sum(c.nbytes for c in counts)
        times = [c.seconds for c in counts]
        return cls(
            key, len(counts), calls / key.ranks, nbytes / key.ranks,
            sum(times), min(times), median(times), max(times), Late.of(key, by_rank),
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
            "ranks": self.key.ranks,
            "by": by,
            "why": self.key.why,
            **numbers,
            "calls": _whole(self.calls),
            "nbytes": _whole(self.nbytes) if known else None,
        }


@dataclass(frozen=True)
class Statistics:
    """The rows of all ranks that reported; `missing` are the ranks that did not."""

    rows: tuple[Row, ...]
    ranks: int
    missing: tuple[int, ...] = ()

    @classmethod
    def merged(cls, records: Mapping[int, Record], missing: Iterable[int] = ()) -> Statistics:
        """Merge the records of ranks of MPI.COMM_WORLD; the row with the most seconds is first.

        `missing` are the ranks without a record.
        """
        found = grouped(
            (key, (rank, counts))
            for rank, record in sorted(records.items())
            for key, counts in record.items()
        )
        rows = [Row.of(key, dict(each)) for key, each in found.items()]
        lost = tuple(sorted(missing))
        by_time = tuple(sorted(rows, key=lambda row: -row.seconds))
        return cls(by_time, len(records) + len(lost), lost)

    @property
    def calls(self) -> float:
        """Calls, each counted once."""
        return sum(row.calls for row in self.rows)

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
            "calls": _whole(self.calls),
            "calls_of_han": _whole(served.calls),
            "seconds": self.seconds,
            "seconds_of_han": served.seconds,
            "rows": [row.record() for row in self.rows],
        }


def _whole(number: float) -> float:
    """Return a number as an int if it is whole."""
    return int(number) if number == int(number) else number
