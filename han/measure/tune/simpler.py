"""What of a choice makes it faster: parts of the built-in choice take the place of its own.

A search finds the fastest of many candidates that take nearly the same time, so the winner differs
from the built-in choice in parts that change nothing: what a node does while its link is busy, say.
Without them a person sees why a choice is there, and it depends less on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from han.measure.tune.confirm import Confirmation
from han.tasks.choice import Choice
from han.tuning.tuned.points import GAIN

ALIKE = 1.01  # times the time of the choice: as fast

Compare = Callable[[Choice], Confirmation]  # of another choice with the one that was found


def simplified(
    choice: Choice, base: Choice, found: Confirmation, serves: Callable[[Choice], bool],
    compare: Compare,
) -> tuple[Choice, float]:  # fmt: skip
    """Return the choice that is as fast with most parts of `base`, and its time over `choice`'s.

    Parts are tried one after the other, the largest first, and kept if the call is as fast in calls
    back to back and still faster than `base`: `found` says how much faster `choice` is.
    """
    ratio = 1.0
    for restore in _parts(choice):
        one = restore(choice, base)
        if one in (choice, base) or not serves(one):
            continue
        compared = compare(one)
        if compared.middle <= ALIKE and compared.middle * found.middle <= GAIN:
            choice, ratio = one, compared.middle
    return choice, ratio


def _parts(choice: Choice) -> Iterator[Callable[[Choice, Choice], Choice]]:
    """Yield what takes a part of the second choice into the first one."""
    yield lambda one, base: replace(one, composition=base.composition)
    yield lambda one, base: replace(one, segment=base.segment)
    yield lambda one, base: replace(one, schedule=base.schedule)
    yield from map(_level, range(len(choice.levels)))


def _level(k: int) -> Callable[[Choice, Choice], Choice]:
    def restore(one: Choice, base: Choice) -> Choice:
        return replace(one, levels=(*one.levels[:k], base.levels[k], *one.levels[k + 1 :]))

    return restore
