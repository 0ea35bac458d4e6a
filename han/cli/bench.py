"""The command ``han bench``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from mpi4py import MPI

from han.cli import bench_programs
from han.cli.common import (
    ConfigOption,
    DtypeOption,
    OpOption,
    PlotOption,
    RootOption,
    check_files,
    wrote,
)
from han.cli.measuring import cases_of, keep, prints, tell_others
from han.cli.progress import progress
from han.measure.bench_calls import Mode, measurable
from han.model.element_types import element_type

if TYPE_CHECKING:
    from han.measure.bench import Bench, Row, Settings
    from han.measure.bench_calls import Case
    from han.model.measurements import Report


class Side(str, Enum):
    """The side to measure."""

    HAN = "han"
    MPI = "mpi"


def bench(
    ctx: typer.Context,
    collectives: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"{', '.join(measurable())}. By default all. With --programs groups of rows."
        ),
    ] = None,
    programs: Annotated[
        bool,
        typer.Option("--programs", help="Measure what programs do besides repeating one call."),
    ] = False,
    left: Annotated[
        bool,
        typer.Option("--left", help="Measure every collective, also those that are MPI's own."),
    ] = False,
    replay: Annotated[
        Path | None,
        typer.Option(help="With --programs: the calls that 'han run --json FILE' recorded."),
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="8:8MiB (doubling), 8:8MiB:4 (times 4) or 8,1KiB,1MiB (a list).")
    ] = "8:8MiB",
    mode: Annotated[Mode, typer.Option(help="How the collectives are called.")] = Mode.BLOCKING,
    shared: Annotated[
        bool, typer.Option("--shared", help="Call on shared arrays instead of ordinary ones.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Write the data before each call, within the time.")
    ] = False,
    dtype: DtypeOption = "f8",
    op: OpOption = "sum",
    root: RootOption = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Batches of each side, in turns.")] = 9,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Calls in a batch. By default chosen by time.")
    ] = None,
    time: Annotated[float, typer.Option(min=0, help="Approximate seconds for a size.")] = 0.3,
    config: ConfigOption = None,
    tuned: Annotated[
        bool | None,
        typer.Option(
            "--tuned/--default",
            help="Use a tuned table and measure the built-in choices beside it, or the built-in "
            "choices only.",
        ),
    ] = None,
    only: Annotated[Side | None, typer.Option(help="Measure one side only.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write JSON to a file; - is standard output.")
    ] = None,
    plot: PlotOption = None,
    check: Annotated[bool, typer.Option(help="Compare the results with MPI's.")] = True,
) -> None:
    """Measure han beside the MPI library, in turns, in the same run.

    Sizes are in bytes, and those of gather, scatter, allgather, alltoall and reduce-scatter are of
    one block. Results are compared with MPI's before and after the timed calls. A wrong result
    ends the run with status 1.

    \b
    Examples:
      mpiexec -n 4 han bench allreduce bcast
      mpiexec -n 4 han bench allreduce --sizes 1KiB:4MiB:4 --mode persistent
      mpiexec -n 2 han bench allreduce --shared --mode persistent
      mpiexec -n 2 han bench bcast --sizes 64KiB:8MiB --fresh
      mpiexec -n 4 han bench --config virtual-2x2 --json mpich.json --plot mpich.png
      mpiexec -n 2 han bench reduce --only han --json -
      mpiexec -n 2 han bench bcast --tuned
      mpiexec -n 2 han bench --programs
      mpiexec -n 4 han bench --programs mixed --replay stats.json
      mpiexec -n 4 han bench --left --config virtual-2x2
    """
    if programs or left or replay is not None:
        from han.measure.program_results import Settings as ProgramSettings

        how = ProgramSettings(rounds, time, check, replay)
        groups = ["left"] if left else collectives or []
        bench_programs.measure(ctx, groups, how, config, json_file, plot)
        return
    from han.measure import bench as measuring

    settings = measuring.Settings(
        mode, element_type(dtype).name, op, root, rounds, iterations, time, check,
        only.value if only else None, shared, fresh, tuned,
    )  # fmt: skip
    _measure(collectives or measurable(), sizes, settings, config, json_file, plot)


def _measure(
    collectives: Sequence[str], sizes: str, settings: Settings, config: str | None,
    json_file: Path | None, plot: Path | None,
) -> None:  # fmt: skip
    """Measure collectives of some sizes; print, keep and draw the results; collective."""
    from han.measure.bench import Bench

    check_files(json_file, plot=plot)
    cases = cases_of(collectives, sizes, settings.case)
    if MPI.COMM_WORLD.size == 1:
        typer.echo("Only one rank, without a peer: start with mpiexec -n 2 han bench", err=True)
    with Bench(MPI.COMM_WORLD, config, settings) as running:
        run = _run_bench(running, cases, prints(json_file))
    keep(run.data, json_file)
    if plot is not None and not MPI.COMM_WORLD.rank:
        from han.plots import plots

        plots.comparison(plots.panels_of(run), plot, title=plots.title_of(run))
        wrote(plot)


def _run_bench(running: Bench, cases: Sequence[Case], tell: Callable[[str], None]) -> Report:
    """Measure all cases, and print each row as soon as it is measured; collective."""
    from han.measure import bench_machine as machines
    from han.measure import bench_report as reports

    settings = running.settings
    machine = machines.look(MPI.COMM_WORLD, running.han)
    tell(reports.head(machine, settings))
    rows: list[Row] = []
    with progress(len(cases)) as advance:
        for case in cases:
            if not rows or rows[-1].collective != case.collective:
                tell(reports.table_head(case.collective, machine, settings))
            rows.append(running.measure(case))
            tell(reports.table_row(rows[-1]))
            advance()
    config = running.han._han.parts.config.to_yaml() if running.han is not None else ""
    others = tell_others(running, tell)
    return reports.report(machine, settings, rows, config, others)
