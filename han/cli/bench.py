"""The command ``han bench``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from mpi4py import MPI

from han.cli import options
from han.cli.common import check_files, drawn, keep, prints
from han.cli.measuring import cases_of, tell_alone, tell_others
from han.cli.osu import tables
from han.cli.progress import progress
from han.cli.words import Words, calls_of
from han.common.errors import ArgumentError
from han.measure import bench as measure
from han.measure import programs as measured
from han.measure.bench import Bench, BenchRow, Settings
from han.measure.bench_calls import Case
from han.measure.bench_machine import look
from han.measure.merged import rows_of
from han.measure.modes import Mode
from han.measure.programs import ProgramResult, Programs, chosen
from han.measure.programs import Row as ProgramRow
from han.model.collectives import COLLECTIVES
from han.model.element_types import element_type
from han.model.measurements import Report
from han.plots import plots

# The parameters of the command that say something about programs too.
OF_PROGRAMS = {
    "words", "programs", "left", "replay", "rounds", "time", "check", "config", "json_file",
    "plot",
}  # fmt: skip
# Those that say something about OSU's tables.
OF_OSU = {
    "words", "osu", "mode", "shared", "dtype", "op", "root", "iterations", "config", "only",
    "check",
}  # fmt: skip


class Side(str, Enum):
    """The side to measure."""

    HAN = "han"
    MPI = "mpi"


def bench(
    ctx: typer.Context,
    words: options.Calls = None,
    programs: Annotated[
        bool,
        typer.Option(
            "--programs",
            help="Measure what programs do besides repeating one call. Words name groups.",
        ),
    ] = False,
    left: Annotated[
        bool,
        typer.Option("--left", help="Measure every collective, also those that are MPI's own."),
    ] = False,
    replay: Annotated[
        Path | None,
        typer.Option(help="With --programs: the calls that 'han run --json FILE' recorded."),
    ] = None,
    mode: Annotated[Mode, typer.Option(help="How the collectives are called.")] = Mode.BLOCKING,
    shared: Annotated[
        bool, typer.Option("--shared", help="Call on shared arrays instead of ordinary ones.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Write the data before each call, within the time.")
    ] = False,
    dtype: options.Dtype = "f8",
    op: options.Op = "sum",
    root: options.Root = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Batches of each side, in turns.")] = 9,
    iterations: options.Iterations = None,
    time: options.Time = 0.3,
    config: options.Config = None,
    tuned: Annotated[
        bool | None,
        typer.Option(
            "--tuned/--default",
            help="Use a tuned table and measure the built-in choices beside it, or the built-in "
            "choices only.",
        ),
    ] = None,
    osu: Annotated[
        bool,
        typer.Option(
            "--osu",
            help="Measure one side, by default han, as the OSU micro-benchmarks do, and print "
            "their tables.",
        ),
    ] = False,
    only: Annotated[Side | None, typer.Option(help="Measure one side only.")] = None,
    json_file: options.JsonFile = None,
    plot: options.Plot = None,
    check: Annotated[bool, typer.Option(help="Compare the results with MPI's.")] = True,
) -> None:
    """Measure han beside the MPI library, in turns, in the same run.

    Without names all collectives are measured whose sizes all ranks know. Sizes are in bytes, and
    those of gather, scatter, allgather, alltoall and reduce-scatter are of one block. Results are
    compared with MPI's before and after the timed calls. A wrong result ends the run with status 1.

    \b
    Examples:
      mpiexec -n 4 han bench allreduce,bcast
      mpiexec -n 4 han bench allreduce 1KiB:4MiB:4 --mode persistent
      mpiexec -n 2 han bench allreduce --shared --mode persistent
      mpiexec -n 2 han bench bcast 64KiB:8MiB --fresh
      mpiexec -n 4 han bench --config virtual-2x2 --json mpich.json --plot mpich.png
      mpiexec -n 2 han bench reduce --only han --json -
      mpiexec -n 2 han bench bcast --tuned
      mpiexec -n 2 han bench --programs
      mpiexec -n 4 han bench --programs mixed --replay stats.json
      mpiexec -n 4 han bench --left --config virtual-2x2
      mpiexec -n 4 han bench allreduce 4:1MiB --osu
    """
    if programs or left or replay is not None:
        _check_sizes(calls_of(words, sizes="").sizes)
        _check_options(ctx, OF_PROGRAMS, "--programs")
        how = Settings(rounds=rounds, seconds=time, check=check)
        groups = ["left"] if left else calls_of(words, sizes="").names
        _measure_programs(groups, replay, how, config, json_file, plot)
        return
    settings = Settings(
        mode, element_type(dtype).name, op, root, rounds, iterations, time, check,
        only.value if only else None, shared, fresh, tuned,
    )  # fmt: skip
    if osu:
        _check_options(ctx, OF_OSU, "--osu")
        tables(words, settings, config, typed=_given(ctx, "dtype"))
        return
    _measure(calls_of(words, COLLECTIVES, "8:8MiB"), settings, config, json_file, plot)


def _measure(
    words: Words, settings: Settings, config: str | None, json_file: Path | None,
    plot: Path | None,
) -> None:  # fmt: skip
    """Measure collectives of some sizes; print, keep and draw the results; collective."""
    check_files(json_file, plot=plot)
    cases = cases_of(words, settings.case)
    tell_alone("han bench")
    with Bench(MPI.COMM_WORLD, config, settings) as running:
        run = _run(running, cases, prints(json_file))
    keep(run.data, json_file)
    drawn(plot, lambda path: plots.comparison(rows_of([run]), path, plots.title_of(run)))


def _run(running: Bench, cases: Sequence[Case], tell: Callable[[str], None]) -> Report:
    """Measure all cases, and print each row as soon as it is measured; collective."""
    settings = running.settings
    machine = look(MPI.COMM_WORLD, running.han)
    tell(measure.head(machine, settings))
    rows: list[BenchRow] = []
    with progress(len(cases)) as advance:
        for case in cases:
            if not rows or rows[-1].collective != case.collective:
                tell(measure.table_head(case.collective, machine, settings))
            rows.append(running.measure(case))
            tell(measure.table_row(rows[-1]))
            advance()
    config = running.han._han.parts.config.to_yaml() if running.han is not None else ""
    others = tell_others(running, tell)
    return measure.report(machine, settings, rows, config, others)


# ---- what programs do besides repeating one call ------------------------------------------------


def _check_sizes(sizes: str) -> None:
    """Raise ArgumentError for sizes, which say nothing about programs."""
    if sizes:
        raise ArgumentError(f"sizes ({sizes}) are for calls of one collective, not for --programs")


def _check_options(ctx: typer.Context, known: set[str], of: str) -> None:
    """Raise ArgumentError for an option that says nothing about what is measured."""
    for name in sorted(ctx.params.keys() - known):
        if _given(ctx, name):
            raise ArgumentError(f"--{name} has no meaning with {of}")


def _given(ctx: typer.Context, name: str) -> bool:
    """Whether a parameter is on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _measure_programs(
    groups: Sequence[str], replay: Path | None, settings: Settings, config: str | None,
    json_file: Path | None, plot: Path | None,
) -> None:  # fmt: skip
    """Measure the rows of some groups, or of all, and print or write the results; collective."""
    check_files(json_file, plot=plot)
    rows = chosen(groups, replay)
    with Programs(MPI.COMM_WORLD, config, settings) as running:
        record, results = _run_programs(running, rows, replay, prints(json_file))
    keep(record, json_file)
    title = f"{record['machine']['ranks']} ranks, {record['machine']['library']}"
    drawn(plot, lambda path: plots.of_programs(results, path, title))


def _run_programs(
    running: Programs, rows: Sequence[ProgramRow], replay: Path | None, tell: Callable[[str], None]
) -> tuple[dict[str, Any], list[ProgramResult]]:
    """Measure all rows, and print the table; return the JSON document and the results."""
    settings, machine = running.settings, look(MPI.COMM_WORLD, running.han)
    tell(measured.head(machine, settings))
    results: list[ProgramResult] = []
    with progress(len(rows)) as advance:
        for row in rows:
            results += running.measure(row)
            advance()
    tell(measured.table(machine, results))
    tell(measured.summary(results))
    config, others = running.han._han.parts.config.to_yaml(), tell_others(running, tell)
    return measured.report(machine, settings, replay, results, config, others), results
