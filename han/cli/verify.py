"""The command ``han verify``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from han.cli import options
from han.cli.common import say
from han.cli.plan import prove_file
from han.cli.progress import phases


def verify(
    files: Annotated[list[Path], typer.Argument(help="Files that 'han plan --save FILE' wrote.")],
    as_json: options.JsonFlag = False,
) -> None:
    """Prove stored plans right.

    The proof holds for every interleaving of the ranks, and for several calls in a row.

    \b
    Example:
      han plan bcast 1MiB --nodes 8 --ppn 8 --save bcast.json && han verify bcast.json
    """
    proofs = []
    for path in files:
        with phases() as progress:
            proof = prove_file(path, progress)
        proofs.append({"file": str(path), **proof.as_dict()})
        if not as_json:
            say(f"{path}: {proof}")
    if as_json:
        say(json.dumps(proofs, indent=2))
