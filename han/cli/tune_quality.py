"""``han tune quality``: strategies compared with exhaustive search.

A row is printed and kept after each input, and tables follow at the end.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from mpi4py import MPI

from han.cli.common import check_files, drawn, rank, say, wrote
from han.cli.measuring import keep, prints
from han.cli.progress import Bars, phases
from han.cli.quality_file import as_record, conditions, is_kept, unfinished, write_record
from han.cli.quality_texts import Lines, left_text, text_of
from han.cli.tune_run import Asked
from han.common.errors import ArgumentError
from han.common.units import plural
from han.measure.tune import quality
from han.measure.tune.quality import USUAL, Compared, Row, in_order
from han.measure.tune.tuner import Input, Plans
from han.plots.tuning import quality as draw


def run(
    asked: Asked, config: Any, fresh: bool, restart: bool, picture: Path | None, file: Path | None
) -> None:
    """Measure, print rows and tables, and write a picture and JSON; collective."""
    check_files(file, plot=picture)
    strategies = [name for name in (asked.strategy or "").split(",") if name] or [*USUAL]
    plans, comm = asked.plans(strategies, "0"), MPI.COMM_WORLD
    where = conditions(comm, config, plans, strategies, fresh)
    known = () if restart else _known(comm, file, where)
    report = Report(plans, quality.compared(strategies), where, file)
    with phases() as bars, stoppable():
        report.begin(known, bars)
        try:
            found = quality.compare(
                comm, config, plans, strategies, fresh, known, report.step, report.add, report.tell
            )
        except BaseException:
            report.stopped()
            raise
    report.end(found)
    drawn(picture, partial(draw, found.rows))


def _known(comm: Any, file: Path | None, where: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return the rows of an interrupted run. Raises ArgumentError on all ranks."""
    found: tuple[Row, ...] | str = ()
    if file is not None and not comm.rank and is_kept(file):
        try:
            found = unfinished(file, where)
        except ArgumentError as error:
            found = str(error)
    found = comm.bcast(found)
    if isinstance(found, str):
        raise ArgumentError(found)
    return found


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Make SIGTERM a KeyboardInterrupt on rank 0, which prints what was measured so far.

    The other ranks end at once, also while they wait in the MPI library.
    """
    if rank() or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Report:
    """Prints rows as they are measured, and keeps them in the file, on rank 0.

    `where` are the conditions of the run.
    """

    def __init__(
        self, plans: Plans, strategies: Sequence[str], where: Mapping[str, Any], file: Path | None
    ) -> None:
        self._plans, self._names, self._where, self._file = plans, strategies, where, file
        self.tell = prints(file)
        self._keeps, self._warned = is_kept(file), False
        self._rows: list[Row] = []
        self._left: tuple[Input, ...] = plans.inputs
        self._lines = Lines(plans.inputs, strategies)
        self._bars: Bars | None = None
        self._searches, self._total = count(), 0

    def begin(self, known: Sequence[Row], bars: Bars | None) -> None:
        """Print the heads, and the rows of an interrupted run."""
        self._rows, self._bars = [*known], bars
        done = {row.input for row in known}
        self._left = tuple(one for one in self._plans.inputs if one not in done)
        self._total = len(self._names) * len(self._left)
        budget = self._plans.budget
        limit = "no limit" if budget is None else f"{budget:g} s"
        self.tell(
            f"# han tune quality: {plural(len(self._plans.inputs), 'input')} on "
            f"{plural(self._where['ranks'], 'rank')}, budget {limit}\n"
            "# time of the choice / choice of exhaustive search, in turns; s: seconds of the row"
        )
        if known:
            self.tell(f"# resumed: {plural(len(known), 'known input')} in {self._file}")
        self.tell("\n".join([self._lines.head(), *map(self._lines.line, known)]))

    def step(self, text: str) -> None:
        """Show on a terminal what is measured next."""
        if self._bars is not None:
            self._bars(text, next(self._searches), self._total)

    def add(self, row: Row, left: Sequence[Input]) -> None:
        """Print a row, and write the file; one that cannot be written is told of once."""
        self._rows.append(row)
        self._left = tuple(left)
        if self._bars is not None:
            self._bars.hide()
        self.tell(self._lines.line(row))
        if not self._keeps or self._file is None or rank():
            return
        try:
            write_record(self._file, self._record())
        except ArgumentError as error:
            if not self._warned:
                say(f"# {error}; the comparison goes on")
            self._warned = True

    def stopped(self) -> None:
        """Print tables of what was measured before an interruption or an error."""
        if self._bars is not None:
            self._bars.hide()
        if self._rows:
            self.tell(text_of(self._sorted()))
        done = f"{plural(len(self._rows), 'input')} of {len(self._rows) + len(self._left)}"
        if str(self._file) == "-":
            keep(self._record(), self._file)
        elif self._keeps:
            self.tell(f"# stopped: {done} in {self._file}; the same command goes on from there")
        else:
            self.tell(f"# stopped: {done}; with --json FILE the same command goes on from there")

    def end(self, found: Compared) -> None:
        """Print the tables and what was left out, and write the file. Raises ArgumentError."""
        self._rows, self._left = [*found.rows], found.left
        self.tell(text_of(self._rows))
        if found.left:
            self.tell(left_text(found.left))
        if not self._keeps or self._file is None:
            keep(self._record(), self._file)
        elif not rank():
            write_record(self._file, self._record())
            wrote(self._file)

    def _sorted(self) -> list[Row]:
        return in_order(self._plans, self._rows)

    def _record(self) -> dict[str, Any]:
        return as_record(Compared(tuple(self._sorted()), self._left), self._where)
