"""Factors of an exchange: how many members each step brings together, and which are valid.

Factors are a tuple: step k brings `factors[k]` members together. The product of the factors of a
recursive exchange is the number of members. That of a cyclic shift must reach it.

Source: Jocksch et al., sections 2.1.1 (prime factors and combinations of them) and 2.2.2
(factors of the cyclic shift).
"""

from __future__ import annotations

from math import prod

Factors = tuple[int, ...]
MOST = 4  # the largest factor that is chosen where it is not a prime number


def primes(number: int) -> list[int]:
    """Return the prime factors of a number in ascending order; 1 has none."""
    found, factor = [], 2
    while factor * factor <= number:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return found + [number] * (number > 1)


def recursive_factors(members: int) -> Factors:
    """Return the prime factors of the number of members, twos joined into fours, largest first.

    The first step works on the whole message, and a large factor leaves little of it to the next
    steps. Eight members have factors 4, 2, as in figure 1 of Jocksch et al.
    """
    factors = primes(members)
    twos = factors.count(2)
    joined = [MOST] * (twos // 2) + [2] * (twos % 2)
    return tuple(sorted(joined + [f for f in factors if f > 2], reverse=True))


def cyclic_factors(members: int) -> Factors:
    """Return the fewest factors of at most 4 whose product reaches the number of members.

    Each is as small as that allows. They are in the order of an allgather. 7 and 8 members have
    factors 3, 3.
    """
    steps = next(k for k in range(members.bit_length() + 1) if MOST**k >= members)
    factors: list[int] = []
    for left in range(steps, 0, -1):
        rest = -(-members // prod(factors))
        factors.append(next(f for f in range(2, MOST + 1) if f**left >= rest))
    return tuple(factors)


def spell(factors: Factors) -> str:
    """Return the factors as text such as ``4x2``."""
    return "x".join(map(str, factors)) or "none"


def misfit(
    algorithm: str,
    members: int,
    scatter: Factors | None,
    middle: Factors | None,
    gather: Factors | None,
) -> str | None:
    """Return the reason why an algorithm cannot use these factors for so many members, or None."""
    given = {"factors": scatter, "factors_middle": middle, "factors_gather": gather}
    for name, factors in given.items():
        if factors is not None and (not factors or min(factors) < 2):
            return f"{name}: factors of at least 2 expected, not {spell(factors)}"
    if middle and algorithm != "recursive":
        return f"factors_middle is for recursive, not for {algorithm}: leave it out"
    if scatter and algorithm == "copyin":
        return "copyin combines one member at a time: it takes factors_gather, but no factors"
    if algorithm in ("recursive", "tree"):
        return _recursive_misfit(members, scatter, middle or (), gather)
    return _short("factors", tuple(reversed(scatter or ())), members) or _short(
        "factors_gather", gather or (), members
    )


def _recursive_misfit(
    members: int, scatter: Factors | None, middle: Factors, gather: Factors | None
) -> str | None:
    if members % prod(middle):
        return (
            f"factors_middle: the product of {spell(middle)} is {prod(middle)}, which does not "
            f"divide the {members} members; take factors of {members}, or leave it out"
        )
    parts = members // prod(middle)
    for name, factors in (("factors", scatter), ("factors_gather", gather)):
        if factors is None or prod(factors) == parts:
            continue
        whose = f"the {members} members" + (f" over factors_middle, {parts}" if middle else "")
        ready = f"factors of {parts} such as {spell(recursive_factors(parts))}, or "
        return (
            f"{name}: the product of {spell(factors)} is {prod(factors)}, not {whose}; "
            f"take {ready if parts > 1 else ''}leave {name} out, or take cyclic, whose factors "
            "need only reach the number of members"
        )
    return None


def _short(name: str, factors: Factors, members: int) -> str | None:
    """Return the reason why factors do not make a cyclic allgather of all members, or None.

    Their product may exceed the number of members. Without the last factor it may not reach it, as
    the last step would have nothing to do.
    """
    if factors and prod(factors) < members:
        return (
            f"{name}: the product of {spell(factors)} is {prod(factors)}, less than the {members} "
            f"members; take factors such as {spell(cyclic_factors(members))}, or leave {name} out"
        )
    if factors and prod(factors[:-1]) >= members:
        return (
            f"{name}: {spell(factors[:-1])} reaches the {members} members without the last "
            f"{factors[-1]}; leave that factor out"
        )
    return None
