"""The commands ``han bench`` and ``han compare``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from mpi4py import MPI

import han
from han.cli.common import (
    ConfigOption,
    DtypeOption,
    JsonFlag,
    OpOption,
    PlotOption,
    RootOption,
    check_files,
    progress,
    say,
    write_file,
)
from han.measure.bench_calls import Mode, measurable
from han.measure.sizes import parse_sizes
from han.model.element_types import element_type

if TYPE_CHECKING:
    from han.measure.bench import Bench, Row, Settings
    from han.model.measurements import Report


class Side(str, Enum):
    """Who is measured."""

    HAN = "han"
    MPI = "mpi"


def bench(
    collectives: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(measurable())}; all if none is named.")
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="8:8MiB doubles, 8:8MiB:4 goes times 4, 8,1KiB,1MiB lists.")
    ] = "8:8MiB",
    mode: Annotated[Mode, typer.Option(help="How the collectives are called.")] = Mode.BLOCKING,
    shared: Annotated[
        bool, typer.Option("--shared", help="On arrays that the ranks of a node share.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Write the data anew before each call, in the time.")
    ] = False,
    dtype: DtypeOption = "f8",
    op: OpOption = "sum",
    root: RootOption = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Batches of each side, in turns.")] = 9,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Calls in a batch; found out if unsaid.")
    ] = None,
    time: Annotated[float, typer.Option(min=0, help="Seconds for a size, about.")] = 0.3,
    config: ConfigOption = None,
    only: Annotated[Side | None, typer.Option(help="Measure one side only.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write JSON to a file; - is standard output.")
    ] = None,
    plot: PlotOption = None,
    check: Annotated[bool, typer.Option(help="Compare the results with MPI's first.")] = True,
) -> None:
    """Measure han beside the MPI library, in turns, in the same run.

    Sizes are bytes of one rank's share. Every result is compared with MPI's before it is
    timed; a wrong one ends the run with status 1.

    \b
    Examples:
      mpiexec -n 4 han bench allreduce bcast
      mpiexec -n 4 han bench allreduce --sizes 1KiB:4MiB:4 --mode persistent
      mpiexec -n 2 han bench allreduce --shared --mode persistent
      mpiexec -n 2 han bench bcast --sizes 64KiB:8MiB --fresh
      mpiexec -n 4 han bench --config virtual-2x2 --json mpich.json --plot mpich.png
      mpiexec -n 2 han bench reduce --only han --json -
    """
    from han.measure import bench as measuring
    from han.measure import bench_calls as _bench_calls

    settings = measuring.Settings(
        mode, element_type(dtype).name, op, root, rounds, iterations, time, check,
        only.value if only else None, shared, fresh,
    )  # fmt: skip
    check_files(json_file, plot=plot)
    names = collectives or list(measurable())
    wanted = parse_sizes(sizes)
    for name in names:  # mistakes are told before anything runs
        for nbytes in wanted:
            _bench_calls.check_case(settings.case(name, nbytes), MPI.COMM_WORLD.size)
    with measuring.Bench(MPI.COMM_WORLD, config, settings) as running:
        run = _run_bench(running, settings, names, wanted, quiet=str(json_file) == "-")
    _keep(run, json_file, plot)


def _run_bench(
    running: Bench, settings: Settings, names: list[str], sizes: list[int], quiet: bool
) -> Report:
    """Measure and print as the rows come."""
    from han.measure import bench_machine as machines
    from han.measure import bench_report as reports

    machine = machines.look(MPI.COMM_WORLD, running.han)
    tell = (lambda text: None) if quiet else say
    tell(reports.head(machine, settings, han.__version__))
    rows: list[Row] = []
    with progress(len(names) * len(sizes)) as advance:
        for name in names:
            tell(reports.table_head(name, machine, settings))
            for row in running.rows(name, sizes):
                rows.append(row)
                tell(reports.table_row(row))
                advance()
    config = running.han._han.config.to_yaml() if running.han is not None else ""
    return reports.report(machine, settings, rows, han.__version__, config)


def _keep(run: Report, json_file: Path | None, plot: Path | None) -> None:
    from han.measure import bench_report as reports

    if MPI.COMM_WORLD.rank:
        return
    if json_file is not None and str(json_file) == "-":
        print(reports.to_json(run))
    elif json_file is not None:
        write_file(json_file, reports.to_json(run) + "\n")
    if plot is not None:
        from han.plots import plots

        plots.comparison(plots.panels_of(run), plot, title=plots.title_of(run))


def compare(
    files: Annotated[list[Path], typer.Argument(help="What 'han bench --json FILE' wrote.")],
    as_json: JsonFlag = False,
    plot: PlotOption = None,
) -> None:
    """Put runs under several MPI libraries into one table: han against the best library.

    \b
    Examples:
      han compare mpich.json openmpi.json impi.json
      han compare mpich.json openmpi.json --plot libraries.png
    """
    from han.measure import bench_report as reports
    from han.model.measurements import read

    check_files(plot=plot)
    runs = [read(path) for path in files]
    rows = reports.merge(runs)
    say(reports.merged_json(rows) if as_json else reports.merged_table(rows))
    if plot is not None and not MPI.COMM_WORLD.rank:
        from han.plots import plots

        title, ratios = plots.title_of(runs[0]), plots.merged_ratios(rows)
        plots.comparison(plots.merged_panels(rows), plot, title, ratios)
