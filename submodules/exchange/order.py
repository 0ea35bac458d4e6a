"""Which exchanges combine in the canonical order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from operator import mul

from han.submodules.exchange.folded import Folded
from han.submodules.exchange.patterns import PARTED, message_steps, parted_of
from han.submodules.exchange.steps import Recursive, Steps
from han.tasks.canonical import NOT_CANONICAL, are_blocks, starts_of
from han.tasks.choice import LevelChoice
from han.tasks.contract import Question


def reorders(question: Question) -> str | None:
    """Return why an exchange combines in another order than the canonical one, or None.

    The members that any stage has brought together must be whole blocks of the canonical order.
    Factors must be valid.
    """
    signature, choice = question.signature, question.choice
    for starts in _starts_of_groups(question):
        steps = _steps(choice, len(starts), signature.nbytes)
        if not all(are_blocks(starts, firsts) for firsts in _together(steps)):
            return f"{choice.algorithm} among {len(starts)} members {NOT_CANONICAL}"
    return None


def _steps(choice: LevelChoice, members: int, nbytes: int) -> Steps:
    if choice.algorithm in PARTED:
        return parted_of(choice, members)
    return message_steps(choice, members, nbytes)


def _starts_of_groups(question: Question) -> Iterator[tuple[int, ...]]:
    """Yield the starts of the members of each group of a level that has several members."""
    topology, signature, level = question.topology, question.signature, question.level
    last_first = reversed(list(enumerate(topology.domains[level])))
    for rank in sorted({domain: rank for rank, domain in last_first}.values()):
        group = topology.group(level, rank, 0)
        assert group is not None, "the first rank of a domain leads its domains"
        if group.size > 1:
            yield starts_of(topology, signature, group)


def _together(steps: Steps) -> Iterator[tuple[int, ...]]:
    """Yield for each combining stage the first members of all groups that it brings together."""
    inner = steps.inner if isinstance(steps, Folded) else steps
    assert isinstance(inner, Recursive), "other exchanges never combine in the canonical order"
    pairs = steps.size - inner.size
    places = (*range(0, 2 * pairs, 2), *range(2 * pairs, steps.size))
    for width in accumulate((*inner.scatter, *inner.whole), mul, initial=1):
        yield places[::width]
