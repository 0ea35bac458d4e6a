"""``han tune quality``: strategies compared with exhaustive search."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from han.cli.common import wrote
from han.cli.progress import phases
from han.cli.world import rank
from han.common.errors import ArgumentError

if TYPE_CHECKING:
    from han.measure.tune.quality import Row
    from han.measure.tune.tuner import Plans


def compare(
    config: Any, plans: Plans, strategies: Sequence[str], fresh: bool, restart: bool,
    picture: Path | None, file: Path | None,
) -> None:  # fmt: skip
    """Measure, print rows and tables, and write a picture and JSON; collective."""
    from mpi4py import MPI

    from han.cli.quality_file import conditions
    from han.cli.quality_report import Report
    from han.measure.tune import quality

    comm = MPI.COMM_WORLD
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
    if picture is not None and not rank():
        from han.plots.quality import quality as draw

        draw(found.rows, picture)
        wrote(picture)


def _known(comm: Any, file: Path | None, where: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return the rows of an interrupted run. Raises ArgumentError on all ranks."""
    from han.cli.quality_file import is_kept, unfinished

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


def wanted(text: str | None) -> list[str]:
    """Return the strategies that a user names with commas, or the usual ones."""
    from han.measure.tune.quality import USUAL

    return [name for name in (text or "").split(",") if name] or [*USUAL]
