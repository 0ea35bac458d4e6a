"""The command ``han compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from han.cli.common import JsonFlag, PlotOption, check_files, say, wrote
from han.cli.world import rank


def compare(
    files: Annotated[list[Path], typer.Argument(help="Files that 'han bench --json FILE' wrote.")],
    as_json: JsonFlag = False,
    plot: PlotOption = None,
) -> None:
    """Put runs under several MPI libraries into one table: han against the best library.

    \b
    Examples:
      han compare mpich.json openmpi.json impi.json
      han compare mpich.json openmpi.json --plot libraries.png
    """
    from han.measure import merged
    from han.model.measurements import read

    check_files(plot=plot)
    runs = [read(path) for path in files]
    rows = merged.merge(runs)
    say(merged.to_json(rows) if as_json else merged.table(rows))
    if plot is not None and not rank():
        from han.plots import plots

        title, ratios = plots.title_of(runs[0]), plots.merged_ratios(rows)
        plots.comparison(plots.merged_panels(rows), plot, title, ratios)
        wrote(plot)
