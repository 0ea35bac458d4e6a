"""The command ``han``: what is here, what would run, how fast it is."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Annotated

import typer
from mpi4py import MPI

import han
from han.cli import ablation as _cli_ablation
from han.cli import bench as _cli_bench
from han.cli import calibrate as _cli_calibrate
from han.cli import diff as _cli_diff
from han.cli import info as _cli_info
from han.cli import limits as _cli_limits
from han.cli import plan as _cli_plan
from han.cli import setup as _cli_setup
from han.cli import simulate as _cli_simulate
from han.cli import trace as _cli_trace
from han.cli import waits as _cli_waits
from han.cli import wisdom as _cli_wisdom
from han.cli.common import ConfigOption, JsonFlag, say
from han.common.errors import ArgumentError, HanError
from han.config.environment import ENVIRONMENT, unknown_variables

VARIABLES = "\n".join(f"  {name:<12} {about}" for name, about in ENVIRONMENT.items())

app = typer.Typer(
    name="han",
    help="Hierarchical MPI collectives: what is here, what would run, how fast it is.\n\n"
    "Under mpiexec every command runs on all ranks, and rank 0 prints.",
    epilog=f"\b\nEnvironment variables:\n{VARIABLES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"han {han.__version__}")
        raise typer.Exit


VersionFlag = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")
]


@app.callback()
def options(version: VersionFlag = False) -> None:
    """Take what comes before a command."""


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
    say(_cli_info.as_json(record) if as_json else _cli_info.as_text(record))


COMMANDS = (
    info,
    _cli_plan.explain,
    _cli_plan.plan,
    _cli_plan.verify,
    _cli_diff.diff,
    _cli_simulate.simulate,
    _cli_calibrate.calibrate,
    _cli_bench.bench,
    _cli_bench.compare,
    _cli_ablation.ablation,
    _cli_setup.setup_costs,
    _cli_waits.waits,
    _cli_limits.limits,
    _cli_trace.trace,
    _cli_wisdom.wisdom,
)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Run the command line; an error that one rank meets ends all ranks."""
    if MPI.COMM_WORLD.rank:  # help and usage errors are the same on all ranks
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    else:
        for text in unknown_variables(os.environ):
            print(f"han: {text}", file=sys.stderr)
    warnings.filterwarnings("ignore", "unknown environment variable")  # said above
    try:
        app()
    except HanError as error:
        _fail(error)
    except Exception:
        traceback.print_exc()
        _abort()


def _fail(error: HanError) -> None:
    """Say a mistake once, and leave with status 1."""
    from han.common.errors import ConfigError
    from han.measure.bench import WrongResultError
    from han.tasks.files.store import PlanFileError

    agreed = isinstance(error, ArgumentError | ConfigError | PlanFileError | WrongResultError)
    if not agreed or not MPI.COMM_WORLD.rank:
        print(f"han: {error}", file=sys.stderr, flush=True)
    if not agreed:
        _abort()
    raise SystemExit(1)


def _abort() -> None:
    if MPI.COMM_WORLD.size > 1:
        MPI.COMM_WORLD.Abort(1)
    raise SystemExit(1)
