"""Sizes in bytes and counts, as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from han.common.errors import ArgumentError

if TYPE_CHECKING:
    from fractions import Fraction

UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
LARGEST = 2**63 - 1
EXAMPLES = "64KiB, 4MiB, 1GiB, 64kB, 512B or a whole number of bytes"

_SIZE = r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*"
_FACTORS = {unit.lower(): factor for unit, factor in UNITS.items()} | {"": 1}


def parse_size(text: object) -> int:
    """Return the bytes that ``text`` stands for: a whole number, or a number and a unit.

    ``KiB``, ``MiB``, ``GiB`` are powers of 1024, ``kB``, ``MB``, ``GB`` powers of 1000, in upper
    or lower case. Raises ValueError, which quotes ``text``, for anything else.
    """
    size = _exact_size(text)
    if size is None or size.denominator != 1:
        raise ValueError(f"{text!r} is not a size in bytes; write {EXAMPLES}")
    if not 0 <= size <= LARGEST:
        raise ValueError(f"{text!r} is not a size between 0 and {LARGEST} bytes; write {EXAMPLES}")
    return int(size)


def _exact_size(text: object) -> int | Fraction | None:
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = re.fullmatch(_SIZE, text, re.ASCII) if isinstance(text, str) else None
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        return None
    if match[1].isdigit():
        return int(match[1]) * factor
    from fractions import Fraction

    return Fraction(match[1]) * factor


def format_size(size: int) -> str:
    """Return ``size`` in the largest binary unit that divides it: ``"64KiB"``, ``"1000B"``."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]}{unit}"
    return f"{size}B"


def plural(count: int, noun: str) -> str:
    """Return ``"1 node"``, ``"2 nodes"``."""
    return f"{count} {noun}{'s'[: count != 1]}"


def joined(numbers: Iterable[int | range]) -> list[range]:
    """Return numbers as sorted ranges with gaps between them; a range is never listed."""
    each = [n if isinstance(n, range) else range(n, n + 1) for n in numbers]
    found: list[range] = []
    for span in sorted(each, key=lambda span: span.start):
        if found and span.start <= found[-1].stop:
            last = found.pop()
            span = range(last.start, max(last.stop, span.stop))
        found.append(span)
    return found


def spans(numbers: Iterable[int | range], comma: str = ",") -> str:
    """Return numbers as ranges: ``"0-3,8"``."""
    runs = joined(numbers)
    return comma.join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def format_us(value: float) -> str:
    """Return microseconds with two, one or no decimals: ``0.53``, ``133.2``, ``1354``."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.2f}" if value < 100 else f"{value:.1f}"


def format_duration(seconds: float) -> str:
    """Return seconds with up to three digits, in a unit for people: ``21 us``, ``0.2 ms``."""
    unit, factor = ("s", 1) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-4 else ("us", 1e6)
    return f"{float(f'{seconds * factor:.3g}'):g} {unit}"


MOST_SIZES = 200


def parse_sizes(text: str) -> list[int]:
    """Return the sizes of ``8:8MiB`` (doubling), ``8:8MiB:4`` (times 4) or ``8,1KiB,1MiB``.

    Raises ArgumentError, with examples of the syntax.
    """
    sizes = [size for part in text.split(",") for size in _range(part, text)]
    return list(dict.fromkeys(sizes))


def _range(part: str, text: str) -> list[int]:
    bounds = part.split(":")
    try:
        start, stop = parse_size(bounds[0]), parse_size(bounds[min(1, len(bounds) - 1)])
        factor = int(bounds[2]) if len(bounds) == 3 else 2
        if len(bounds) > 3 or factor < 2 or (len(bounds) > 1 and not 0 < start <= stop):
            raise ValueError("expected start:stop[:factor], 0 < start <= stop and factor >= 2")
    except ValueError as error:
        raise ArgumentError(
            f"sizes {text!r}: {error}; write 8:8MiB, 8:8MiB:4 or 8,1KiB,1MiB"
        ) from None
    sizes = [start]
    while sizes[-1] * factor <= stop and len(sizes) < MOST_SIZES:
        sizes.append(sizes[-1] * factor)
    return sizes if len(bounds) > 1 else [start]
