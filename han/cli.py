"""The command ``han``: what is here, what would run, how fast it is."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from mpi4py import MPI

import han
from han import _cli_info
from han._bench_calls import Mode, measurable
from han._suggest import unknown
from han._units import parse_size
from han.errors import ArgumentError, HanError
from han.tasks.signature import COLLECTIVES

if TYPE_CHECKING:
    from han._bench_report import Report
    from han.bench import Bench, Row, Settings
    from han.explain import Explanation


class Side(str, Enum):
    """Who is measured."""

    HAN = "han"
    MPI = "mpi"


app = typer.Typer(
    name="han",
    help="Hierarchical MPI collectives: what is here, what would run, how fast it is.\n\n"
    "Under mpiexec every command runs on all ranks, and rank 0 prints.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ConfigOption = Annotated[
    str | None,
    typer.Option("--config", help="YAML file, or the name of a ready configuration."),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Write a picture (.png, .pdf, .svg).")
]
DtypeOption = Annotated[str, typer.Option(help="NumPy's name of the element type.")]
OpOption = Annotated[str, typer.Option(help="sum, prod, max, min, land, band ...")]
RootOption = Annotated[int, typer.Option(min=0, help="Of bcast and reduce.")]


@app.command()
def info(config: ConfigOption = None, as_json: JsonFlag = False) -> None:
    """Show versions, levels, settings and which submodules can be used.

    \b
    Examples:
      han info
      mpiexec -n 4 han info --config virtual-2x2
      mpiexec -n 4 han info --json
    """
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config)
    record = _cli_info.collect(comm)
    _say(_cli_info.as_json(record) if as_json else _cli_info.as_text(record))


@app.command()
def explain(
    collective: Annotated[str, typer.Argument(help=", ".join(COLLECTIVES))],
    size: Annotated[str, typer.Argument(help="Bytes: 4MiB, 64KiB, 8.")] = "0",
    op: OpOption = "sum",
    dtype: DtypeOption = "f8",
    root: RootOption = 0,
    config: ConfigOption = None,
    ranks: Annotated[
        int | None,
        typer.Option(min=1, help="Plan for this many ranks rather than for those that run."),
    ] = None,
    ppn: Annotated[
        int | None, typer.Option(min=1, help="With --ranks: ranks per node; all on one if unsaid.")
    ] = None,
    plot: PlotOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a call would run, stage by stage, and the rule that chose it.

    \b
    Examples:
      mpiexec -n 4 han explain allreduce 4MiB --config virtual-2x2
      han explain bcast 1MiB --ranks 64 --ppn 8
      han explain allreduce 1MiB --ranks 8 --ppn 2 --plot taskgraph.png
    """
    _check_files(plot)
    found = _explain(collective, _size(size), op, dtype, root, config, ranks, ppn)
    if plot is not None:
        _plot_graph(found, plot)
    _say(_cli_info.explanation_json(found) if as_json else str(found))


@app.command()
def verify(
    files: Annotated[list[Path], typer.Argument(help="What 'han plan --save FILE' wrote.")],
) -> None:
    """Prove stored plans right, three times back to back.

    \b
    Example:
      han plan bcast 1MiB --ranks 64 --ppn 8 --save bcast.json && han verify bcast.json
    """
    from han import _cli_plan

    for path in files:
        _say(_cli_plan.prove_file(path))


class Form(str, Enum):
    """How a plan is written."""

    STAGES = "stages"
    DOT = "dot"
    MERMAID = "mermaid"


@app.command()
def plan(
    collective: Annotated[str, typer.Argument(help=", ".join(COLLECTIVES))],
    size: Annotated[str, typer.Argument(help="Bytes: 4MiB, 64KiB, 8.")] = "0",
    ranks: Annotated[int, typer.Option(min=1, help="Ranks to plan for.")] = 8,
    ppn: Annotated[
        int | None, typer.Option(min=1, help="Ranks per node; all on one if unsaid.")
    ] = None,
    op: OpOption = "sum",
    dtype: DtypeOption = "f8",
    root: RootOption = 0,
    config: ConfigOption = None,
    form: Annotated[Form, typer.Option("--as", help="How to write the task graph.")] = Form.STAGES,
    disassemble: Annotated[
        int | None, typer.Option(min=0, metavar="RANK", help="List the operations of a rank.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Prove all ranks' programs, or say what is wrong."),
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Write graph and programs to a file, for 'han verify'.")
    ] = None,
) -> None:
    """Show what ranks would do for a call, down to their operations, and prove it right.

    \b
    Examples:
      han plan allreduce 1MiB --ranks 8 --ppn 2
      han plan bcast 64KiB --ranks 8 --ppn 2 --disassemble 3
      han plan allreduce 4MiB --ranks 64 --ppn 8 --verify
      han plan bcast 1MiB --ranks 8 --ppn 2 --as dot | dot -Tsvg -o bcast.svg
    """
    from han import _cli_plan

    _check_files(save)
    found = _explain(collective, _size(size), op, dtype, root, config, ranks, ppn)
    if save is not None and not MPI.COMM_WORLD.rank:
        _cli_plan.save(found, save)
    if verify:
        _say(_cli_plan.prove(found))
    elif disassemble is not None:
        _say(_cli_plan.listing(found, disassemble))
    else:
        _say(_cli_plan.picture(found, form.value))


def _explain(
    collective: str, nbytes: int, op: str, dtype: str, root: int,
    config: str | None, ranks: int | None, ppn: int | None,
) -> Explanation:  # fmt: skip
    from han.dtypes import OPS

    if collective not in COLLECTIVES:
        raise ArgumentError(unknown("collective", collective, COLLECTIVES))
    if op not in OPS:
        raise ArgumentError(unknown("operation", op, OPS))
    mpi_op: MPI.Op = getattr(MPI, op.upper())
    if ranks is not None:
        return _cli_info.imagine(
            ranks, ppn or ranks, config, (collective, nbytes, mpi_op, dtype, root)
        )
    if ppn is not None:
        raise ArgumentError("--ppn goes with --ranks")
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config)
    return comm.explain(collective, nbytes, mpi_op, dtype, root)


def _plot_graph(found: Explanation, path: Path) -> None:
    from han import plots

    if not MPI.COMM_WORLD.rank:
        plots.task_graph(found.graph, path, title=found.plan.signature.describe())


@app.command()
def bench(
    collectives: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(measurable())}; all if none is named.")
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="8:8MiB doubles, 8:8MiB:4 goes times 4, 8,1KiB,1MiB lists.")
    ] = "8:8MiB",
    mode: Annotated[Mode, typer.Option(help="How the collectives are called.")] = Mode.BLOCKING,
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
      mpiexec -n 4 han bench --config virtual-2x2 --json mpich.json --plot mpich.png
      mpiexec -n 2 han bench reduce --only han --json -
    """
    from han import _bench_calls
    from han import bench as measuring

    settings = measuring.Settings(
        mode, _bench_calls.element_type(dtype).name, op, root, rounds, iterations, time, check,
        only.value if only else None,
    )  # fmt: skip
    _check_files(json_file, plot)
    names = collectives or list(measurable())
    wanted = measuring.parse_sizes(sizes)
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
    from han import _bench_machine as machines
    from han import _bench_report as reports

    machine = machines.look(MPI.COMM_WORLD, running.han)
    tell = (lambda text: None) if quiet else _say
    tell(reports.head(machine, settings, han.__version__))
    rows: list[Row] = []
    with _progress(len(names) * len(sizes)) as advance:
        for name in names:
            tell(reports.table_head(name, machine, settings))
            for row in running.rows(name, sizes):
                rows.append(row)
                tell(reports.table_row(row))
                advance()
    return reports.report(machine, settings, rows, han.__version__)


def _check_files(*paths: Path | None) -> None:
    """Refuse places that cannot be written before anything is measured."""
    for path in paths:
        if path is not None and str(path) != "-" and not path.parent.is_dir():
            raise ArgumentError(f"{path}: cannot be written: there is no folder {path.parent}")


def _keep(run: Report, json_file: Path | None, plot: Path | None) -> None:
    from han import _bench_report as reports

    if MPI.COMM_WORLD.rank:
        return
    if json_file is not None and str(json_file) == "-":
        print(reports.to_json(run))
    elif json_file is not None:
        json_file.write_text(reports.to_json(run) + "\n", encoding="utf-8")
    if plot is not None:
        from han import plots

        plots.comparison(plots.panels_of(run), plot, title=plots.title_of(run))


@app.command()
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
    from han import _bench_report as reports

    _check_files(plot)
    runs = [reports.read(path) for path in files]
    rows = reports.merge(runs)
    _say(reports.merged_json(rows) if as_json else reports.merged_table(rows))
    if plot is not None and not MPI.COMM_WORLD.rank:
        from han import plots

        plots.comparison(plots.merged_panels(rows), plot, title=plots.title_of(runs[0]))


# ---- how the ranks speak -----------------------------------------------------------------------


def _say(text: str) -> None:
    """Print on rank 0."""
    if not MPI.COMM_WORLD.rank:
        print(text, flush=True)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise ArgumentError(f"size {error}") from None


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Any]:
    """Yield what to call after each step; a bar on rank 0's standard error if it is a terminal."""
    if MPI.COMM_WORLD.rank or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=total)
        yield lambda: progress.advance(task)


def main() -> None:
    """Run the command line; an error that one rank meets ends all ranks."""
    if MPI.COMM_WORLD.rank:  # help and usage errors are the same on all ranks
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        app()
    except HanError as error:
        _fail(error)
    except Exception:
        traceback.print_exc()
        _abort()


def _fail(error: HanError) -> None:
    """Say a mistake once, and leave with status 1."""
    from han.bench import WrongResultError
    from han.errors import ConfigError

    agreed = isinstance(error, ArgumentError | ConfigError | WrongResultError)
    if not agreed or not MPI.COMM_WORLD.rank:
        print(f"han: {error}", file=sys.stderr, flush=True)
    if not agreed:
        _abort()
    raise SystemExit(1)


def _abort() -> None:
    if MPI.COMM_WORLD.size > 1:
        MPI.COMM_WORLD.Abort(1)
    raise SystemExit(1)
