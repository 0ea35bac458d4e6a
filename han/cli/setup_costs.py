"""The command ``han setup-costs``: costs of set-up, and when a persistent request pays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from mpi4py import MPI

from han.cli import options
from han.cli.common import check_files, drawn, keep, prints
from han.cli.measuring import cases_of
from han.cli.progress import progress
from han.cli.words import calls_of
from han.common.tables import shown_table
from han.common.units import format_size
from han.measure.bench import batch_seconds
from han.measure.bench_calls import Case
from han.measure.bench_machine import document, heading, look
from han.measure.session import Session
from han.measure.setup_costs import LATER, PARTS, SetupCosts, measure, steps_of
from han.model.collectives import COLLECTIVES
from han.model.series import Panel
from han.plots.plots import lines

CALLS = [1 << k for k in range(15)]  # shown in pictures


def setup_costs(
    words: options.Calls = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds with new communicators.")] = 5,
    iterations: options.Iterations = None,
    time: options.Time = 0.3,
    config: options.Config = None,
    json_file: options.JsonFile = None,
    plot: options.Plot = None,
) -> None:
    """Measure the costs of set-up, of first and later calls, and of persistent calls.

    Times are microseconds of the slowest rank. "shared" is a first call whose plan an earlier
    communicator has made, "cached" a later call. Later and persistent calls take turns, as in
    'han bench'.
    "pays after" is the number of calls from which a persistent request costs less than blocking
    calls, set-up included (Jocksch et al., figure 14).

    \b
    Examples:
      mpiexec -n 4 han setup-costs
      mpiexec -n 4 han setup-costs allreduce 8,1MiB --plot costs.png
      mpiexec -n 4 han setup-costs --json costs.json
    """
    check_files(json_file, plot=plot)
    cases = cases_of(calls_of(words, COLLECTIVES, "8,64KiB,8MiB"), Case)
    tell = prints(json_file)
    with Session(MPI.COMM_WORLD, rounds, iterations) as session:
        machine = look(session.control, session.add_han(config))
        tell(heading("setup-costs", f"medians of {rounds} rounds", machine))
        seconds = batch_seconds(time, rounds, len(LATER))
        with progress(len(cases) * steps_of(session)) as advance:
            found = measure(session, config, cases, seconds, advance)
    tell(_table(found))
    record = document(
        "han-setup-costs", 3, machine, [one.record() for one in found],
        settings={"rounds": rounds, "iterations": iterations, "seconds": time}, parts=PARTS,
    )  # fmt: skip
    keep(record, json_file)
    drawn(plot, partial(_picture, found))


def _table(found: Sequence[SetupCosts]) -> str:
    rows = [
        [
            one.collective, format_size(one.nbytes),
            *(f"{getattr(one, part):.1f}" for part in PARTS),
            "never" if one.pays is None else str(one.pays),
        ]
        for one in found
    ]  # fmt: skip
    title = f"set-up on {MPI.COMM_WORLD.size} ranks, microseconds"
    return shown_table(title, ["collective", "size", *PARTS, "pays after"], rows)


def _picture(found: Sequence[SetupCosts], plot: Path) -> None:
    """Draw the time per call over the number of calls, set-up included."""
    panels = []
    for one in found:
        series: dict[str, dict[int, float]] = {}
        for calls in CALLS:
            for how, each in one.per_call(calls).items():
                series.setdefault(how, {})[calls] = each
        marks = {} if one.pays is None else {one.pays: f"persistent pays after {one.pays}"}
        title = f"{one.collective} of {format_size(one.nbytes)}"
        panels.append(Panel(title, "calls", series, marks=marks))
    lines(panels, plot, f"set-up included, {MPI.COMM_WORLD.size} ranks")
