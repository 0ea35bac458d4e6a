"""Rounds in which members of a group give bundles to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from han.tasks.bundles import Members


class Round(NamedTuple):
    """What a member sends to another one, and receives of one: of bundles of these members."""

    to: int
    sends: Members
    source: int
    receives: Members


Script = Callable[[int, int], Iterator[Round]]  # of a member, and the number of members


def ring(me: int, size: int) -> Iterator[Round]:
    """Yield the rounds of a ring: each bundle goes on to the next member."""
    for k in range(1, size):
        sends, receives = ((me - k + step) % size for step in (1, 0))
        yield Round((me + 1) % size, (sends,), (me - 1) % size, (receives,))


def doubling(me: int, size: int) -> Iterator[Round]:
    """Yield the rounds in which each member gives all that it has, at distances that double.

    A power of two of members is paired, so that blocks of consecutive members travel together.
    """
    paired, distance = size & (size - 1) == 0, 1
    while distance < size:
        number = min(distance, size - distance)
        if paired:
            peer = me ^ distance
            mine, theirs = (m & -distance for m in (me, peer))
            yield Round(peer, _next(mine, number, size), peer, _next(theirs, number, size))
        else:
            source = (me + distance) % size
            sends, receives = _next(me, number, size), _next(source, number, size)
            yield Round((me - distance) % size, sends, source, receives)
        distance *= 2


def linear(me: int, size: int) -> Iterator[Round]:
    """Yield a round for each other member, to which this one sends what it has for it."""
    for k in range(1, size):
        source = (me - k) % size
        yield Round((me + k) % size, (me,), source, (source,))


def _next(first: int, number: int, size: int) -> Members:
    return tuple((first + k) % size for k in range(number))


SCRIPTS: dict[str, Script] = {"ring": ring, "doubling": doubling, "linear": linear}
