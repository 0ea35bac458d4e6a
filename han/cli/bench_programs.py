"""``han bench --programs``: what programs do besides repeating one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from mpi4py import MPI

from han.cli.common import check_files, wrote
from han.cli.measuring import keep, prints, tell_others
from han.cli.progress import progress
from han.common.errors import ArgumentError

if TYPE_CHECKING:
    from han.measure.program_results import Result, Settings
    from han.measure.programs import Programs, Row

# The parameters of the command that say something about programs too.
TAKEN = {
    "collectives", "programs", "left", "replay", "rounds", "time", "check", "config", "json_file",
    "plot",
}  # fmt: skip


def measure(
    ctx: typer.Context, groups: Sequence[str], settings: Settings, config: str | None,
    json_file: Path | None, plot: Path | None,
) -> None:  # fmt: skip
    """Measure the rows of some groups, or of all, and print or write the results; collective."""
    from han.measure.programs import Programs, chosen

    _check_options(ctx)
    check_files(json_file, plot=plot)
    rows = chosen(groups, settings.replay)
    with Programs(MPI.COMM_WORLD, config, settings) as running:
        record, results = _run(running, rows, prints(json_file))
    keep(record, json_file)
    if plot is not None and not MPI.COMM_WORLD.rank:
        from han.plots.programs import ratios

        machine = record["machine"]
        ratios(results, plot, f"{machine['ranks']} ranks, {machine['library']}")
        wrote(plot)


def _check_options(ctx: typer.Context) -> None:
    """Raise ArgumentError for an option that says nothing about programs."""
    for name in sorted(ctx.params.keys() - TAKEN):
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ArgumentError(f"--{name} is for calls of one collective, not for --programs")


def _run(
    running: Programs, rows: Sequence[Row], tell: Callable[[str], None]
) -> tuple[dict[str, Any], list[Result]]:
    """Measure all rows, and print the table; return the JSON document and the results."""
    from han.measure import program_results as texts
    from han.measure.bench_machine import look

    machine = look(MPI.COMM_WORLD, running.han)
    tell(texts.head(machine, running.settings))
    results: list[Result] = []
    with progress(len(rows)) as advance:
        for row in rows:
            results += running.measure(row)
            advance()
    tell(texts.table(machine, results))
    tell(texts.summary(results))
    config, others = running.han._han.parts.config.to_yaml(), tell_others(running, tell)
    return texts.report(machine, running.settings, results, config, others), results
