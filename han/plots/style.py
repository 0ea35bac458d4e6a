"""One style of all pictures: sizes, colours, labels; figures and their files.

A picture is as wide as a page, and its smallest text can be read where it takes half of one.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from han.common.atomic import write_output
from han.common.errors import ArgumentError
from han.common.units import format_size

PAGE = 7.5  # inches: the width of a picture
SMALL = 8  # points: the size of the smallest text
HIGHEST = 0.97  # of an axis: the place of the highest name
LONGEST = 22  # letters of a line's name in a row
COLORS = ("#1b6ca8", "#c8553d", "#588157", "#8e6c8a", "#b08900", "#4a4e69", "#2a9d8f", "#9d0208")
HAN, LIBRARY, BUILT_IN, GREY = COLORS[0], COLORS[1], "#8a8a8a", "#9a9a9a"
INK = "#333333"
# The colour of whoever is measured, by the begin of its name; "MPI" is a library without a name.
KNOWN = {
    "han": HAN, "tuned": HAN, "MPICH": LIBRARY, "MPI": LIBRARY, "Open MPI": COLORS[2],
    "Intel MPI": COLORS[3], "built-in": BUILT_IN,
}  # fmt: skip
RC: dict[Any, Any] = {
    "font.size": 9, "axes.titlesize": 9.5, "axes.labelsize": 9, "figure.titlesize": 10,
    "xtick.labelsize": SMALL, "ytick.labelsize": SMALL, "legend.fontsize": SMALL,
    "legend.frameon": False, "lines.linewidth": 1.5, "lines.markersize": 3.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "grid.alpha": 0.3, "savefig.dpi": 150,
}  # fmt: skip
MISSING = "pictures need matplotlib, which is not installed: pip install matplotlib"

P = ParamSpec("P")
T = TypeVar("T")


class PlotError(ArgumentError, RuntimeError):
    """A picture cannot be made."""


# ---- figures and files --------------------------------------------------------------------------


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Let a function that makes a picture make it in the style. It raises PlotError."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        expect_matplotlib()
        import matplotlib

        with matplotlib.rc_context(RC):
            return draw(*args, **kwargs)

    return drawn


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **how: Any
) -> tuple[Any, Any]:
    """Return a figure of a size in inches, and its axes; `how` are other arguments of subplots.

    No backend is chosen: a figure needs no display, and a notebook keeps its own backend.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **how)


def expect_matplotlib() -> None:
    """Raise PlotError, which says how to install it, if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PlotError(MISSING) from None


def svg_of(figure: Any) -> str:
    """Return a figure as an SVG element for an HTML page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def check_picture(path: Path) -> None:
    """Raise PlotError if matplotlib is missing, or cannot write pictures of this suffix."""
    if find_spec("matplotlib") is None:
        raise PlotError(MISSING)
    if path.suffix in (".png", ".pdf", ".svg", ""):
        return
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix[1:].lower() not in kinds:
        raise PlotError(f"{path}: unknown picture format. Known: {', '.join(kinds)}")


def save(figure: Any, path: Path) -> None:
    """Write a figure to a file. Raises PlotError if the file cannot be written."""
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format=path.suffix[1:] or None, bbox_inches="tight")
        write_output(path if path.suffix else path.with_suffix(".png"), picture.getvalue())
    except OSError as error:
        raise PlotError(f"{path}: cannot be written: {error.strerror or error}") from None
    except ValueError as error:
        raise PlotError(f"{path}: {error}") from None


# ---- grids of panels ----------------------------------------------------------------------------


def columns_of(panels: int, most: int = 3) -> int:
    """Return how many panels stand beside each other: four are two rows of two."""
    return 2 if panels == 4 else max(1, min(panels, most))


def used(axes: Any, panels: Sequence[T]) -> Iterable[tuple[Any, T]]:
    """Return the axes of panels with the panels, and hide those that are left."""
    every = [*axes.flat]
    for axis in every[len(panels) :]:
        axis.set_visible(False)
    return zip(every, panels, strict=False)


# ---- colours, axes and labels -------------------------------------------------------------------


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each name: han and the libraries have theirs in all pictures."""
    every = list(dict.fromkeys(names))
    found: dict[str, str] = {}
    for name in every:
        own = next((KNOWN[one] for one in KNOWN if f"{name} ".startswith(f"{one} ")), None)
        if own is not None and own not in found.values():
            found[name] = own
    left = [color for color in COLORS if color not in found.values()]
    others = [name for name in every if name not in found]
    return found | {name: left[k % len(left)] for k, name in enumerate(others)}


def size_axis(axis: Any, sizes: Sequence[int], most: int = 6) -> None:
    """Scale and label an axis of sizes in bytes, with at most so many labels."""
    axis.set_xscale("symlog" if 0 in sizes else "log", base=2)
    shown = apart(sizes, most)
    axis.set_xticks(shown, [format_size(n) for n in shown], rotation=45)
    axis.set_xticks([], minor=True)


def apart(sizes: Sequence[int], most: int) -> list[int]:
    """Return some of the sizes, in order, that lie apart on a log scale, about as many."""
    bits = [math.log2(max(1, n)) for n in sizes]
    least = (bits[-1] - bits[0]) / most if bits else 0.0
    found: list[int] = []
    for n, at in zip(sizes, bits, strict=True):
        if not found or at - math.log2(max(1, found[-1])) >= least:
            found.append(n)
    return found


def label_lines(
    axis: Any, ends: Mapping[str, tuple[float, float]], colors: Mapping[str, str]
) -> None:  # fmt: skip
    """Name lines beside their last points, in their colours; names do not cover each other."""
    axis.autoscale_view()
    _, height = axis.figure.get_size_inches() * axis.get_position().bounds[2:]
    folded = {name: textwrap.fill(name, LONGEST) for name in ends}
    rows = 1 + max((text.count("\n") for text in folded.values()), default=0)
    gap = 1.25 * rows * SMALL / 72 / max(height, 0.1)
    places = {name: _place(axis, *end) for name, end in ends.items()}
    for name, place in _spread(places, gap).items():
        axis.annotate(
            folded[name], (1, place), (4, 0), xycoords="axes fraction", textcoords="offset points",
            va="center", color=colors[name], fontsize=SMALL, annotation_clip=False,
        )  # fmt: skip


def _place(axis: Any, x: float, y: float) -> float:
    """Return the height of a point as a share of the axis."""
    point = axis.transData.transform((x, y))
    return float(axis.transAxes.inverted().transform(point)[1])


def _spread(places: Mapping[str, float], apart: float) -> dict[str, float]:
    """Return places in the same order that are so far apart; at most HIGHEST."""
    ordered = sorted(places, key=lambda name: places[name])
    found: dict[str, float] = {}
    low, high = float("-inf"), HIGHEST
    for name in ordered:
        low = found[name] = max(places[name], low + apart)
    for name in reversed(ordered):
        found[name] = min(found[name], high)
        high = found[name] - apart
    return found


def legend(figure: Any, handles: Sequence[Any]) -> None:
    """Draw one legend below all panels, in as many rows as it needs."""
    if handles:
        letters = sum(len(handle.get_label()) + 5 for handle in handles)
        rows = -(-letters // round(figure.get_figwidth() * 15))
        figure.legend(
            handles=handles, loc="outside lower center", ncols=-(-len(handles) // max(1, rows))
        )
