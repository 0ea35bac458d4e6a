"""``han tune quality``: strategies compared with exhaustive search.

A row is printed and kept after each input, and tables follow at the end.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from mpi4py import MPI

from han.cli.common import check_files, drawn, keep, prints, rank, replace_file, say, wrote
from han.cli.progress import Bars, phases
from han.common.errors import ArgumentError
from han.common.json_files import Format
from han.common.tables import shown_table
from han.common.units import format_size, format_us, plural
from han.common.version import __version__
from han.measure.tune import quality
from han.measure.tune.quality import (
    USUAL,
    YARDSTICK,
    QualityRow,
    QualityRows,
    compared,
    errors,
    in_order,
    summaries,
)
from han.measure.tune.tuner import Input, Plans
from han.plots.tuning import quality as draw
from han.ranks.machine import fingerprint


def run(
    make: Callable[..., Plans], named: Sequence[str], config: Any, fresh: bool, restart: bool,
    picture: Path | None, file: Path | None,
) -> None:  # fmt: skip
    """Measure, print rows and tables, and write a picture and JSON; collective."""
    check_files(file, plot=picture)
    strategies = named or USUAL
    plans, comm = make(strategies, "0"), MPI.COMM_WORLD
    where = conditions(comm, config, plans, strategies, fresh)
    known = () if restart else _known(comm, file, where)
    with phases() as bars, stoppable():
        report = RowPrinter(plans, where, file, bars)
        report.begin(known)
        try:
            found = quality.compare(
                comm, config, plans, strategies, fresh, known, report.step, report.add, report.tell
            )
        except BaseException:
            report.stopped()
            raise
    report.end(found)
    drawn(picture, partial(draw, found.rows))


def _known(comm: Any, file: Path | None, where: Mapping[str, Any]) -> tuple[QualityRow, ...]:
    """Return the rows of an interrupted run. Raises ArgumentError on all ranks."""
    found: tuple[QualityRow, ...] | str = ()
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


class RowPrinter:
    """Prints rows as they are measured, and keeps them in the file, on rank 0.

    `where` are the conditions of the run, `found` the rows so far and the inputs that are left.
    """

    def __init__(
        self, plans: Plans, where: Mapping[str, Any], file: Path | None, bars: Bars
    ) -> None:
        self._plans, self._where, self._file, self._bars = plans, where, file, bars
        self.tell = prints(file)
        self._keeps, self._warned = is_kept(file), False
        self._lines = Lines(plans.inputs, where["strategies"])
        self._searches, self._total = count(), 0

    def begin(self, known: Sequence[QualityRow]) -> None:
        """Print the heads, and the rows of an interrupted run."""
        inputs, budget = self._plans.inputs, self._plans.budget
        self.found = in_order(self._plans, known)
        self._total = len(self._where["strategies"]) * len(self.found.left)
        limit = "no limit" if budget is None else f"{budget:g} s"
        self.tell(
            f"# han tune quality: {plural(len(inputs), 'input')} on "
            f"{plural(self._where['ranks'], 'rank')}, budget {limit}\n"
            "# time of the choice / choice of exhaustive search, in turns; s: seconds of the row"
        )
        if known:
            self.tell(f"# resumed: {plural(len(known), 'known input')} in {self._file}")
        self.tell("\n".join([self._lines.head(), *map(self._lines.line, known)]))

    def step(self, text: str) -> None:
        """Show on a terminal what is measured next."""
        self._bars(text, next(self._searches), self._total)

    def add(self, row: QualityRow, found: QualityRows) -> None:
        """Print a row, and write the file; one that cannot be written is told of once."""
        self.found = found
        self._bars.hide()
        self.tell(self._lines.line(row))
        try:
            self._keep()
        except ArgumentError as error:
            if not self._warned:
                say(f"# {error}; the comparison goes on")
            self._warned = True

    def _keep(self) -> None:
        if self._keeps and self._file is not None and not rank():
            record = as_record(self.found, self._where)
            replace_file(self._file, json.dumps(record, indent=1) + "\n")

    def stopped(self) -> None:
        """Print tables of what was measured before an interruption or an error."""
        self._bars.hide()
        rows, left = self.found.rows, self.found.left
        if rows:
            self.tell(text_of(rows))
        done = f"{plural(len(rows), 'input')} of {len(rows) + len(left)}"
        if str(self._file) == "-":
            keep(as_record(self.found, self._where), self._file)
        elif self._keeps:
            self.tell(f"# stopped: {done} in {self._file}; the same command goes on from there")
        else:
            self.tell(f"# stopped: {done}; with --json FILE the same command goes on from there")

    def end(self, found: QualityRows) -> None:
        """Print the tables and what was left out, and write the file. Raises ArgumentError."""
        self.found = found
        self.tell(text_of(found.rows))
        if found.left:
            left = ", ".join(map(str, found.left))
            self.tell(f"# left out for the budget: {left}")
        if not self._keeps or self._file is None:
            keep(as_record(found, self._where), self._file)
        else:
            self._keep()
            wrote(self._file)


# ---- the file -----------------------------------------------------------------------------------


FORMAT = Format("han-tuning-quality", 2, "comparison of strategies", "make", ArgumentError)


def conditions(
    comm: MPI.Intracomm, config: Any, plans: Plans, strategies: Sequence[str], fresh: bool
) -> dict[str, Any]:
    """Return what must agree of runs whose rows stand in one table, as plain data; collective."""
    found = {
        "machine": asdict(fingerprint()),
        "ranks": comm.size,
        "nodes": len(set(comm.allgather(MPI.Get_processor_name()))),
        "strategies": [*compared(strategies)],
        "config": config,
        "fresh": fresh,
        "call": {"dtype": plans.dtype, "op": plans.op, "shared": plans.shared},
        "space": plans.limits.model_dump(),
        "limit": plans.limit,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def as_record(found: QualityRows, where: Mapping[str, Any]) -> dict[str, Any]:
    """Return a comparison as plain data."""
    return {
        "format": FORMAT.name, "version": FORMAT.version, "han": __version__, "unit": "s", **where,
        "complete": not found.left, "left": [asdict(one) for one in found.left],
        "rows": [row.record() for row in found.rows],
    }  # fmt: skip


def is_kept(file: Path | None) -> bool:
    """Whether a file can be replaced after each input: not a pipe, a device or standard output."""
    return file is not None and str(file) != "-" and (not file.exists() or file.is_file())


def unfinished(file: Path, where: Mapping[str, Any]) -> tuple[QualityRow, ...]:
    """Return the rows of an interrupted run; none if the file holds no such run.

    Raises ArgumentError if that run was made under other conditions.
    """
    try:
        record = FORMAT.record(FORMAT.read(file), str(file))
    except ArgumentError:
        return ()
    if record.get("complete", True):
        return ()
    for name, here in where.items():
        if record.get(name) != here:
            raise ArgumentError(
                f"{file} holds an unfinished comparison with {name} {_brief(record.get(name))}, "
                f"here {_brief(here)}; name another file, or begin anew with --restart"
            )
    remedy = "name another file, or begin anew with --restart"
    return _rows(record, f"{file} holds a damaged comparison", remedy)


def _rows(record: Mapping[str, Any], damaged: str, remedy: str) -> tuple[QualityRow, ...]:
    try:
        return tuple(map(QualityRow.of, record["rows"]))
    except (LookupError, TypeError, AttributeError) as error:
        told = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"{damaged}: {told}; {remedy}") from None


def rows_of(file: Path) -> tuple[QualityRow, ...]:
    """Return the rows of a comparison, complete or not. Raises ArgumentError."""
    record = FORMAT.record(FORMAT.read(file), str(file))
    rows = _rows(record, f"{file}: a damaged comparison", "make one with 'han tune quality --json'")
    if not rows:
        raise ArgumentError(f"{file}: nothing was compared")
    return rows


def _brief(value: Any) -> str:
    return json.dumps(value) if value is not None else "by default"


# ---- tables -------------------------------------------------------------------------------------


WORST = 0.1  # share of the predictions that are listed
MOST = 20  # lines of these
LEAST_WIDTH = 6  # of a ratio: 12.345
SUMMARY = ["strategy", "within 5 %", "within 15 %", "worst", "seconds", "of exhaustive"]
ERRORS = ["call", "size", "measured us", "predicted us", "error", "choice", "prediction"]


class Lines:
    """Rows as they are printed one by one, in columns that fit all of them but the choices."""

    def __init__(self, inputs: Sequence[Input], strategies: Sequence[str]) -> None:
        self._heads = ["call", "size", "candidates", *strategies, "s", "best choice"]
        names = max((len(one.collective) for one in inputs), default=0)
        least = [names, *[LEAST_WIDTH] * (len(self._heads) - 2)]
        heads = self._heads[:-1]
        self._widths = [max(len(head), w) for head, w in zip(heads, least, strict=True)]

    def head(self) -> str:
        """Return the names of the columns."""
        return self._aligned(self._heads)

    def line(self, row: QualityRow) -> str:
        """Return the line of a row."""
        *cells, best = _input(row)
        return self._aligned([*cells, f"{row.spent:.1f}", best])

    def _aligned(self, cells: Sequence[str]) -> str:
        first, *others, last = cells
        shown = [one.rjust(w) for one, w in zip(others, self._widths[1:], strict=True)]
        return "  ".join([first.ljust(self._widths[0]), *shown, last])


def text_of(rows: Sequence[QualityRow]) -> str:
    """Return the tables of inputs, of strategies and of the worst predictions."""
    heads = ["call", "size", "candidates", *rows[0].ratio, "best choice"]
    title = "time of the choice / choice of exhaustive search, in turns"
    inputs = shown_table(title, heads, map(_input, rows), left=["call", "best choice"])
    lines = map(_summary, summaries(rows))
    summary = shown_table("strategies", SUMMARY, lines, left=["strategy"])
    summary = "\n".join([summary, *_limited(rows)])
    every = errors(rows)
    if not every:
        return f"{inputs}\n{summary}"
    worst = every[: min(MOST, max(1, round(WORST * len(every))))]
    told = shown_table(
        "the worst predictions", ERRORS, map(_error, worst), ["call", "choice", "prediction"]
    )
    middle = median(one.error for _, one in every)
    return (
        f"{inputs}\n{summary}\n# error of {len(every)} predictions: median {100 * middle:.1f} %\n"
        f"{told}"
    )


def _limited(rows: Sequence[QualityRow]) -> list[str]:
    """Return a line for each strategy whose searches ran out of time."""
    found = []
    for name in rows[0].ratio:
        mine = [row for row in rows if name in row.limited]
        if not mine:
            continue
        measured = sum(row.measured[name] for row in mine)
        told = (
            f"# {name}: the limit ended its search of {len(mine)} of {plural(len(rows), 'input')}"
        )
        if name == YARDSTICK:
            every = sum(row.candidates for row in mine)
            told += (
                f", which measured a random sample of {measured} of {every} candidates; the time "
                "for all of them is estimated"
            )
        found.append(told)
    return found


def _input(row: QualityRow) -> list[str]:
    ratios = [f"{ratio:.3f}" for ratio in row.ratio.values()]
    best = next(iter(row.choice.values()))
    return [row.collective, format_size(row.nbytes), str(row.candidates), *ratios, best]


def _summary(one: Any) -> list[str]:
    return [one.strategy, f"{100 * one.within_5:.0f} %", f"{100 * one.within_15:.0f} %",
            f"{one.worst:.2f}", f"{one.seconds:.1f}", f"{100 * one.cost:.1f} %"]  # fmt: skip


def _error(pair: Any) -> list[str]:
    row, one = pair
    return [row.collective, format_size(row.nbytes), format_us(one.measured * 1e6),
            format_us(one.predicted * 1e6), f"{100 * one.error:.0f} %", one.choice,
            one.basis]  # fmt: skip
