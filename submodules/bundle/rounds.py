"""Phases in which members of a group give bundles to each other.

A member has a number. With factors, a phase brings together so many members, and each sends a
message to each of the others. In a *recursive* pattern these are groups of members, then groups of
such groups; in a *cyclic* one, members at fixed distances around a circle. A reduce-scatter runs
the phases of an allgather backwards, but by groups in the same order: the operands that a phase
combines are then of consecutive members.

What a message has is told by numbers of members: whose bundles (allgather), or for whom
(reduce-scatter). In an alltoall a number is `size` times the giver plus the taker.

Source: Jocksch et al., sections 2.1 and 2.2 (factors); Bruck et al. (cyclic, alltoall); Thakur et
al. (ring, halving, doubling).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from han.submodules.parts.factors import Factors, twos
from han.tasks.bundles import Members


class Round(NamedTuple):
    """What a member sends to another one, and receives of one, by numbers of members."""

    to: int
    sends: Members
    source: int
    receives: Members


Phase = list[Round]  # messages that are under way at the same time
Script = Callable[[int, int, Factors], Iterator[Phase]]  # of a member, of how many, with factors


def linear(me: int, size: int, _: Factors) -> Iterator[Phase]:
    """Yield a phase for each other member, to which this one sends what it has for it."""
    for k in range(1, size):
        source = (me - k) % size
        yield [Round((me + k) % size, (me,), source, (source,))]


# ---- allgather ----------------------------------------------------------------------------------


def ring(me: int, size: int, _: Factors) -> Iterator[Phase]:
    """Yield the phases of a ring: each bundle goes on to the next member."""
    for k in range(1, size):
        sends, receives = ((me - k + step) % size for step in (1, 0))
        yield [Round((me + 1) % size, (sends,), (me - 1) % size, (receives,))]


def doubling(me: int, size: int, _: Factors) -> Iterator[Phase]:
    """Yield the phases in which each member gives all that it has, at distances that double.

    A power of two of members is paired, so that blocks of consecutive members travel together.
    """
    paired = size & (size - 1) == 0
    return (recursive if paired else cyclic)(me, size, twos(size))


def recursive(me: int, size: int, factors: Factors) -> Iterator[Phase]:
    """Yield the phases in which members of a group give each other all that they have."""
    for distance, factor in _distances(factors):
        mine, peers = _group(me, distance), _peers(me, distance, factor)
        yield [Round(peer, mine, peer, _group(peer, distance)) for peer in peers]


def cyclic(me: int, size: int, factors: Factors) -> Iterator[Phase]:
    """Yield the phases in which each member gives what it has to members before it."""
    for distance, factor in _distances(factors):
        found = Phase()
        for step in range(distance, min(factor * distance, size), distance):
            number, source = min(distance, size - step), (me + step) % size
            sends, receives = _next(me, 0, number, size), _next(source, 0, number, size)
            found.append(Round((me - step) % size, sends, source, receives))
        yield found


# ---- reduce-scatter -----------------------------------------------------------------------------


def ring_of_sums(me: int, size: int, _: Factors) -> Iterator[Phase]:
    """Yield the phases of a ring in which each member adds its operand to what goes round."""
    for k in range(1, size):
        sends, receives = ((me - k - step) % size for step in (0, 1))
        yield [Round((me + 1) % size, (sends,), (me - 1) % size, (receives,))]


def recursive_of_sums(me: int, size: int, factors: Factors) -> Iterator[Phase]:
    """Yield the phases in which members of a group divide what they have, and add it up.

    Bundles are in such an order that those of later messages lie behind each other.
    """
    distances = [*_distances(factors)]
    digits = [[m // distance % factor for distance, factor in distances] for m in range(size)]
    kept = sorted(range(size), key=digits.__getitem__)
    for k, (distance, factor) in enumerate(distances):
        length = len(kept) // factor
        parts = [tuple(kept[n * length : (n + 1) * length]) for n in range(factor)]
        mine = parts[digits[me][k]]
        peers = _peers(me, distance, factor)
        yield [Round(peer, parts[digits[peer][k]], peer, mine) for peer in peers]
        kept = [*mine]


def cyclic_of_sums(me: int, size: int, factors: Factors) -> Iterator[Phase]:
    """Yield the phases of a cyclic allgather backwards: sums go to members behind this one."""
    for distance, factor in reversed([*_distances(factors)]):
        found = Phase()
        for step in range(distance, min(factor * distance, size), distance):
            number = min(distance, size - step)
            sends, receives = _next(me, step, number, size), _next(me, 0, number, size)
            found.append(Round((me + step) % size, sends, (me - step) % size, receives))
        yield found


# ---- alltoall -----------------------------------------------------------------------------------


def cyclic_of_pairs(me: int, size: int, factors: Factors) -> Iterator[Phase]:
    """Yield the phases in which bundles come nearer to those that take them, digit by digit."""
    for distance, factor in _distances(factors):
        found = Phase()
        for digit in range(1, factor):
            ways = [way for way in range(size) if way // distance % factor == digit]
            if ways:
                to, source = ((me + sign * digit * distance) % size for sign in (1, -1))
                sends, receives = (_pairs(m, ways, distance, size) for m in (me, source))
                found.append(Round(to, sends, source, receives))
        yield found


def _pairs(member: int, ways: list[int], distance: int, size: int) -> Members:
    """Return the numbers of bundles that a member has which go so far, digits before this one."""
    givers = ((way, (member - way % distance) % size) for way in ways)
    return tuple([giver * size + (giver + way) % size for way, giver in givers])


# ---- numbers of members -------------------------------------------------------------------------


def _distances(factors: Factors) -> Iterator[tuple[int, int]]:
    """Yield for each factor the distance of the members that it brings together, and itself."""
    return zip(accumulate((1, *factors[:-1]), mul), factors, strict=True)


def _peers(me: int, distance: int, factor: int) -> list[int]:
    """Return the others of a group of members at a distance, the next one first."""
    digit = me // distance % factor
    return [me + ((digit + k) % factor - digit) * distance for k in range(1, factor)]


def _group(member: int, distance: int) -> Members:
    first = member // distance * distance
    return tuple(range(first, first + distance))


def _next(member: int, first: int, number: int, size: int) -> Members:
    return tuple((member + first + k) % size for k in range(number))


SPREADING: dict[str, Script] = {  # messages of an allgather
    "ring": ring,
    "doubling": doubling,
    "linear": linear,
    "recursive": recursive,
    "cyclic": cyclic,
}
PASSING: dict[tuple[str, str], Script] = {  # by kind of tasks: messages that others pass on
    ("reduce_scatter", "ring"): ring_of_sums,
    ("reduce_scatter", "recursive"): recursive_of_sums,
    ("reduce_scatter", "cyclic"): cyclic_of_sums,
    ("alltoall", "cyclic"): cyclic_of_pairs,
}
