"""The command ``han``: the table of its commands, and the entry point.

A command's module is imported when the command is run.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from han.cli import endings
from han.common.errors import HanError
from han.common.library import compiled_part, require_mpi
from han.common.suggest import unknown
from han.common.version import __version__
from han.config import untraced
from han.config.environment import ENVIRONMENT, unknown_variables


@dataclass(frozen=True)
class Command:
    """One row of the table of commands: its module, and the function in it, have its name.

    They have underscores for hyphens. `settings` are the context settings of click.
    """

    name: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Any:
        """Import the module, and return the command."""
        from han.cli.grammar import Line  # loads the compiled part, which help does not need

        name = self.name.replace("-", "_")
        function = getattr(importlib.import_module(f"han.cli.{name}"), name)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name, cls=Line, context_settings=dict(self.settings))(function)
        return get_command(alone)


@dataclass(frozen=True)
class Completion:
    """A word that the shell may complete, with the attributes that click's completion reads."""

    value: str
    help: str
    type: str = "plain"


# What follows the first word that is no option of the command belongs to the program.
OF_A_PROGRAM = {"allow_interspersed_args": False, "ignore_unknown_options": True}
COMMANDS = (
    Command("info", "Show versions, levels, settings and usable submodules."),
    Command("explain", "Show what a call would run, and the rule that chose it."),
    Command("plan", "Show what each rank would do for a call, and prove it right."),
    Command("verify", "Prove stored plans right."),
    Command("diff", "Compare two plans: rules, tasks, operations, bytes."),
    Command("schema", "Print the JSON Schema of configurations or machines."),
    Command("simulate", "Predict the time of a call on a described machine."),
    Command("paper", "Compute figures of papers beside what the papers say."),
    Command("classes", "Compute what classes of machines run, and its regret."),
    Command("validate", "Compare predictions with measurements, or fit a machine."),
    Command("calibrate", "Measure this machine, and keep what was found."),
    Command("bench", "Measure han and the MPI library in turns."),
    Command("bench-c", "Measure han and the MPI library as C programs call them."),
    Command("compare", "Tabulate runs under several MPI libraries."),
    Command("ablation", "Measure the worth of each optimisation."),
    Command("setup-costs", "Measure the costs of first and persistent calls."),
    Command("waits", "Measure every wait policy in turns."),
    Command("limits", "Compare collectives with plain copies and additions."),
    Command("tune", "Find the best choices on this machine, and keep them."),
    Command("trace", "Show when the tasks of a traced program ran."),
    Command("run", "Run a program unchanged, with han's collectives.", OF_A_PROGRAM),
    Command("preload", "Print what lets a C or Fortran program use han."),
)
WIDTH = max(map(len, ENVIRONMENT))
VARIABLES = "\n".join(f"  {name:<{WIDTH}}  {about}" for name, about in ENVIRONMENT.items())
NEXT = """
Try next:
  han explain allreduce 1MiB --nodes 8 --ppn 8     what a call would run, and why
  han simulate allreduce 8:1MiB:8 --machine thor   how long it would take on a cluster
  mpiexec -n 4 han bench allreduce                 how long it takes here, beside the MPI library"""
# UsageError of click, or of the copy of click that newer versions of typer hold.
UsageError: Any = typer.BadParameter.__mro__[1]


class Commands(TyperGroup):
    """The commands of ``han``, listed, completed and described without their modules.

    A program may register commands of its own, which come after those of the table.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return [*(row.name for row in COMMANDS), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, or None; raises MissingLibraryError if it needs MPI."""
        for row in COMMANDS:
            if row.name == cmd_name:
                return self._loaded(row)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of a command, the command and its arguments; refuse an unknown name."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not (name.startswith("-") or ctx.resilient_parsing):
            ctx.fail(unknown(f"command {name!r}", name, known))
        return super().resolve_command(ctx, args)

    def _loaded(self, row: Command) -> Any:
        try:
            return row.load()
        except (ImportError, RuntimeError, AttributeError):  # an old mpi4py has not all names
            compiled_part()
            require_mpi()
            raise

    def summaries(self) -> list[tuple[str, str]]:
        """Return the name and the summary of each command."""
        own = [(name, command.get_short_help_str()) for name, command in self.commands.items()]
        return [*((row.name, row.summary) for row in COMMANDS), *own]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each command: its name and its summary."""
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries())

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the commands, or the options, that begin with `incomplete`."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [Completion(*row) for row in self.summaries() if row[0].startswith(incomplete)]


app = typer.Typer(
    name="han",
    cls=Commands,
    help="Hierarchical MPI collectives: show, prove, predict and measure what a call runs.\n\n"
    "Under mpiexec every rank runs the command, and rank 0 prints.",
    epilog=f"\b\nEnvironment variables:\n{VARIABLES}",
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"han {__version__}")
        raise typer.Exit


VersionFlag = Annotated[
    bool,
    typer.Option(
        "-V", "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
]


@app.callback()
def options(ctx: typer.Context, version: VersionFlag = False) -> None:
    """Take the options before the command; without a command print help, and what to try."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())
        print(NEXT)


def main() -> None:
    """Run the command line. An error that only one rank may raise ends all ranks."""
    untraced.forget()  # of all but the programs of 'han run'
    if endings.is_first():
        for text in unknown_variables(os.environ):
            print(f"Warning: {text}", file=sys.stderr)
    else:  # help and versions are the same on all ranks
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    warnings.filterwarnings("ignore", "unknown environment variable")  # printed above
    mistake, outcome = "", 0
    try:
        outcome = app(standalone_mode=False) or 0
    except UsageError as error:  # all ranks have the same arguments
        if endings.is_first():
            error.show()
        outcome = 2
    except typer.Abort:
        outcome = endings.INTERRUPTED
    except HanError as error:
        if not endings.is_mistake(error):
            endings.abort(str(error))
        mistake = str(error)
    except Exception:
        endings.abort()
    if isinstance(outcome, int):
        endings.leave(mistake, outcome)
    outcome.run()  # of han run: the program's errors and status are its own
