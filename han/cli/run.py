"""The command ``han run``: run a program with han in the place of MPI's communicators."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from han.cli import options
from han.cli.common import check_files
from han.cli.executable import Executable, found
from han.cli.program import CODE, MODULE, STDIN, UserProgram
from han.common.errors import ArgumentError
from han.config import untraced

StatsFlag = Annotated[
    bool,
    typer.Option("--stats", help="Print calls, bytes and seconds by collective at exit."),
]
StatsFile = Annotated[
    Path | None,
    typer.Option("--json", help="Write these statistics as JSON to a file (.json), not printed."),
]
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="PROGRAM",
        help="A file of Python, -m MODULE, -c CODE, - for standard input, or an executable. What "
        "follows is the program's.",
    ),
]


def run(
    program: Words,
    config: options.Config = None,
    stats: StatsFlag = False,
    json_file: StatsFile = None,
) -> UserProgram | Executable:
    """Run a program unchanged, of Python, C or Fortran: han serves its collectives.

    The exit status is that of the program. All ranks must be started this way. Options of this
    command come before the program.

    \b
    Examples:
      mpiexec -n 4 han run program.py --its options
      mpiexec -n 4 han run --stats -m package.module
      mpiexec -n 4 han run --json stats.json --config virtual-2x2 program.py
      mpiexec -n 4 han run ./program
    """
    executable = None if program[0].startswith("-") else found(program[0])
    if executable is None:
        _check_program(program)
    _check_statistics(json_file)
    _check_config(config)
    _set(config, stats, json_file)
    if executable is not None:
        return Executable(executable, tuple(program))
    untraced.watch()
    return UserProgram(tuple(program))


def _check_program(words: list[str]) -> None:
    """Raise for a program that cannot be run."""
    first = words[0]
    if first in (MODULE, CODE):
        if len(words) < 2:
            raise typer.BadParameter(f"{first} needs {'a module' if first == MODULE else 'code'}")
    elif first.startswith("-") and first != STDIN:
        raise typer.BadParameter(f"no such option: {first}; see han run --help")
    elif first != STDIN and not os.path.exists(first):
        raise ArgumentError(f"{first}: no such file; to run a module write -m {first}")


def _check_statistics(path: Path | None) -> None:
    check_files(path)
    if path is not None and path.suffix != ".json":
        raise ArgumentError(f"--json {path}: expected the name of a .json file")


def _check_config(config: str | None) -> None:
    """Raise ConfigError now, as the program would raise it where it imports MPI."""
    from han.config.config import load_config
    from han.submodules.names import validate_names

    loaded = load_config(config)
    if loaded.rules:
        validate_names(loaded)


def _set(config: str | None, stats: bool, json_file: Path | None) -> None:
    """Make the settings that the program's han.Comm will take."""
    from han.config.rc import rc

    if config is not None:
        found = os.path.abspath(config) if os.path.isfile(config) else config
        rc.config = found  # the program may change its directory
    if stats or json_file is not None:
        rc.stats = str(json_file.absolute()) if json_file is not None else True
