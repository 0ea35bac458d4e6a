"""The command ``han preload``: what lets a C or Fortran program use han."""

from __future__ import annotations

from han.cli import options
from han.cli.common import answer, check_files
from han.cli.executable import settings


def preload(json_file: options.JsonFile = None) -> None:
    """Print the variables with which a C or Fortran program uses han.

    `han run PROGRAM` sets them for one program.

    \b
    Examples:
      srun env $(han preload) ./program
      mpiexec -n 8 env $(han preload) HAN_STATS=1 ./program
    """
    check_files(json_file)
    found = settings()
    answer(json_file, lambda: "\n".join(f"{name}={found[name]}" for name in found), lambda: found)
