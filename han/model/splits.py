"""Domains split into parts that reductions may combine, for operations whose order matters."""

from __future__ import annotations

from collections.abc import Sequence


def runs(domains: Sequence[int]) -> tuple[int, ...]:
    """Return for each rank the number of its run of consecutive ranks of one domain."""
    found, previous = [-1], None
    for domain in domains:
        found.append(found[-1] + (domain != previous))
        previous = domain
    return tuple(found[1:])


def blocks(domains: Sequence[int]) -> tuple[int, ...]:
    """Return for each rank the first rank of the largest whole block inside its domain.

    Blocks are those of the canonical order (:mod:`han.tasks.canonical`).
    """
    size, run = len(domains), runs(domains)
    ends = {number: rank + 1 for rank, number in enumerate(run)}
    found: list[int] = []
    while len(found) < size:
        first = len(found)
        width, end = 1, ends[run[first]]
        while width < size and not first & width and min(first + 2 * width, size) <= end:
            width *= 2
        found += [first] * (min(first + width, size) - first)
    return tuple(found)
