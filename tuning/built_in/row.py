"""Rows of the table of built-in choices as immutable plain data, and the search for one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from han.tasks.choice import LevelChoice
from han.tuning.built_in.amounts import Amount
from han.tuning.built_in.facts import QUANTITIES, Facts

REMEMBERED = 4096  # sets of sizes of a row, and of flags in a section
Test = tuple[int, int, int]  # the place of a fact, its least and its largest value


@dataclass(frozen=True)
class Row:
    """A row: for which calls it is, and what they run.

    `level` is None in ``compositions`` and in ``segments``, whose `segment` is None for the whole
    message. `collectives` are all, if there are none. Sizes may be amounts in place of integers.
    """

    name: str
    tests: tuple[Test, ...] = ()
    collectives: tuple[str, ...] = ()
    level: LevelChoice | None = None
    segment: int | Amount | None = None
    composition: str = ""

    @cached_property
    def _amounts(self) -> tuple[Amount, ...]:
        assert self.level is not None
        found: dict[Amount, None] = {}
        for _, value in (pair for one in self.level.each for pair in one.parameters):
            if isinstance(value, Amount):
                found[value] = None
        return tuple(found)

    @cached_property
    def _made(self) -> dict[tuple[int, ...], LevelChoice]:
        return {}

    def level_for(self, nbytes: int, piece: int, ranks: int) -> LevelChoice:
        """Return what a level of `ranks` ranks runs whose tasks move `piece` bytes."""
        assert self.level is not None
        amounts = self._amounts
        if not amounts:
            return self.level
        if len(amounts) == 1:
            sizes: tuple[int, ...] = (amounts[0].value(nbytes, piece, ranks),)
        else:
            sizes = tuple([one.value(nbytes, piece, ranks) for one in amounts])
        found = self._made.get(sizes)
        if found is None:
            found = _filled(self.level, dict(zip(self._amounts, sizes, strict=True)))
            if len(self._made) < REMEMBERED:
                self._made[sizes] = found
        return found

    def segment_for(self, facts: Facts) -> int | None:
        """Return the bytes of a segment; None for the whole message."""
        found = self.segment
        if not isinstance(found, Amount):
            return found
        return found.value(facts.bytes, facts.bytes, facts.ranks)


def _filled(level: LevelChoice, sizes: Mapping[Amount, int]) -> LevelChoice:
    values = tuple(
        (name, sizes[value] if isinstance(value, Amount) else value)
        for name, value in level.parameters
    )
    kinds = tuple((kind, _filled(own, sizes)) for kind, own in level.kinds)
    return LevelChoice(level.submodule, level.algorithm, values, kinds)


R = TypeVar("R", bound=Row)


class Rows(Generic[R]):
    """The rows of a section; the first one that serves a call decides."""

    def __init__(self, rows: Sequence[R]) -> None:
        self.rows = tuple(rows)
        names = {name for row in rows for name in row.collectives}
        self._general = tuple(row for row in rows if not row.collectives)
        self._of = {name: tuple(_of(rows, name)) for name in names}
        self._left: dict[tuple[object, ...], list[tuple[R, tuple[Test, ...]]]] = {}

    def find(self, collective: str, facts: Facts) -> R | None:
        """Return the row that decides; None if there is none."""
        key = collective, facts[QUANTITIES:]
        rows = self._left.get(key)
        if rows is None:
            rows = self._select(collective, facts)
            if len(self._left) < REMEMBERED:
                self._left[key] = rows
        for row, tests in rows:
            for place, low, high in tests:
                if not low <= facts[place] <= high:
                    break
            else:
                return row
        return None

    def _select(self, collective: str, facts: Facts) -> list[tuple[R, tuple[Test, ...]]]:
        """Return the rows that flags do not exclude, with their tests of sizes and counts."""
        rows = self._of.get(collective, self._general)
        return [
            (row, tuple(test for test in row.tests if test[0] < QUANTITIES))
            for row in rows
            if all(low <= facts[k] <= high for k, low, high in row.tests if k >= QUANTITIES)
        ]


def _of(rows: Iterable[R], collective: str) -> Iterable[R]:
    return (row for row in rows if not row.collectives or collective in row.collectives)
