"""The command ``han paper``: figures of papers from formulas and the simulator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from han.cli import options
from han.cli import paper_texts as texts
from han.cli.common import check_files, rank, say, wrote
from han.cli.progress import phases
from han.common.errors import ArgumentError
from han.common.suggest import expect_known
from han.common.units import parse_sizes
from han.config.machine import load_machine
from han.plots import plots
from han.tuning.papers import bienz, jocksch, luo
from han.tuning.papers.figure import Figure, Found, Setting

FIGURES: dict[str, Figure] = {**bienz.FIGURES, **jocksch.FIGURES, **luo.FIGURES}

FigureArgument = Annotated[
    str | None, typer.Argument(help="The figure, such as bienz-10. Without it: a list of all.")
]
MachineOption = Annotated[
    str | None, typer.Option(help="Another machine than the paper's: a YAML file, or a ready one.")
]
NodesOption = Annotated[int | None, typer.Option(min=1, help="Another (largest) number of nodes.")]
PpnOption = Annotated[int | None, typer.Option(min=1, help="Another number of ranks on a node.")]
BytesOption = Annotated[
    str | None, typer.Option("--bytes", help="Other sizes: 8:4MiB:8 or 8,1KiB,1MiB.")
]


def paper(
    figure: FigureArgument = None,
    machine: MachineOption = None,
    nodes: NodesOption = None,
    ppn: PpnOption = None,
    nbytes: BytesOption = None,
    plot: options.Plot = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Compute a figure of a paper beside what the paper says about it.

    Papers print few numbers of their figures. What they say is beside what is found here, and the
    last lines say in what both differ, and why.

    \b
    Examples:
      han paper
      han paper bienz-10 --plot nap.png
      han paper bienz-14 --nodes 16
      han paper jocksch-3
    """
    check_files(plot=plot)
    if figure is None:
        say(texts.listing(FIGURES))
        return
    expect_known("figure", figure, FIGURES)
    row = FIGURES[figure]
    setting = _setting(row, machine, nodes, ppn, nbytes)
    if rank():
        return
    found = _made(row, setting)
    name = machine or row.machine
    if as_json:
        say(json.dumps(texts.record(figure, row, found, setting, name), indent=1))
    else:
        say(texts.text(figure, row, found, setting, name))
    if plot is not None:
        _plot(figure, name, found, plot)


def _setting(
    row: Figure, machine: str | None, nodes: int | None, ppn: int | None, nbytes: str | None
) -> Setting:
    model = load_machine(machine or row.machine or "two-cores")
    sizes = row.sizes if nbytes is None else tuple(parse_sizes(nbytes))
    return Setting(model, nodes or row.nodes, ppn or row.ppn, sizes)


def _made(row: Figure, setting: Setting) -> Found:
    """Compute a figure; a terminal shows what is being simulated."""
    with phases() as tell:
        if tell is None:
            return row.make(setting)
        return row.make(replace(setting, tell=lambda what: tell(what, 0, 1)))


def _plot(figure: str, machine: str, found: Found, path: Path) -> None:
    if not found.panels:
        raise ArgumentError(f"{figure} is text; it has no picture")
    panels = [
        plots.Panel(one.title, one.over, one.series, one.marks, unit=one.unit)
        for one in found.panels
    ]
    plots.lines(panels, path, f"{figure} on {machine}" if machine else figure)
    wrote(path)
