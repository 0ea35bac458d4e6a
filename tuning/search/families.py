"""Families: candidates that run the same algorithms, with other parameters, segments or schedules.

A few members stand for their family. If these are much slower than the best candidate, the tasks of
the others are not measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from han.tasks.choice import Choice, LevelChoice

WHOLE = float("inf")  # the segment of a message that is not cut


def family_of(choice: Choice) -> Hashable:
    """Return what the members of a family have in common: the algorithms of all kinds of tasks."""
    return choice.composition, tuple(map(_algorithms, choice.levels))


def _algorithms(level: LevelChoice) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    kinds = tuple((k, c.algorithm) for k, c in level.kinds if c.algorithm != level.algorithm)
    return level.submodule, level.algorithm, kinds


def first_of(candidates: Sequence[Choice]) -> list[Choice]:
    """Return the members that stand for their families, in the order of the candidates.

    These have the fewest parameters and the schedule of the first candidate, and the smallest and
    the largest segment. The first candidate is one of them.
    """
    families: defaultdict[Hashable, list[Choice]] = defaultdict(list)
    for one in candidates:
        families[family_of(one)].append(one)
    kept = set(candidates[:1])
    for members in families.values():
        plain = min(_parameters(one) for one in members)
        usual = [one for one in members if _parameters(one) == plain]
        alike = [one for one in usual if one.schedule == candidates[0].schedule] or usual
        kept |= {min(alike, key=_segment), max(alike, key=_segment)}
    return [one for one in candidates if one in kept]


def ends_first(candidates: Sequence[Choice], usual: Choice) -> list[Choice]:
    """Return candidates in an order in which more costs follow from those known before.

    Of choices that differ in their segment only, the smallest and the largest segments come first:
    costs of others are interpolated. Of these, those that differ from the usual choice in the
    fewest tasks come first: then each call has one task at most whose cost is not known.
    """
    alike: defaultdict[Hashable, list[Choice]] = defaultdict(list)
    for one in candidates:
        alike[one.levels, one.schedule, one.composition].append(one)
    inner = {one for some in alike.values() for one in sorted(some, key=_segment)[1:-1]}
    return sorted(candidates, key=lambda one: (one in inner, _deviations(one, usual)))


def _deviations(choice: Choice, usual: Choice) -> int:
    """Return in how many levels, kinds of tasks and compositions two choices differ."""
    found = int(choice.composition != usual.composition)
    for own, other in zip(choice.levels, usual.levels, strict=False):
        kinds = {kind for kind, _ in (*own.kinds, *other.kinds)}
        found += own.alike != other.alike
        found += sum(own.of(kind) != other.of(kind) for kind in kinds)
    return found


def _parameters(choice: Choice) -> int:
    return sum(len(one.parameters) for level in choice.levels for one in level.each)


def _segment(choice: Choice) -> float:
    return WHOLE if choice.segment is None else choice.segment
