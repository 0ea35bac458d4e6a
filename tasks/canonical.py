"""The canonical order: how a reproducible reduction combines the operands of all ranks.

Ranks are the leaves of a binary tree. Ranks 2k and 2k + 1 are a block of two, two neighbouring
blocks of two are a block of four, and so on; the last block of each size may be short. The value of
a block is that of its left half combined with that of its right half, or that of its left half if
the right one has no ranks. So the result of a number of ranks is one expression, whichever ranks
share a node and however the message is cut.

A member of a group stands for a block, which begins at its *start*. Members combine in ascending
order: `order` says, for each operand, how many combinations follow it, as on a stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

from han.model.topology import Group, Topology
from han.tasks.signature import Signature

Order = tuple[int, ...]
NOT_CANONICAL = "combines in another order than the canonical one, which 'reproducible' asks for"
REMEMBERED = 1024
EXACT_OPS = ("land", "lor", "lxor", "band", "bor", "bxor")  # exact for all types
EXACT_KINDS = ("int", "uint", "bool", "byte")  # beginnings of names of types


def matters(signature: Signature) -> bool:
    """Return whether the bits of a reduction may depend on the order of its operands.

    They do not for whole numbers, and for logical and bitwise operations. A maximum of floating
    numbers depends on it if there are zeros of both signs, or values that are no numbers.
    """
    if not signature.reduces:
        return False
    exact = signature.op in EXACT_OPS or signature.dtype.startswith(EXACT_KINDS)
    return not (signature.native and exact)


@lru_cache(REMEMBERED)
def linear(size: int) -> Order:
    """Return the order from left to right."""
    return (0, *(1,) * (size - 1))


@lru_cache(REMEMBERED)
def canonical(starts: Sequence[int]) -> Order:
    """Return the canonical order of blocks with these starts, which ascend."""
    edges = _edges(starts)
    found, open_ = [], list[int]()  # edges on whose right side something is still to be combined
    for k, _ in enumerate(starts):
        following = edges[k] if k < len(edges) else 1 << 62
        before = len(open_)
        while open_ and open_[-1] < following:
            open_.pop()
        found.append(before - len(open_))
        open_.append(following)
    return tuple(found)


def starts_of(topology: Topology, signature: Signature, group: Group) -> tuple[int, ...]:
    """Return the first rank for which each member of a group stands."""
    if signature.by_blocks or not group.level:
        return group.ranks
    return tuple(topology.domain(group.level - 1, rank)[0] for rank in group.ranks)


def starts_of_groups(
    topology: Topology, signature: Signature, level: int
) -> Iterator[tuple[int, ...]]:
    """Yield the starts of the members of each group of a level that has several members."""
    last_first = reversed(list(enumerate(topology.domains[level])))
    for rank in sorted({domain: rank for rank, domain in last_first}.values()):
        group = topology.group(level, rank, 0)
        assert group is not None, "the first rank of a domain leads its domains"
        if group.size > 1:
            yield starts_of(topology, signature, group)


def _edges(starts: Sequence[int]) -> list[int]:
    """Return for each two neighbours the logarithm of the least block that has both."""
    return [(a ^ b).bit_length() for a, b in pairwise(starts)]


@lru_cache(REMEMBERED)
def rooms(order: Order) -> int:
    """Return how many partial results an order keeps at the same time."""
    depth = most = 0
    for combinations in order[:-1]:
        depth += 1
        for _ in range(combinations):
            depth -= 1
            most = max(most, depth)
    return max(most, depth if depth > 1 else 0)


@lru_cache(REMEMBERED)
def depths(order: Order) -> tuple[int, ...]:
    """Return for each operand how many others are on the stack below it."""
    return tuple(accumulate((1 - combinations for combinations in order[:-1]), initial=0))


@lru_cache(REMEMBERED)
def are_blocks(starts: Sequence[int], firsts: Sequence[int]) -> bool:
    """Return whether members from each of `firsts` to the next one are a whole block.

    Members are all from the first of them on.
    """
    edges = [1 << 62, *_edges(starts), 1 << 62]
    for first, stop in pairwise((*firsts, len(starts))):
        inside = edges[first + 1 : stop]
        if inside and max(inside) >= min(edges[first], edges[stop]):
            return False
    return True
