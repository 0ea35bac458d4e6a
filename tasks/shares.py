"""Shares: the part of a message that each of several members works on."""

from __future__ import annotations

from han.model.channel_layout import LINE


def share(nbytes: int, grain: int, member: int, members: int) -> tuple[int, int]:
    """Return where a member's share of a piece of `nbytes` bytes starts and stops.

    Shares are whole cache lines if these hold whole grains, else whole grains.
    """
    unit = grain if LINE % grain else LINE
    units = -(-nbytes // unit)
    start, stop = (min(nbytes, units * k // members * unit) for k in (member, member + 1))
    return start, stop
