"""Parsing of the sizes to measure or to predict."""

from __future__ import annotations

from han.common.errors import ArgumentError
from han.common.units import parse_size

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
