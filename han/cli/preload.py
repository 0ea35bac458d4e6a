"""The command ``han preload``: what lets a C or Fortran program use han."""

from __future__ import annotations

import json

from han.cli import options
from han.cli.common import say
from han.cli.executable import settings


def preload(as_json: options.JsonFlag = False) -> None:
    """Print the variables with which a C or Fortran program uses han.

    `han run PROGRAM` sets them for one program.

    \b
    Examples:
      srun env $(han preload) ./program
      mpiexec -n 8 env $(han preload) HAN_STATS=1 ./program
    """
    found = settings()
    say(json.dumps(found) if as_json else "\n".join(f"{name}={found[name]}" for name in found))
