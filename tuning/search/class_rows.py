"""Rows of a class of machines from what was predicted: boxes of adjacent cases with one use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from han.common.units import format_size
from han.config.rules import Use
from han.model.collectives import ROWS
from han.model.facts import SIZES
from han.tuning.search.portfolio import Case, Grid
from han.tuning.tuned.uses import use_record

AXES = "nodes", "ppn", "nbytes"
LEVELS = ["node", "network"]  # of the default configuration, for which rows are computed
Cell = tuple[int, int, int]  # places on the axes
Box = tuple[range, range, range]


class Computed(NamedTuple):
    """A use, the calls that run it, and how many times as long the built-in choice takes there."""

    use: Use
    collective: str
    box: Box
    gains: tuple[float, float]  # the least and the largest


def computed(
    found: Mapping[Case, int], times: Mapping[Case, Mapping[int, float]],
    uses: Mapping[str, Sequence[Use | None]], grid: Grid,
) -> list[Computed]:  # fmt: skip
    """Return the boxes of all collectives in which another use than the built-in one decides.

    Shapes of more ranks than the grid has run what fewer nodes run.
    """
    made = []
    for name in grid.collectives:
        cells = {_cell(case, grid): case for case in found if case.collective == name}
        cells |= _beyond(cells, grid)
        for number, use in enumerate(uses[name]):
            own = {cell for cell, case in cells.items() if found[case] == number}
            for box in _boxes(own) if use is not None else ():
                here = [times[cells[cell]] for cell in product(*box)]
                gains = [ratios[0] / ratios[number] for ratios in here]
                assert use is not None
                made.append(Computed(use, name, box, (min(gains), max(gains))))
    return made


def _cell(case: Case, grid: Grid) -> Cell:
    nodes, ppn, nbytes = (getattr(grid, axis).index(getattr(case, axis)) for axis in AXES)
    return nodes, ppn, nbytes


def _beyond(cells: Mapping[Cell, Case], grid: Grid) -> dict[Cell, Case]:
    """Return the cells of shapes that were not predicted, with the case that stands for each."""
    found: dict[Cell, Case] = {}
    every = product(*(range(len(getattr(grid, axis))) for axis in AXES))
    for nodes, ppn, nbytes in every:
        fewer = ((n, ppn, nbytes) for n in range(nodes, -1, -1))
        known = next((one for one in fewer if one in cells), None)
        if known is not None and known[0] != nodes:
            found[nodes, ppn, nbytes] = cells[known]
    return found


def _boxes(cells: set[Cell]) -> Iterator[Box]:
    """Yield boxes that hold these cells and no others: each as large as it can be, bytes first."""
    left = set(cells)
    while left:
        box = [range(place, place + 1) for place in min(left)]
        for axis in (2, 1, 0):
            while True:
                longer = range(box[axis].start, box[axis].stop + 1)
                more = [*box[:axis], range(box[axis].stop, box[axis].stop + 1), *box[axis + 1 :]]
                if not {*product(*more)} <= left:
                    break
                box[axis] = longer
        nodes, ppn, nbytes = box
        yield nodes, ppn, nbytes
        left -= {*product(*box)}


def records(
    made: Iterable[Computed], grid: Grid, bounded: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield rows as files have them; between two values of an axis their geometric mean divides.

    Rows at an edge of the grid hold beyond it, or if they are `bounded` as far as if the next value
    were twice as large or half.
    """
    for one in made:
        row, low, high = ROWS[one.collective], *one.gains
        when: dict[str, Any] = {"collective": one.collective, "levels": LEVELS, "mapped": False}
        if row.reduces:
            when |= {"commutative": True, "native": True, "heavy": False, "reproducible": False}
        if row.uneven:
            when |= {"uneven": False}
        sizes = []
        for axis, places in zip(AXES, one.box, strict=True):
            key = "bytes" if axis == "nbytes" else axis
            ends = _ends(getattr(grid, axis), places, bounded)
            if ends:
                when[key] = _spelled(key, ends)
                on_one = key == "nodes" and when[key] == {"min": 1, "max": 1}
                sizes.append("one node" if on_one else f"{_told(when[key])} {key}")
        about = f"predicted {low:.2f} to {high:.2f} times as fast as the built-in choice"
        name = ", ".join([one.collective, *sizes])
        yield {"name": name, "about": about, "when": when, "use": use_record(one.use)}


def _ends(values: Sequence[int], places: range, bounded: bool) -> dict[str, int]:
    """Return the least and the largest value that a box stands for; open at the grid's edges."""
    if bounded:
        values = (values[0] // 2, *values, 2 * values[-1])
        places = range(places.start + 1, places.stop + 1)
    found = {}
    if places.start:
        found["min"] = _between(values[places.start - 1], values[places.start]) + 1
    if places.stop < len(values):
        found["max"] = _between(values[places.stop - 1], values[places.stop])
    return found


def _told(ends: Mapping[str, Any]) -> str:
    """Return ``3 to 8``, ``up to 8`` or ``from 3``."""
    if len(ends) == 2:
        low, high = ends["min"], ends["max"]
        return f"{low} to {high}" if low != high else str(low)
    return f"from {ends['min']}" if "min" in ends else f"up to {ends['max']}"


def _between(low: int, high: int) -> int:
    return min(math.isqrt(max(1, low) * high), high - 1)


def _spelled(key: str, ends: Mapping[str, int]) -> dict[str, Any]:
    if key not in SIZES:
        return dict(ends)
    return {end: format_size(value) for end, value in ends.items()}
