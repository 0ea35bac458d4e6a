"""Rows: for which calls they are, what these run, and what was measured; and the search for one.

The user's rules, tuned tables and built-in choices are rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from han.common.units import format_size, parse_size
from han.config.rules import ANY, Test, Use, When
from han.model.facts import QUANTITIES, Facts
from han.tasks.choice import LevelChoice
from han.tuning.tuned.points import Point

REMEMBERED = 4096  # sets of sizes of a row, and of flags in a section


@dataclass(frozen=True)
class Predicted:
    """That a row is predicted from shapes that were measured, as ``2 x 2``.

    `gains` are the least and the largest ratio of the built-in choice's time to that of the row.
    """

    shapes: tuple[str, ...]
    gains: tuple[float, float]

    def describe(self) -> str:
        """Return ``from 2 x 2: 1.10 to 1.40 times as fast as the built-in choice``."""
        low, high = (f"{gain:.2f}" for gain in self.gains)
        gain = low if low == high else f"{low} to {high}"
        return f"from {', '.join(self.shapes)}: {gain} times as fast as the built-in choice"


@dataclass(frozen=True)
class Row:
    """A row: for which calls it is, what they run, and the measurements behind it.

    A row for whole calls decides on a `use`; None is the built-in choice. A row of built-in choices
    decides on one `level`, on the `segment` (None: the whole message) or on the `composition`;
    sizes may be amounts in place of integers. `rule` names in decisions what the row is of.
    `source` is the file, and `far` says how far its machine is from this one. `predicted`: the row
    is for numbers of nodes and ranks that were not measured.
    """

    name: str
    when: When = ANY
    use: Use | None = None
    level: LevelChoice | None = None
    segment: int | Amount | None = None
    composition: str = ""
    measured: tuple[Point, ...] = ()
    rule: str = ""
    source: str = ""
    far: str = ""
    predicted: Predicted | None = None

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

    def nearest(self, nbytes: int) -> Point | None:
        """Return the measurement for the size that is nearest; None: the row names none."""
        size, known = max(1, nbytes), self.measured
        return min(known, key=lambda p: max(size, p.nbytes) / min(size, p.nbytes), default=None)

    def segment_for(self, facts: Facts) -> int | None:
        """Return the bytes of a segment; None for the whole message."""
        found = self.segment
        if not isinstance(found, Amount):
            return found
        return found.value(facts.bytes, facts.bytes, facts.ranks)


def thresholds(rows: Iterable[Row], ranks: int) -> tuple[int, ...]:
    """Return the sizes from which on another choice may hold."""
    return tuple(sorted({n for row in rows for n in row.when.thresholds(ranks)}))


def _filled(level: LevelChoice, sizes: Mapping[Amount, int]) -> LevelChoice:
    values = tuple(
        (name, sizes[value] if isinstance(value, Amount) else value)
        for name, value in level.parameters
    )
    kinds = tuple((kind, _filled(own, sizes)) for kind, own in level.kinds)
    return LevelChoice(level.submodule, level.algorithm, values, kinds)


class Rows:
    """The rows of a section; the first one that serves a call decides."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        names = {name for row in rows for name in row.when.collective}
        self._general = tuple(row for row in rows if not row.when.collective)
        self._of = {name: tuple(_of(rows, name)) for name in names}
        self._left: dict[tuple[object, ...], list[tuple[Row, tuple[Test, ...]]]] = {}

    def of(self, collective: str) -> tuple[Row, ...]:
        """Return the rows that may serve calls of a collective."""
        return self._of.get(collective, self._general)

    def find(self, collective: str, facts: Facts) -> Row | None:
        """Return the row that decides; None if there is none."""
        return next(self.matching(collective, facts), None)

    def matching(self, collective: str, facts: Facts) -> Iterator[Row]:
        """Yield the rows whose condition holds, in order."""
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
                yield row

    def _select(self, collective: str, facts: Facts) -> list[tuple[Row, tuple[Test, ...]]]:
        """Return the rows that flags do not exclude, with their tests of sizes and counts."""
        return [
            (row, tuple(test for test in row.when.tests if test[0] < QUANTITIES))
            for row in self.of(collective)
            if all(low <= facts[k] <= high for k, low, high in row.when.tests if k >= QUANTITIES)
        ]


def _of(rows: Sequence[Row], collective: str) -> Iterator[Row]:
    return (row for row in rows if not row.when.collective or collective in row.when.collective)


PART = re.compile(r"(bytes|piece) / ([1-9][0-9]*), (\S+) to (\S+)")
TIMES = re.compile(r"ranks \* (\S+), at least (\S+)")
FORMS = "a size, 'bytes / 8, 16KiB to 128KiB', 'piece / ...' or 'ranks * 32KiB, at least 128KiB'"


class Amount(NamedTuple):
    """A size that follows from a call.

    A part of the bytes, or of the piece that a task moves, is the power of two next above it within
    bounds. For ``ranks``, `part` are the bytes for each of them.
    """

    of: str
    part: int
    low: int
    high: int

    def value(self, nbytes: int, piece: int, ranks: int) -> int:
        """Return the size for a call."""
        if self.of == "ranks":
            return max(self.low, ranks * self.part)
        found = 1 << ((nbytes if self.of == "bytes" else piece) // self.part).bit_length()
        return self.low if found < self.low else self.high if found > self.high else found

    def __str__(self) -> str:
        low = format_size(self.low)
        if self.of == "ranks":
            return f"ranks * {format_size(self.part)}, at least {low}"
        return f"{self.of} / {self.part}, {low} to {format_size(self.high)}"


def amount_of(text: object) -> int | Amount:
    """Return a size, or one that follows from a call; raises ValueError."""
    if isinstance(text, str):
        if found := PART.fullmatch(text):
            low, high = parse_size(found[3]), parse_size(found[4])
            if low > high:
                raise ValueError(f"{text!r}: {found[3]} is more than {found[4]}")
            return Amount(found[1], int(found[2]), low, high)
        if found := TIMES.fullmatch(text):
            return Amount("ranks", parse_size(found[1]), parse_size(found[2]), 0)
    try:
        return parse_size(text)
    except ValueError:
        raise ValueError(f"{text!r}: expected {FORMS}") from None
