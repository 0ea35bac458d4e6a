"""The report of statistics: gathered, printed or written once, before MPI is finalized."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from mpi4py import MPI

from han.common.tables import shown_table
from han.common.units import UNITS, format_size, plural, spans
from han.config.environment import PRINTED, VARIABLE
from han.model.statistics import UNKNOWN, Record, Row, Statistics
from han.ranks.last_words import Reporters
from han.runtime.leaving import do_at_end

HEADS = ("call", "size", "ranks", "by", "calls", "bytes", "least s", "median s", "most s")
WHO = (
    "# Seconds include waits for ranks that come later. Who came last, in how many calls: run with "
    "HAN_TRACE=t, then 'han trace t'."
)
EXACT = 100_000  # bytes: sums below are written without rounding


class Report:
    """Reports the calls of the ranks of a communicator when the process ends or finalizes MPI."""

    def __init__(self, record: Record, output: str) -> None:
        self._record, self._output = record, output
        self._reporters: Reporters | None = Reporters()
        do_at_end(self.end)

    def join(self, comm: MPI.Intracomm) -> None:
        """Let the ranks of `comm` report together where they do not yet; collective."""
        if self._reporters is not None:
            self._reporters.join(MPI.Intracomm(comm))

    def end(self) -> None:
        """Gather the calls of the ranks, and report them on one; the second call does nothing.

        After an error this rank does not wait for the others.
        """
        reporters, self._reporters = self._reporters, None
        if reporters is None:
            return
        found = None
        with contextlib.suppress(MPI.Exception):
            mine = MPI.COMM_WORLD.Get_rank(), dict(self._record)
            found = reporters.last_words(mine, not hasattr(sys, "last_value"))
        if found is not None:
            self._tell(Statistics.merged(dict(found.values), found.missing))

    def _tell(self, statistics: Statistics) -> None:
        if self._output == PRINTED:
            print(as_text(statistics), file=sys.stderr, flush=True)
            return
        text = json.dumps(statistics.document(), indent=1) + "\n"
        try:
            Path(self._output).write_text(text, encoding="utf-8")
        except OSError as error:
            message = f"han: {VARIABLE}: {self._output} cannot be written: {error.strerror}"
            print(message, file=sys.stderr, flush=True)


def as_text(statistics: Statistics) -> str:
    """Return the table, and below it what han served and why it did not serve the rest."""
    ranks = plural(statistics.ranks, "rank")
    if not statistics.rows:
        return f"# han: no collectives on {ranks}"
    title = (
        f"# han: collectives of {ranks}. Each call counts once. Ranks are those of its "
        "communicator.\n# Sizes are those of messages; of calls by blocks, those of one block."
    )
    table = shown_table("", HEADS, map(_cells, statistics.rows), left=("size", "by"), plain=True)
    return "\n".join([title, table.lstrip("\n"), *_summary(statistics)])


def _cells(row: Row) -> list[str]:
    nbytes = "?" if row.key.most_bytes == UNKNOWN else _short(row.nbytes)
    times = (row.least, row.median, row.most)
    by = "MPI" if row.key.why else "han"
    return [
        row.key.call, row.key.size, str(row.key.ranks), by, number(row.calls), nbytes,
        *(f"{t:.6f}" for t in times),
    ]  # fmt: skip


def _summary(statistics: Statistics) -> list[str]:
    served, whole = statistics.of_han(), statistics.seconds
    lines = [
        f"# han served {number(served.calls)} of {number(statistics.calls)} calls "
        f"({_share(served.seconds, whole)})"
    ]
    lines += [
        f"# the MPI library's own: {number(part.calls)} call{'s' * (part.calls != 1)} "
        f"({_share(part.seconds, whole)}): {why}"
        for why, part in statistics.reasons().items()
    ]
    lines += [
        f"# {row.key.call} {row.key.size}: {row.late.describe()}"
        for row in statistics.rows
        if row.late is not None
    ]
    if statistics.ranks > 1:
        lines.append(WHO)
    if statistics.missing:
        lines.append(f"# without rank(s) {spans(statistics.missing)}, which did not end in time")
    return lines


def _share(seconds: float, whole: float) -> str:
    return f"{100 * seconds / whole if whole else 0:.1f} % of the seconds"


def number(calls: float) -> str:
    """Return a number of calls; parts of calls with one decimal."""
    return str(round(calls)) if abs(calls - round(calls)) < 0.05 else f"{calls:.1f}"


def _short(nbytes: float) -> str:
    """Return bytes as sizes are written, many bytes and means with about three digits."""
    if nbytes == round(nbytes) and nbytes < EXACT:
        return format_size(round(nbytes))
    for unit in ("GiB", "MiB", "KiB"):
        if nbytes >= UNITS[unit]:
            size = nbytes / UNITS[unit]
            return f"{size:.0f}{unit}" if size >= 100 else f"{size:.3g}{unit}"
    return f"{nbytes:.0f}B"
