"""Factors of an exchange: how many members each step brings together, and which are valid.

A list of signed factors describes an allreduce: negative factors reduce-scatter, the last positive
ones, whose product is that of the negative ones, allgather, and those between combine without
splitting. The product of a recursive exchange's factors, those of the allgather aside, is the
number of members. That of a cyclic shift must reach it in each phase.

Source: Jocksch et al., sections 2.1.1 (prime factors and combinations of them), 2.1.2 (signs) and
2.2.2 (factors of the cyclic shift).
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

Factors = tuple[int, ...]
MOST = 4  # the largest factor that is chosen where it is not a prime number: for three ports
LARGEST = 16  # the largest factor that a tuner tries
MOST_PRIME = 7  # between nodes: for larger prime factors, some members only pass their operand on


class Phases(NamedTuple):
    """The factors of each phase, in the order in which they are applied."""

    scatter: Factors
    middle: Factors
    gather: Factors


def primes(number: int) -> list[int]:
    """Return the prime factors of a number in ascending order; 1 has none."""
    found, factor = [], 2
    while factor * factor <= number:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return found + [number] * (number > 1)


def most_of(ports: int) -> int:
    """Return the largest factor for a number of ports; 0: the usual one.

    In a step of factor f a member sends f - 1 messages at the same time, or reads f - 1 cells.

    Source: Jocksch et al., section 2.1.3 ("each factor is the number of ports plus one").
    """
    return ports + 1 if ports else MOST


def recursive_factors(members: int, most: int = MOST) -> Factors:
    """Return the prime factors of the number of members, joined up to `most`, largest first.

    Larger primes stay. The first step works on the whole message, and a large factor leaves little
    of it to the next steps. Eight members have factors 4, 2, as in figure 1 of Jocksch et al.
    """
    joined: list[int] = []
    for factor in reversed(primes(members)):
        fits = [k for k, product in enumerate(joined) if product * factor <= most]
        if fits:
            joined[fits[0]] *= factor
        else:
            joined.append(factor)
    return tuple(sorted(joined, reverse=True))


def cyclic_factors(members: int, most: int = MOST) -> Factors:
    """Return the fewest factors of at most `most` whose product reaches the number of members.

    Each is as small as that allows. They are in the order of an allgather. 7 and 8 members have
    factors 3, 3.
    """
    steps = next(k for k in range(members.bit_length() + 1) if most**k >= members)
    factors: list[int] = []
    for left in range(steps, 0, -1):
        rest = -(-members // prod(factors))
        factors.append(next(f for f in range(2, most + 1) if f**left >= rest))
    return tuple(factors)


def twos(members: int) -> Factors:
    """Return the fewest factors of 2 whose product reaches the number of members."""
    return (2,) * (members - 1).bit_length()


def core_of(members: int) -> int:
    """Return how many members exchange, so that no step brings too many of them together.

    It is the number of members, if that has no large prime factor; else the largest product of
    twos and threes below it.
    """
    if max(primes(members), default=1) <= MOST_PRIME:
        return members
    return next(n for n in range(members, 0, -1) if max(primes(n), default=1) <= 3)


def both_ways(factors: Factors) -> Factors:
    """Return signed factors: a reduce-scatter, and an allgather in reverse order."""
    return (*(-f for f in factors), *reversed(factors))


def lists_of(algorithm: str, members: int) -> list[Factors]:
    """Return signed factors to try: few large steps, many small ones, and without splitting.

    They are not those of the default. Each factor is at most 16, the number of messages that a
    member may have under way at a time being one less.
    """
    if members < 2:
        return []
    if algorithm in ("cyclic", "scatter", "copyin"):
        exact = _cyclic_lists(members) - {cyclic_factors(members)}
        split = {g: () if algorithm == "copyin" else tuple(-f for f in reversed(g)) for g in exact}
        return sorted(split[g] + g for g in exact)
    wanted = _recursive_lists(members)
    found = {both_ways(f) for f in wanted}
    if algorithm == "recursive":
        found |= wanted
        found |= {(-f[0], *f[1:], f[0]) for f in wanted if len(f) > 1}
    return sorted(found - {both_ways(recursive_factors(members))})


def _recursive_lists(members: int) -> set[Factors]:
    prime, default = tuple(primes(members)), recursive_factors(members)
    wanted = {(members,), prime, prime[::-1], default, default[::-1]}
    return {f for f in wanted if max(f) <= LARGEST}


def _cyclic_lists(members: int) -> set[Factors]:
    default = cyclic_factors(members)
    wanted = {(members,) * (members <= LARGEST), twos(members), default, default[::-1]}
    return {f for f in wanted if f and prod(f[:-1]) < members}


# ---- one way: only a reduce-scatter, or only an allgather, whose factors are positive -----------


def one_way(algorithm: str, members: int) -> Factors:
    """Return the default factors one way."""
    return (cyclic_factors if algorithm == "cyclic" else recursive_factors)(members)


def one_way_lists(algorithm: str, members: int) -> list[Factors]:
    """Return factors one way to try, beside the default."""
    if members < 2:
        return []
    found = (_cyclic_lists if algorithm == "cyclic" else _recursive_lists)(members)
    return sorted(found - {one_way(algorithm, members)})


def never_one_way(factors: Factors) -> str | None:
    """Return why factors fit no number of members one way, or None."""
    fits = factors and min(factors) > 1
    return None if fits else f"factors: 2 or more expected, not {spell(factors)}"


def misfit_one_way(algorithm: str, members: int, factors: Factors) -> str | None:
    """Return why an algorithm cannot use factors one way for so many members, or None."""
    reason = never_one_way(factors)
    if reason is not None:
        return reason
    if algorithm == "cyclic":
        return _short("positive", factors, members)
    if prod(factors) == members:
        return None
    return (
        f"factors: {spell(factors)} bring {prod(factors)} members together, not the {members} of "
        f"the level; take {spell(recursive_factors(members))}, or leave factors out, or take "
        "cyclic, whose factors need only reach the number of members"
    )


def spell(factors: Factors) -> str:
    """Return the factors as text such as ``-2x2x2``."""
    return "x".join(map(str, factors)) or "none"


def phases_of(algorithm: str, signed: Factors) -> Phases:
    """Return the phases that signed factors describe. Raises ValueError if their order is wrong."""
    scatter = tuple(-f for f in signed if f < 0)
    rest = signed[len(scatter) :]
    if any(f < 0 for f in rest):
        raise ValueError(
            f"factors: {spell(signed)}: the negative ones, which reduce-scatter, come first"
        )
    if algorithm in ("cyclic", "copyin", "scatter"):
        return Phases(scatter, (), rest)
    for first in range(len(rest) + 1):
        if scatter and prod(rest[first:]) == prod(scatter):
            return Phases(scatter, rest[:first], rest[first:])
    if not scatter:
        return Phases((), rest, ())
    ready = spell((*(-f for f in scatter), *rest, *reversed(scatter)))
    raise ValueError(
        f"factors: {spell(signed)}: the last positive ones allgather what the negative ones have "
        f"split, so their product must be {prod(scatter)}; take {ready}, for instance"
    )


def never(algorithm: str, signed: Factors) -> str | None:
    """Return the reason why an algorithm can use these factors for no number of members, or None.

    That one of the phases of a cyclic shift has no factors is told with the number of members.
    """
    if not signed or any(abs(f) < 2 for f in signed):
        return f"factors: 2 or more, or -2 or less, expected, not {spell(signed)}"
    try:
        phases = phases_of(algorithm, signed)
    except ValueError as error:
        return str(error)
    if algorithm == "tree" and phases.middle:
        members = prod(phases.scatter) * prod(phases.middle)
        return (
            f"factors: {spell(phases.middle)} would combine without splitting, which is for "
            f"recursive; take {spell(both_ways(recursive_factors(members)))}, for instance"
        )
    if algorithm == "copyin" and phases.scatter:
        return "factors: copyin combines one member at a time; its factors allgather: positive"
    return None


def misfit(algorithm: str, members: int, signed: Factors | None) -> str | None:
    """Return the reason why an algorithm cannot use these factors for so many members, or None."""
    if signed is None:
        return None
    reason = never(algorithm, signed)
    if reason is not None:
        return reason
    phases = phases_of(algorithm, signed)
    if algorithm in ("recursive", "tree"):
        return _recursive_misfit(members, signed, phases)
    if algorithm == "copyin":
        return _short("positive", phases.gather, members)
    return _short("negative", tuple(reversed(phases.scatter)), members) or _short(
        "positive", phases.gather, members
    )


def _recursive_misfit(members: int, signed: Factors, phases: Phases) -> str | None:
    split, middle = prod(phases.scatter), prod(phases.middle)
    if split * middle == members:
        return None
    ready = recursive_factors(members)
    return (
        f"factors: {spell(signed)} bring {split * middle} members together, not the {members} of "
        f"the level; take {spell(both_ways(ready))} or {spell(ready)}, or leave factors out, or "
        "take cyclic, whose factors need only reach the number of members"
    )


def _short(sign: str, factors: Factors, members: int) -> str | None:
    """Return the reason why factors do not make a cyclic allgather of all members, or None.

    Their product may exceed the number of members. Without the last factor it may not reach it, as
    the last step would have nothing to do.
    """
    if prod(factors) < members:
        return (
            f"factors: the product of the {sign} ones, {spell(factors)}, is {prod(factors)}, less "
            f"than the {members} members; take {spell(cyclic_factors(members))}, for instance, or "
            "leave factors out"
        )
    if prod(factors[:-1]) >= members:
        return (
            f"factors: of the {sign} ones, {spell(factors[:-1])} reaches the {members} members "
            f"without {factors[-1]}; leave that factor out"
        )
    return None
