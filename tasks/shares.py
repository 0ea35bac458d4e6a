"""Shares: the part of a message that each of several members works on."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from han.model.channel_layout import LINE


def share(nbytes: int, grain: int, member: int, members: int) -> tuple[int, int]:
    """Return where a member's share of a piece of `nbytes` bytes starts and stops.

    Shares are whole cache lines if these hold whole grains, else whole grains.
    """
    unit, units = _units(nbytes, grain)
    start, stop = (min(nbytes, units * k // members * unit) for k in (member, member + 1))
    return start, stop


@lru_cache(64)
def shares(nbytes: int, grain: int, members: int) -> tuple[tuple[int, int], ...]:
    """Return the shares of all members."""
    unit, units = _units(nbytes, grain)
    edges = [min(nbytes, units * k // members * unit) for k in range(members + 1)]
    return tuple(pairwise(edges))


def unit_of(grain: int) -> int:
    """Return the least bytes of a share."""
    return grain if LINE % grain else LINE


def _units(nbytes: int, grain: int) -> tuple[int, int]:
    """Return the least bytes of a share, and of how many such a piece consists."""
    unit = unit_of(grain)
    return unit, -(-nbytes // unit)
