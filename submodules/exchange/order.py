"""Which exchanges combine in the canonical order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from operator import mul

from han.submodules.exchange.folded import Folded
from han.submodules.exchange.patterns import message_steps
from han.submodules.exchange.steps import Recursive, Steps
from han.tasks.canonical import NOT_CANONICAL, are_blocks, starts_of
from han.tasks.contract import Question


def reorders(question: Question) -> str | None:
    """Return why an exchange combines in another order than the canonical one, or None.

    The members that any stage has brought together must be whole blocks of the canonical order.
    Factors must be valid.
    """
    topology, signature, choice = question.topology, question.signature, question.choice
    group = topology.group(question.level, 0, 0)
    assert group is not None, "rank 0 leads all its domains"
    starts = starts_of(topology, signature, group)
    steps = message_steps(choice, group.size, signature.nbytes)
    if all(are_blocks(starts, firsts) for firsts in _together(steps)):
        return None
    return f"{choice.algorithm} among {group.size} members {NOT_CANONICAL}"


def _together(steps: Steps) -> Iterator[tuple[int, ...]]:
    """Yield for each combining stage the first members of all groups that it brings together."""
    inner = steps.inner if isinstance(steps, Folded) else steps
    assert isinstance(inner, Recursive), "other exchanges never combine in the canonical order"
    pairs = steps.size - inner.size
    places = (*range(0, 2 * pairs, 2), *range(2 * pairs, steps.size))
    for width in accumulate((*inner.scatter, *inner.whole), mul, initial=1):
        yield places[::width]
