"""The command ``han waits``: times of collectives under each wait policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from mpi4py import MPI

from han.cli import options
from han.cli.common import check_files, keep, prints
from han.cli.measuring import cases_of
from han.cli.progress import progress
from han.cli.words import calls_of
from han.common.suggest import expect_known
from han.common.tables import shown_table
from han.common.units import format_size
from han.config.parts import POLICIES
from han.measure.bench import batch_seconds
from han.measure.bench_calls import Case
from han.measure.bench_machine import document, heading, look
from han.measure.session import Session
from han.measure.waits import Waited, measure


def waits(
    words: options.Calls = None,
    policies: Annotated[
        str | None, typer.Option(help="Policies, separated by commas. By default all.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Batches of each policy, in turns.")] = 5,
    time: options.Time = 1.5,
    work: Annotated[
        float, typer.Option(min=0, help="Microseconds that ranks but 0 work before each call.")
    ] = 0.0,
    config: options.Config = None,
    json_file: options.JsonFile = None,
) -> None:
    """Measure every wait policy (HAN_WAIT) and the MPI library in turns, on these ranks.

    \b
    Examples:
      mpiexec -n 4 han waits
      mpiexec -n 8 han waits bcast 8,1MiB --policies yield,futex
      mpiexec -n 3 han waits 8 --work 3000
      mpiexec -n 2 han waits --json waits.json
    """
    check_files(json_file)
    names = policies.split(",") if policies else list(POLICIES)
    for name in names:
        expect_known("policy", name, POLICIES)
    cases = cases_of(calls_of(words, ["allreduce"], "8,64KiB"), Case)
    tell = prints(json_file)
    with Session(MPI.COMM_WORLD, rounds) as session:
        machine = look(session.control, session.add_han(config))
        tell(heading("waits", f"every policy, median of {rounds} rounds", machine))
        each = batch_seconds(time, rounds, len(names) + 1)
        with progress(len(cases)) as advance:
            found = measure(session, config, names, cases, each, work * 1e-6, advance)
    tell(_table(found))
    how = {"rounds": rounds, "seconds": time, "work": work}
    rows = map(asdict, found)
    keep(document("han-waits", 1, machine, rows, settings=how), json_file)


def _table(found: Sequence[Waited]) -> str:
    best = {
        key: min(one.median for one in found if (one.collective, one.nbytes) == key)
        for key in {(one.collective, one.nbytes) for one in found}
    }
    rows = [
        [
            one.policy, one.collective, format_size(one.nbytes),
            *(f"{value:.2f}" for value in (one.median, one.low, one.high)),
            f"{one.median / best[one.collective, one.nbytes]:.2f}x",
        ]
        for one in found
    ]  # fmt: skip
    heads = ["policy", "collective", "size", "median", "least", "most", "of the best"]
    return shown_table("microseconds of the slowest rank", heads, rows)
