"""Runs of ``han bench`` under several MPI libraries in one table. Needs no MPI library."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from han.common.errors import ArgumentError
from han.common.tables import shown_table
from han.common.units import format_size, format_us
from han.model.measurements import Report, Times

SAME = ("ranks", "nodes", "mode", "shared", "fresh", "dtype", "op")  # equal in runs to compare


@dataclass(frozen=True)
class Merged:
    """Times of han and of several libraries at one size.

    `han` holds han's times by the library under which it ran, `mpi` the times of the libraries.
    """

    collective: str
    nbytes: int
    han: Mapping[str, Times]
    mpi: Mapping[str, Times]

    @property
    def best_han(self) -> tuple[str, Times]:
        """The library under which han was fastest, and its times."""
        return min(self.han.items(), key=lambda item: item[1].median)

    @property
    def best_mpi(self) -> tuple[str, Times]:
        """The fastest library and its times."""
        return min(self.mpi.items(), key=lambda item: item[1].median)

    @property
    def ratios(self) -> Mapping[str, float]:
        """How many times longer each library takes than han in the same run.

        Times of different runs do not compare well, because the speed of a machine varies. If no
        run measured both sides, this is the ratio of the best times of all runs; none of one side.
        """
        both = {n: t.median / self.han[n].median for n, t in self.mpi.items() if n in self.han}
        if both or not (self.han and self.mpi):
            return both
        name, times = self.best_mpi
        return {name: times.median / self.best_han[1].median}

    @property
    def rival(self) -> str:
        """The library with the least ratio."""
        return min(self.ratios, key=self.ratios.__getitem__)

    @property
    def ratio(self) -> float:
        """The least ratio."""
        return self.ratios[self.rival]


def merge(runs: Sequence[Report]) -> list[Merged]:
    """Merge runs under several libraries. Raises ArgumentError if they cannot be compared."""
    _comparable(runs)
    kept = [row for row in rows_of(runs) if row.han and row.mpi]
    if not kept:
        raise ArgumentError("no size was measured both with han and with an MPI library")
    return kept


def rows_of(runs: Sequence[Report]) -> list[Merged]:
    """Return a row for each size that a run measured, maybe of one side only."""
    names = _names(runs)
    han = {name: run.series("han") for name, run in zip(names, runs, strict=True)}
    mpi = {name: run.series("mpi") for name, run in zip(names, runs, strict=True)}
    keys = dict.fromkeys(key for side in (han, mpi) for series in side.values() for key in series)
    return [
        Merged(
            *key,
            {name: series[key] for name, series in han.items() if key in series},
            {name: series[key] for name, series in mpi.items() if key in series},
        )
        for key in keys
    ]


def _comparable(runs: Sequence[Report]) -> None:
    for key in SAME:
        said = {run.name: run.about(key) for run in runs}
        if len(set(map(str, said.values()))) > 1:
            values = ", ".join(f"{name}: {value}" for name, value in said.items())
            raise ArgumentError(f"the runs differ in {key} and cannot be compared ({values})")


def _names(runs: Sequence[Report]) -> list[str]:
    """Return a name for each run: its library, with its file if several runs have the library."""
    libraries = [run.library for run in runs]
    return [
        f"{run.library} ({run.name})" if libraries.count(run.library) > 1 else run.library
        for run in runs
    ]


def table(rows: Sequence[Merged]) -> str:
    """Return the tables that ``han compare`` prints."""
    names = list(dict.fromkeys(name for row in rows for name in row.mpi))
    parts = [
        "# median microseconds per call; han's are those under the library where it is fastest\n"
        "# ratio: library's time / han's in the same run, the least (*); above 1, han is faster"
    ]
    for collective in dict.fromkeys(row.collective for row in rows):
        cells = [_cells(row, names) for row in rows if row.collective == collective]
        parts.append(shown_table(collective, ["size", "han", *names, "ratio"], cells))
    least = min(rows, key=lambda row: row.ratio)
    mean = statistics.geometric_mean(row.ratio for row in rows)
    parts.append(f"# ratios: geometric mean {mean:.2f}, least {least.ratio:.2f} "
                 f"({least.collective} of {format_size(least.nbytes)})")  # fmt: skip
    return "\n\n".join(parts)


def _cells(row: Merged, names: Sequence[str]) -> list[str]:
    times = [
        f"{'*' if name == row.rival else ''}{format_us(row.mpi[name].median)}"
        if name in row.mpi else "-"
        for name in names
    ]  # fmt: skip
    best = format_us(row.best_han[1].median)
    return [format_size(row.nbytes), best, *times, f"{row.ratio:.2f}"]


def records(rows: Sequence[Merged]) -> list[dict[str, Any]]:
    """Return the merged rows as plain data."""
    return [
        {
            "collective": row.collective,
            "nbytes": row.nbytes,
            "han": row.best_han[1].median,
            "han_under": row.best_han[0],
            "mpi": {name: times.median for name, times in row.mpi.items()},
            "best_mpi": row.best_mpi[0],
            "rival": row.rival,
            "ratios": dict(row.ratios),
            "ratio": row.ratio,
        }
        for row in rows
    ]
