"""From an algorithm and its factors to the pattern of an exchange.

Source: Jocksch et al., section 2.1.2, of which the algorithms between nodes are presets: factors of
2 make recursive doubling, Rabenseifner's algorithm, and with the cyclic shift Bruck's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import mul

from han.model.channel_layout import PAGE
from han.submodules.exchange.nested import Nested
from han.submodules.exchange.paired import Paired, paired
from han.submodules.exchange.rings import CopyIn, Ring
from han.submodules.exchange.steps import Cyclic, Pattern, Recursive, Steps
from han.submodules.parts.factors import (
    Factors,
    both_ways,
    core_of,
    cyclic_factors,
    misfit,
    most_of,
    phases_of,
    recursive_factors,
    spell,
    twos,
)
from han.tasks.canonical import NOT_CANONICAL, are_blocks, starts_of_groups
from han.tasks.choice import LevelChoice
from han.tasks.contract import Question


def _power(members: int) -> int:
    """Return the largest power of two that is not above the number of members."""
    return 1 << (members.bit_length() - 1)


def _doubling(members: int) -> Steps:
    return paired(Recursive((), twos(_power(members)), ()), members)


def _halving(members: int) -> Steps:
    factors = twos(_power(members))
    return paired(Recursive(factors, (), factors), members)


PRESETS: dict[str, Callable[[int], Steps]] = {
    "recursive_doubling": _doubling,
    "halving": _halving,
    "ring": Ring,
    "bruck": lambda members: Cyclic(members, twos(members), twos(members)),
}


PARTED = {"shares": "tree", "cyclic_shares": "cyclic"}  # whose factors halves have
NESTING = ("recursive", "cyclic", "tree")  # algorithms with groups of members


def _by_halves(choice: LevelChoice) -> LevelChoice:
    """Return the choice of an exchange whose halves a level runs."""
    return replace(choice.alike, algorithm=PARTED[choice.algorithm])


def parted_of(choice: LevelChoice, members: int) -> Pattern:
    """Return the exchange whose halves make and gather the shares of lanes."""
    return pattern_of(_by_halves(choice), members, whole=False)


def misfit_in_parts(question: Question) -> str | None:
    """Return the reason why members cannot exchange shares by these factors, or None."""
    if not question.topology.shared[question.level]:
        return "members of a group do not share memory"
    units = question.topology.units.get(question.level, {}).values()
    return misfit_of_any(_by_halves(question.choice), sorted({*map(len, units)}))


def own_factors(preset: str) -> str:
    """Return why a preset takes no factors."""
    return f"{preset} has factors of its own: leave factors out, or take recursive"


def message_steps(choice: LevelChoice, members: int, nbytes: int) -> Steps:
    """Return the exchange in messages that a choice describes, for a message of `nbytes` bytes.

    Raises ValueError if the factors do not suit the number of members.
    """
    if choice.algorithm in PRESETS:
        return PRESETS[choice.algorithm](members)
    if choice.algorithm == "scatter":  # on any level, where smaller groups need fewer factors
        return cyclic(members, asked_factors(choice), asked_ports(choice))
    whole = choice.algorithm == "recursive" and nbytes <= choice.get("whole", PAGE)
    recursive = choice.algorithm in ("recursive", "tree")
    free = recursive and not asked_factors(choice) and not asked_inner(choice)
    exchanging = core_of(members) if free else members
    return paired(pattern_of(choice, exchanging, whole), members)


def asked_factors(choice: LevelChoice) -> Factors | None:
    """Return the signed factors of the configuration, or None."""
    return choice.factors("factors")


def asked_inner(choice: LevelChoice) -> int:
    """Return how many consecutive members exchange among themselves first; 0: no groups."""
    return choice.get("inner", 0) if choice.algorithm in NESTING else 0


def asked_ports(choice: LevelChoice) -> int:
    """Return how many messages a member has under way at a time; 0: as many as usual."""
    return choice.get("ports", 0) if choice.algorithm in (*NESTING, "scatter") else 0


def misfit_of(choice: LevelChoice, members: int) -> str | None:
    """Return the reason why a choice's factors or groups do not suit so many members, or None."""
    inner, signed = asked_inner(choice), asked_factors(choice)
    if signed is not None and asked_ports(choice):
        return "ports: factors say how many messages are under way; leave one of them out"
    if inner and signed is not None:
        return "inner: factors say which members exchange first; leave one of them out"
    if inner and members % inner and inner < members:
        return f"inner: {members} members are not groups of {inner}; leave inner out"
    return misfit(choice.algorithm, members, signed)


def misfit_of_any(choice: LevelChoice, sizes: Sequence[int]) -> str | None:
    """Return the reason why a choice does not suit groups of all these sizes above 1, or None."""
    sizes = [n for n in sizes if n > 1]
    reason = next((why for n in sizes if (why := misfit_of(choice, n)) is not None), None)
    factors = asked_factors(choice)
    if reason is None or factors is None or len(sizes) < 2:
        return reason
    return (
        f"factors: {spell(factors)} do not fit all groups of the level, which have "
        f"{', '.join(map(str, sizes))} members: leave factors out"
    )


def pattern_of(choice: LevelChoice, members: int, whole: bool) -> Pattern:
    """Return the exchange that a choice describes; `whole`: no step splits the message.

    Raises ValueError if the factors do not suit the number of members.
    """
    signed = asked_factors(choice)
    reason = misfit_of(choice, members)
    if reason is not None:
        raise ValueError(reason)
    if choice.algorithm == "copyin":
        return CopyIn(members, signed or (members,))
    inner, ports = asked_inner(choice), asked_ports(choice)
    nests = 1 < inner < members
    if choice.algorithm == "cyclic" and nests:
        return Nested(cyclic(inner, None, ports), cyclic(members // inner, None, ports))
    if choice.algorithm == "cyclic":
        return cyclic(members, signed, ports)
    parts = (inner, members // inner) if nests else (members,)
    usual = tuple(factor for part in parts for factor in recursive_factors(part, most_of(ports)))
    scatter, middle, gather = phases_of(choice.algorithm, signed or both_ways(usual))
    return Recursive((), scatter + middle, ()) if whole else Recursive(scatter, middle, gather)


def cyclic(members: int, signed: Factors | None, ports: int = 0) -> Cyclic:
    """Return the cyclic shift of signed factors, or of the fewest ones for so many ports."""
    if signed is None:
        usual = cyclic_factors(members, most_of(ports))
        return Cyclic(members, usual, usual)
    scatter, _, gather = phases_of("cyclic", signed)
    return Cyclic(members, tuple(reversed(scatter)), gather)


# ---- the canonical order -------------------------------------------------------------------------


def reorders(question: Question) -> str | None:
    """Return why an exchange combines in another order than the canonical one, or None.

    The members that any stage has brought together must be whole blocks of the canonical order.
    Factors must be valid.
    """
    signature, choice = question.signature, question.choice
    for starts in starts_of_groups(question.topology, signature, question.level):
        steps = _steps(choice, len(starts), signature.nbytes)
        if not all(are_blocks(starts, firsts) for firsts in _together(steps)):
            return f"{choice.algorithm} among {len(starts)} members {NOT_CANONICAL}"
    return None


def _steps(choice: LevelChoice, members: int, nbytes: int) -> Steps:
    if choice.algorithm in PARTED:
        return parted_of(choice, members)
    return message_steps(choice, members, nbytes)


def _together(steps: Steps) -> Iterator[tuple[int, ...]]:
    """Yield for each combining stage the first members of all groups that it brings together."""
    inner = steps.inner if isinstance(steps, Paired) else steps
    assert isinstance(inner, Recursive), "other exchanges never combine in the canonical order"
    pairs = steps.size - inner.size
    places = (*range(0, 2 * pairs, 2), *range(2 * pairs, steps.size))
    for width in accumulate((*inner.scatter, *inner.whole), mul, initial=1):
        yield places[::width]
