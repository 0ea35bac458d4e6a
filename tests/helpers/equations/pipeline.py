"""The cost of a pipeline from the costs of its composite tasks on each rank.

Source: Luo et al., HAN, equations 1 to 4. `tuning.costs.model` has the same for any number of
levels and any collective; these are the paper's own, for two levels. A cost is a sequence by rank,
in seconds.
"""

from collections.abc import Sequence

Cost = Sequence[float]


def bcast_leaders(ib: Cost, sbib: Sequence[Cost], sb: Cost) -> float:
    """Return the time of equation 1: ``ib(0), sbib(1) ... sbib(u - 1), sb(u - 1)`` on leaders."""
    return max(map(sum, zip(ib, *sbib, sb, strict=True)))


def bcast_others(ib: Cost, sb: Sequence[Cost]) -> float:
    """Return the time of equation 2: ``sb(0) ... sb(u - 1)`` after the ib(0) of their leaders."""
    return max(map(sum, zip(ib, *sb, strict=True)))


def bcast(ib: Cost, steady: Cost, sb: Cost, segments: int) -> float:
    """Return the time of equation 3, with the stabilised cost of ``sbib``."""
    rows = zip(ib, steady, sb, strict=True)
    return max(first + (segments - 1) * each + last for first, each, last in rows)


def allreduce(
    filling: Sequence[Cost], steady: Cost, draining: Sequence[Cost], segments: int
) -> float:
    """Return the time of equation 4, with the stabilised cost of ``sbibirsr``.

    `filling` are sr, irsr and ibirsr, `draining` are sbibir, sbib and sb. Three segments or more.
    """
    once = map(sum, zip(*filling, *draining, strict=True))
    return max(others + (segments - 3) * each for others, each in zip(once, steady, strict=True))
