"""The command ``han paper``: figures of papers from formulas and the simulator."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from han.cli import options
from han.cli.common import check_files, drawn, rank, say
from han.cli.progress import phases
from han.common.errors import ArgumentError
from han.common.suggest import expect_known
from han.common.units import parse_sizes
from han.config.machine import load_machine
from han.model.series import Panel
from han.plots import plots
from han.tuning.papers import bienz, jain, jocksch, luo, tran
from han.tuning.papers.figure import Computed, Figure, Setting

FIGURES: dict[str, Figure] = {
    **bienz.FIGURES, **jain.FIGURES, **jocksch.FIGURES, **luo.FIGURES, **tran.FIGURES,
}  # fmt: skip


def paper(
    figure: Annotated[
        str | None, typer.Argument(help="The figure, such as bienz-10. Without it: a list of all.")
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(help="Another machine than the paper's: a YAML file, or a ready one."),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Another (largest) number of nodes.")
    ] = None,
    ppn: Annotated[
        int | None, typer.Option(min=1, help="Another number of ranks on a node.")
    ] = None,
    nbytes: Annotated[
        str | None, typer.Option("--bytes", help="Other sizes: 8:4MiB:8 or 8,1KiB,1MiB.")
    ] = None,
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
      han paper tran-15 --json
    """
    check_files(plot=plot)
    if figure is None:
        say(listing(FIGURES))
        return
    expect_known("figure", figure, FIGURES)
    row = FIGURES[figure]
    setting = _setting(row, machine, nodes, ppn, nbytes)
    if rank():
        return
    with phases() as tell:
        found = row.make(replace(setting, tell=lambda what: tell(what, 0, 1)))
    name = machine or row.machine
    if as_json:
        say(json.dumps(record(figure, row, found, setting, name), indent=1))
    else:
        say(text(figure, row, found, setting, name))
    drawn(plot, partial(_plot, figure, name, found))


def _setting(
    row: Figure, machine: str | None, nodes: int | None, ppn: int | None, nbytes: str | None
) -> Setting:
    model = load_machine(machine or row.machine or "two-cores")
    sizes = row.sizes if nbytes is None else tuple(parse_sizes(nbytes))
    return Setting(model, nodes or row.nodes, ppn or row.ppn, sizes)


def _plot(figure: str, machine: str, found: Computed, path: Path) -> None:
    if not found.panels:
        raise ArgumentError(f"{figure} is text; it has no picture")
    plots.lines(found.panels, path, f"{figure} on {machine}" if machine else figure)


# ---- texts --------------------------------------------------------------------------------------


WIDTH = 100


def listing(figures: Mapping[str, Figure]) -> str:
    """Return a list of all figures, by paper."""
    lines, paper = [], ""
    for name, row in figures.items():
        if row.paper != paper:
            paper = row.paper
            lines.append(f"# {paper}")
        lines.append(f"{name:<16} {row.about}")
    return "\n".join(lines)


def text(name: str, row: Figure, found: Computed, setting: Setting, machine: str) -> str:
    """Return the tables of a figure, what the paper says, and why it is different."""
    lines = [f"# {name}: {row.paper}", f"# {row.about}"]
    if machine:
        lines.append(f"# machine {machine}: {setting.machine.about}")
    lines += found.text
    for panel in found.panels:
        lines += _table(panel)
    for claim in found.claims:
        lines += ["", *_wrapped("paper", claim.paper), *_wrapped("here", claim.ours)]
        lines.append("        so as in the paper" if claim.holds else "        not as in the paper")
    return "\n".join([*lines, *([""] if row.why else []), *_wrapped("why", row.why)])


def _wrapped(word: str, told: str) -> list[str]:
    return textwrap.wrap(
        told, WIDTH, initial_indent=f"{word:<8}", subsequent_indent=" " * 8,
    )  # fmt: skip


def _table(panel: Panel) -> list[str]:
    head = panel.over.split()[-1] if panel.over.startswith("bytes of") else panel.over
    return ["", f"# {panel.title}: {panel.unit}", panel.table(head)]


def record(
    name: str, row: Figure, found: Computed, setting: Setting, machine: str
) -> dict[str, Any]:
    """Return a figure as plain data."""
    return {
        "figure": name,
        "paper": row.paper,
        "about": row.about,
        "machine": machine,
        "nodes": setting.nodes,
        "ppn": setting.ppn,
        "panels": [
            {"title": one.title, "over": one.over, "unit": one.unit, "series": one.series}
            for one in found.panels
        ],
        "claims": [
            {"paper": one.paper, "here": one.ours, "holds": one.holds} for one in found.claims
        ],
        "text": list(found.text),
        "why": row.why,
    }
