"""The command ``han verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from han.cli import options
from han.cli.common import check_json, keep, prints
from han.cli.plan import prove_file
from han.cli.progress import phases


def verify(
    files: Annotated[list[Path], typer.Argument(help="Files that 'han plan --save FILE' wrote.")],
    json_file: options.JsonFile = None,
) -> None:
    """Prove stored plans right.

    The proof holds for every interleaving of the ranks, and for several calls in a row.

    \b
    Example:
      han plan bcast 1MiB --nodes 8 --ppn 8 --save bcast.json && han verify bcast.json
    """
    check_json(json_file)
    tell = prints(json_file)
    proofs = []
    for path in files:
        with phases() as progress:
            proof = prove_file(path, progress)
        proofs.append({"file": str(path), **proof.as_dict()})
        tell(f"{path}: {proof}")
    keep(proofs, json_file)
