"""What a member of an exchange inside a node does with a piece: which bytes, from and to whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from han.submodules.exchange.layout import Layout, Run, runs
from han.submodules.exchange.steps import OWN, Source


class Script(NamedTuple):
    """What a member does with a piece of one size.

    `shows`: the runs that it copies into its cells. `folds`: for each stage, the sources of the
    operands, and runs with the offsets of each operand and of the target. `takes`: for each step,
    the members to read from, and runs with the offsets there and in the own cells. If members
    write, what they have written into the own cells, with the offsets there; and `writes`: for
    each step, the members to write to, and runs with the offsets there.
    """

    shows: list[Run]
    folds: list[list[tuple[tuple[Source, ...], list[Run]]]]
    takes: list[list[tuple[int, list[Run]]]]
    writes: list[list[tuple[int, list[Run]]]]

    @classmethod
    def of(cls, layout: Layout, me: int, bounds: Sequence[tuple[int, int]], steps: range) -> Script:
        """Return the script of member `me` for a piece's blocks, and gathering steps."""
        pattern = layout.pattern
        stages = range(1, pattern.stages + 1)
        return cls(
            runs(
                () if layout.arrays else pattern.shown(me), bounds, [layout.offsets(me, 0, bounds)]
            ),
            [list(_folds(layout, me, stage, bounds)) for stage in stages],
            [list(_takes(layout, me, step, bounds)) for step in steps],
            [list(_writes(layout, me, step, bounds)) for step in steps if layout.writes],
        )


def _folds(
    layout: Layout, me: int, stage: int, bounds: Sequence[tuple[int, int]]
) -> Iterable[tuple[tuple[Source, ...], list[Run]]]:
    target = layout.offsets(me, stage, bounds)
    for sources, folds in groupby(layout.pattern.folds(me, stage), key=lambda fold: fold[1]):
        blocks = tuple(b for part, _ in folds for b in part)
        there = (OWN, 0) if layout.arrays else (OWN,)
        places = [None if s in there else layout.offsets(m, s, bounds) for m, s in sources]
        yield sources, runs(blocks, bounds, [*places, target])


def _takes(
    layout: Layout, me: int, step: int, bounds: Sequence[tuple[int, int]]
) -> Iterable[tuple[int, list[Run]]]:
    last, finished = step == layout.pattern.gathers, layout.pattern.stages
    in_own = layout.writes or not (last or layout.in_results)
    mine = layout.offsets(me, finished, bounds) if in_own else None
    for member, blocks in layout.pattern.takes(me, step):
        if layout.in_results:
            yield member, runs(sorted(blocks), bounds, [None, None])
            continue
        theirs = mine if layout.writes else layout.offsets(member, finished, bounds)
        assert theirs is not None, "only what is read in the last step is in no cell of its reader"
        ordered = sorted((theirs[b], b) for b in blocks)
        yield member, runs([b for _, b in ordered], bounds, [theirs, mine])


def _writes(
    layout: Layout, me: int, step: int, bounds: Sequence[tuple[int, int]]
) -> Iterable[tuple[int, list[Run]]]:
    pattern = layout.pattern
    for member in pattern.takers(me, step):
        blocks = [b for m, part in pattern.takes(member, step) if m == me for b in part]
        theirs = layout.offsets(member, pattern.stages, bounds)
        yield member, runs(sorted(blocks), bounds, [theirs])
