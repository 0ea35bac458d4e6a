"""A map of who wins where: the best composition by nodes, ranks a node and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from han.common.grouped import grouped
from han.common.units import format_size
from han.model.facts import COMPOSITIONS
from han.plots.style import COLORS, SMALL, legend, new_figure, save, styled
from han.tuning.search.regret import Regret

TITLE = 46  # letters of a panel's title in a row
FAR = 1.1  # the regret from which on it is printed bold


@styled
def winners(found: Sequence[Regret], path: Path) -> None:
    """Write a picture: a panel for each machine and collective, and the regret in each cell.

    Raises PlotError.
    """
    machines = [*grouped((one.machine, one) for one in found).items()]
    names = [*dict.fromkeys(one.case.collective for one in found)]
    shapes = {(one.case.nodes, one.case.ppn) for one in found}
    size = 3.4 * len(names), (1.1 + 0.24 * len(shapes)) * len(machines)
    figure, axes = new_figure(*size, len(machines), len(names), squeeze=False)
    for row, (machine, own) in zip(axes, machines, strict=True):
        for axis, name in zip(row, names, strict=True):
            _panel(axis, [one for one in own if one.case.collective == name])
            axis.set_title(fill(f"{name}: {machine}", TITLE), fontsize=SMALL)
    figure.suptitle("Colour: the best composition. Number: the regret of the choice")
    figure.supylabel("nodes x ranks a node", fontsize=9)
    shown = [name for name in COMPOSITIONS if any(one.winner == name for one in found)]
    legend(figure, [_patch(name) for name in shown])
    save(figure, path)


def _panel(axis: Any, found: Sequence[Regret]) -> None:
    from matplotlib.colors import ListedColormap

    shapes = sorted({(one.case.nodes, one.case.ppn) for one in found})
    sizes = sorted({one.case.nbytes for one in found})
    cells = [[len(COMPOSITIONS)] * len(sizes) for _ in shapes]
    for one in found:
        at = shapes.index((one.case.nodes, one.case.ppn)), sizes.index(one.case.nbytes)
        cells[at[0]][at[1]] = COMPOSITIONS.index(one.winner)
        weight = "bold" if one.now >= FAR else "normal"
        axis.text(at[1], at[0], f"{one.now:.2f}", ha="center", va="center", fontsize=7,
                  color="white", fontweight=weight)  # fmt: skip
    colors = ListedColormap([*COLORS[: len(COMPOSITIONS)], "white"])
    axis.imshow(cells, cmap=colors, vmin=0, vmax=len(COMPOSITIONS), aspect="auto")
    axis.set_xticks(range(len(sizes)), [format_size(n) for n in sizes], rotation=45)
    axis.set_yticks(range(len(shapes)), [f"{n} x {p}" for n, p in shapes])


def _patch(name: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=COLORS[COMPOSITIONS.index(name)], label=name)
