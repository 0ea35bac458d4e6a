"""Rows of the table of built-in choices as immutable plain data, and the search for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from han.tasks.choice import LevelChoice
from han.tuning.built_in.amounts import Amount
from han.tuning.built_in.facts import Facts

Test = tuple[int, int, int]  # the place of a fact, its least and its largest value


@dataclass(frozen=True)
class Row:
    """A row: for which calls it is, and what they run.

    `level` is None in ``segments``, whose `segment` is None for the whole message. `collectives`
    are all, if there are none. Sizes may be amounts in place of integers.
    """

    name: str
    tests: tuple[Test, ...] = ()
    collectives: tuple[str, ...] = ()
    level: LevelChoice | None = None
    segment: int | Amount | None = None

    @cached_property
    def _sized(self) -> bool:
        assert self.level is not None
        return any(isinstance(v, Amount) for one in self.level.each for _, v in one.parameters)

    def level_for(self, facts: Facts, piece: int) -> LevelChoice:
        """Return what a level runs whose tasks move `piece` bytes."""
        assert self.level is not None
        return _filled(self.level, facts, piece) if self._sized else self.level

    def segment_for(self, facts: Facts) -> int | None:
        """Return the bytes of a segment; None for the whole message."""
        found = self.segment
        if not isinstance(found, Amount):
            return found
        return found.value(facts.bytes, facts.bytes, facts.ranks)


def _filled(level: LevelChoice, facts: Facts, piece: int) -> LevelChoice:
    values = tuple(
        (name, v.value(facts.bytes, piece, facts.ranks) if isinstance(v, Amount) else v)
        for name, v in level.parameters
    )
    kinds = tuple((kind, _filled(own, facts, piece)) for kind, own in level.kinds)
    return LevelChoice(level.submodule, level.algorithm, values, kinds)


R = TypeVar("R", bound=Row)


class Rows(Generic[R]):
    """The rows of a section; the first one that serves a call decides."""

    def __init__(self, rows: Sequence[R]) -> None:
        self.rows = tuple(rows)
        names = {name for row in rows for name in row.collectives}
        self._general = tuple(row for row in rows if not row.collectives)
        self._of = {name: tuple(_of(rows, name)) for name in names}

    def find(self, collective: str, facts: Facts) -> R | None:
        """Return the row that decides; None if there is none."""
        for row in self._of.get(collective, self._general):
            for place, low, high in row.tests:
                if not low <= facts[place] <= high:
                    break
            else:
                return row
        return None


def _of(rows: Iterable[R], collective: str) -> Iterable[R]:
    return (row for row in rows if not row.collectives or collective in row.collectives)
