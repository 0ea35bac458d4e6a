"""The command ``han compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from han.cli import options
from han.cli.common import answer, check_files, check_json, drawn
from han.measure import merged
from han.model.measurements import read
from han.plots import plots


def compare(
    files: Annotated[list[Path], typer.Argument(help="Files that 'han bench --json FILE' wrote.")],
    json_file: options.JsonFile = None,
    plot: options.Plot = None,
) -> None:
    """Put runs under several MPI libraries into one table: han against the best library.

    \b
    Examples:
      han compare mpich.json openmpi.json impi.json
      han compare mpich.json openmpi.json --plot libraries.png
    """
    check_json(json_file)
    check_files(plot=plot)
    runs = [read(path) for path in files]
    rows = merged.merge(runs)
    answer(json_file, lambda: merged.table(rows), lambda: merged.records(rows))
    drawn(plot, lambda path: plots.comparison(rows, path, plots.title_of(runs[0])))
