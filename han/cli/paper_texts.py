"""What ``han paper`` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from han.common.tables import shown_table
from han.common.units import format_size
from han.tuning.papers.figure import Figure, Found, Panel, Setting

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


def text(name: str, row: Figure, found: Found, setting: Setting, machine: str) -> str:
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
    """Return a table of a panel: a row for each x, a column for each name; * marks the least."""
    names, rows = list(panel.series), []
    for x in sorted({x for points in panel.series.values() for x in points}):
        values = [panel.series[name].get(x) for name in names]
        known = [v for v in values if v is not None]
        least = min(known) if len(known) > 1 and panel.unit.startswith("time ") else None
        marks = ("*" if least is not None and v == least else "" for v in values)
        cells = (mark + _number(v, panel) for mark, v in zip(marks, values, strict=True))
        rows.append([_x(x, panel), *cells])
    return ["", f"# {panel.title}: {panel.unit}", shown_table("", [_unit(panel), *names], rows)]


def _unit(panel: Panel) -> str:
    return panel.over.split()[-1] if panel.over.startswith("bytes of") else panel.over


def _x(x: int, panel: Panel) -> str:
    return format_size(x) if panel.over.startswith("bytes") else str(x)


def _number(value: float | None, panel: Panel) -> str:
    if value is None:
        return "-"
    if panel.unit == "number":
        return f"{value:.0f}"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def record(name: str, row: Figure, found: Found, setting: Setting, machine: str) -> dict[str, Any]:
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
