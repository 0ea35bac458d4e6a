"""The command ``han paper``: figures of papers from formulas and the simulator."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from han.cli import options
from han.cli.common import answer, check_files, drawn, rank
from han.cli.paper_check import Checked, checked, table
from han.cli.progress import phases
from han.cli.words import calls_of
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
    words: Annotated[
        list[str] | None,
        options.words(
            "[FIGURE] [SIZES]",
            "The figure, such as bienz-10 (without it: a list of all), and other sizes than the "
            f"paper's: {options.SIZES}.",
            FIGURES,
        ),
    ] = None,
    nodes: options.Nodes = None,
    ppn: options.Ppn = None,
    machine: options.OtherMachine = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="A table of the numbers that the paper prints, with relative errors; "
            "without a figure, of all papers (minutes).",
        ),
    ] = False,
    plot: options.Plot = None,
    json_file: options.JsonFile = None,
) -> None:
    """Compute a figure of a paper beside what the paper says about it.

    Papers print few numbers of their figures. What they say is beside what is found here, and the
    last lines say in what both differ, and why.

    \b
    Examples:
      han paper
      han paper bienz-10 --plot nap.png
      han paper bienz-14 8,4KiB --nodes 16
      han paper jocksch-3
      han paper tran-15 --json
      han paper jain-11 --check
    """
    check_files(json_file, plot=plot)
    asked = calls_of(words, sizes="")
    figure = _figure(asked.names)
    setting_of = partial(_setting, machine=machine, nodes=nodes, ppn=ppn, sizes=asked.sizes)
    if check:
        if plot is not None:
            raise ArgumentError("--check prints a table, --plot draws a figure: give one of them")
        _check(figure, machine, setting_of, json_file)
        return
    if figure is None:
        every = {name: one.about for name, one in FIGURES.items()}
        answer(json_file, lambda: listing(FIGURES), lambda: every)
        return
    row = FIGURES[figure]
    setting = setting_of(row)
    if rank():
        return
    found = _computed(row, setting)
    name = machine or row.machine
    about = figure, row, found, setting, name
    answer(json_file, partial(text, *about), partial(record, *about))
    drawn(plot, partial(_plot, figure, name, found))


def _figure(names: Sequence[str]) -> str | None:
    """Return the figure that is named, or None; raises ArgumentError for another name."""
    for name in names:
        expect_known("figure", name, FIGURES)
    if len(names) > 1:
        raise ArgumentError(f"{', '.join(names)}: name one figure")
    return names[0] if names else None


def _setting(
    row: Figure, machine: str | None, nodes: int | None, ppn: int | None, sizes: str
) -> Setting:
    model = load_machine(machine or row.machine or "two-cores")
    wanted = tuple(parse_sizes(sizes)) if sizes else row.sizes
    return Setting(model, nodes or row.nodes, ppn or row.ppn, wanted)


def _computed(row: Figure, setting: Setting, before: str = "") -> Computed:
    with phases() as tell:
        return row.make(replace(setting, tell=lambda what: tell(before + what, 0, 1)))


def _check(
    figure: str | None, machine: str | None, setting_of: Callable[[Figure], Setting],
    json_file: Path | None,
) -> None:  # fmt: skip
    """Print the numbers that papers print about a figure or about all, beside those found here."""
    if figure is not None and not FIGURES[figure].printed:
        known = ", ".join(name for name, row in FIGURES.items() if row.printed)
        raise ArgumentError(f"{figure}: the paper prints no number about it. Those with: {known}")
    if rank():
        return
    rows: list[Checked] = []
    for name, row in FIGURES.items():
        if row.printed and figure in (None, name):
            setting = setting_of(row)
            found = _computed(row, setting, f"{name}: ")
            rows += checked(name, machine or row.machine, setting.size, found)
    answer(json_file, lambda: table(rows), lambda: [row.record() for row in rows])


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
