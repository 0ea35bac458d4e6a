"""Sizes that follow from a call: ``bytes / 8, 16KiB to 128KiB``."""

from __future__ import annotations

import re
from typing import NamedTuple

from han.common.units import format_size, parse_size

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
