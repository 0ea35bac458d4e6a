"""The texts of ``han tune``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from han.common.tables import shown_table
from han.common.units import format_size, format_us, plural
from han.tuning.search.space import IN_A_ROW, LATE, LEFT
from han.tuning.tuned.points import Point
from han.tuning.tuned.texts import spell

if TYPE_CHECKING:
    from han.measure.tune.tuner import Plans
    from han.tuning.search.space import Pruned

HEADS = ("size", "tuned us", "built-in us", "MPI us", "gain", "over MPI", "tried", "choice")
TOLD, MOST_TOLD = (IN_A_ROW, LEFT, LATE), 5  # groups of what is left out that are told one by one


def head(plans: Plans, ranks: int) -> str:
    """Return the comment lines above the tables."""
    limit = "no limit" if plans.budget is None else f"{plans.budget:g} s"
    return (
        f"# han tune: {plural(len(plans.inputs), 'input')} on {plural(ranks, 'rank')}, strategy "
        f"{plans.strategy}, budget {limit}\n"
        "# microseconds of the slowest rank, median; gain: built-in / tuned; tried: candidates "
        "measured as a whole"
    )


def table_text(points: Sequence[Point]) -> str:
    """Return a table for each collective, and the geometric means of the gains."""
    parts = []
    for name in dict.fromkeys(point.key.call for point in points):
        mine = sorted((p for p in points if p.key.call == name), key=lambda p: p.nbytes)
        parts.append(shown_table(name, HEADS, map(_row, mine), left=["choice"]))
    if points:
        over_default = _mean([p.default.median / p.best.median for p in points])
        parts.append(f"# geometric mean of gains over the built-in choices: {over_default:.2f}")
        over_mpi = [p.library.median / p.best.median for p in points if p.library is not None]
        if over_mpi:
            parts.append(f"# geometric mean of gains over the MPI library: {_mean(over_mpi):.2f}")
    return "\n".join(["", *parts])


def _row(point: Point) -> list[str]:
    best, library = point.best.median, point.library
    return [
        format_size(point.nbytes),
        format_us(best * 1e6),
        format_us(point.default.median * 1e6),
        "-" if library is None else format_us(library.median * 1e6),
        f"{point.default.median / best:.2f}",
        "-" if library is None else f"{library.median / best:.2f}",
        str(point.tried),
        "built-in" if point.use is None else spell(point.use),
    ]


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def pruned_text(pruned: Sequence[Pruned], where: str) -> str:
    """Return comment lines about what was left out: a count and an example for each group.

    Those of some groups are told one by one. `where` names the file that lists all.
    """
    found = [f"# left out, listed with reasons in {where} (--verbose prints it):"]
    for group, mine in _groups(pruned).items():
        shown = min(MOST_TOLD, len(mine)) if group in TOLD else 1
        found.append(f"#   {len(mine)} {group}{'' if group in TOLD else ', such as'}")
        found += [f"#     {one}" for one in mine[:shown]]
        if group in TOLD and shown < len(mine):
            found.append(f"#     and {len(mine) - shown} more")
    return "\n".join(found)


def pruned_list(pruned: Sequence[Pruned]) -> str:
    """Return a line for everything that was left out, with the reason, by groups of reasons."""
    lines = []
    for group, mine in _groups(pruned).items():
        lines += [f"{group}:", *(f"  {one}" for one in mine)]
    return "\n".join(lines)


def _groups(pruned: Sequence[Pruned]) -> dict[str, list[Pruned]]:
    """Return what was left out by the group of its reason, those that are told one by one first."""
    names = [*TOLD, *(one.group for one in pruned)]
    found: dict[str, list[Pruned]] = {name: [] for name in names}
    for one in pruned:
        found[one.group].append(one)
    return {name: mine for name, mine in found.items() if mine}
