"""The command ``han``: what is here, what would run, how fast it is."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Annotated, Any

import typer

from han.cli.common import say
from han.cli.lazy import Command, LazyGroup
from han.cli.world import abort, rank
from han.common.errors import ArgumentError, HanError
from han.common.library import require_mpi
from han.common.version import __version__
from han.config.environment import ENVIRONMENT, unknown_variables

VARIABLES = "\n".join(f"  {name:<12} {about}" for name, about in ENVIRONMENT.items())

COMMANDS = (
    Command(
        "info", "han.cli.info", "Show versions, levels, settings and which submodules can be used."
    ),
    Command(
        "explain",
        "han.cli.plan",
        "Show what a call would run, stage by stage, and the rule that chose it.",
    ),
    Command(
        "plan",
        "han.cli.plan",
        "Show what ranks would do for a call, down to their operations, and prove it right.",
    ),
    Command("verify", "han.cli.plan", "Prove stored plans right, three times back to back."),
    Command(
        "diff",
        "han.cli.diff",
        "Compare two choices: rules, algorithms, tasks, operations, bytes and messages.",
    ),
    Command(
        "simulate",
        "han.cli.simulate",
        "Predict how long a call takes on a machine described in YAML, and what it does there.",
    ),
    Command(
        "calibrate",
        "han.cli.calibrate",
        "Hold a machine's description against measurements, or fit it to them.",
    ),
    Command(
        "bench", "han.cli.bench", "Measure han beside the MPI library, in turns, in the same run."
    ),
    Command(
        "compare",
        "han.cli.bench",
        "Put runs under several MPI libraries into one table: han against the best library.",
    ),
    Command(
        "ablation",
        "han.cli.ablation",
        "Measure what each optimisation in shared memory is worth, by leaving it out.",
    ),
    Command(
        "setup-costs",
        "han.cli.setup",
        "Measure first, cached and persistent calls, and the making of what they need.",
    ),
    Command(
        "waits",
        "han.cli.waits",
        "Measure every wait policy (HAN_WAIT), in turns, on these ranks and processors.",
    ),
    Command(
        "limits",
        "han.cli.limits",
        "Measure how near collectives come to plain copies and additions of the same bytes.",
    ),
    Command(
        "trace",
        "han.cli.trace",
        "Show when tasks ran: how long they took, and what part of it overlaps, waits, copies.",
    ),
    Command(
        "wisdom", "han.cli.wisdom", "List the plans that HAN_WISDOM has stored, or remove them."
    ),
)


class Commands(LazyGroup):
    """The commands of ``han``."""

    table = COMMANDS

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, or None; raises MissingLibraryError if it needs MPI."""
        try:
            return super().get_command(ctx, cmd_name)
        except (ImportError, RuntimeError):
            require_mpi()
            raise


app = typer.Typer(
    name="han",
    cls=Commands,
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
        say(f"han {__version__}")
        raise typer.Exit


VersionFlag = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")
]


@app.callback()
def options(version: VersionFlag = False) -> None:
    """Take what comes before a command."""


def main() -> None:
    """Run the command line; an error that one rank meets ends all ranks."""
    if rank():  # help and usage errors are the same on all ranks
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
    from han.common.errors import ConfigError, WrongResultError
    from han.tasks.files.store import PlanFileError

    agreed = isinstance(error, ArgumentError | ConfigError | PlanFileError | WrongResultError)
    if not agreed or not rank():
        print(f"han: {error}", file=sys.stderr, flush=True)
    if not agreed:
        _abort()
    raise SystemExit(1)


def _abort() -> None:
    abort()
    raise SystemExit(1)
