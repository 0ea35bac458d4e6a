"""Trees over the members of a group, by position relative to the root.

A tree is two functions of (position, size, radix). One returns the parent, the other the children,
nearest first. Neither takes more steps than there are levels and children.

Source: Jain et al., section III-A; HAN, section III (ADAPT's algorithms).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from han.model.topology import Group

Parent = Callable[[int, int, int], int]
Children = Callable[[int, int, int], list[int]]


def _flat_children(v: int, n: int, radix: int) -> list[int]:
    return list(range(1, n)) if v == 0 else []


def _chain_children(v: int, n: int, chains: int) -> list[int]:
    """Return the next position of v's chain, or the first ones of all chains for the root.

    The positions behind the root form `chains` chains of consecutive ones.
    """
    length = -(-(n - 1) // chains) if n > 1 else 1
    if v == 0:
        return list(range(1, n, length))
    return [v + 1] if v % length and v + 1 < n else []


def _chain_parent(v: int, n: int, chains: int) -> int:
    """Return the previous position of v's chain; for its first one the root."""
    length = -(-(n - 1) // chains)
    return 0 if (v - 1) % length == 0 else v - 1


def _kary_children(v: int, n: int, radix: int) -> list[int]:
    return list(range(radix * v + 1, min(radix * v + radix + 1, n)))


def _knomial_parent(v: int, n: int, radix: int) -> int:
    """Return v without its lowest nonzero digit in base `radix`."""
    power = 1
    while v // power % radix == 0:
        power *= radix
    return v - v // power % radix * power


def _knomial_children(v: int, n: int, radix: int) -> list[int]:
    """Return v with one more nonzero digit in base `radix`, below its lowest one."""
    children, power = [], 1
    while power < n and (v == 0 or v // power % radix == 0):
        children += [c for d in range(1, radix) if (c := v + d * power) < n]
        power *= radix
    return children


@dataclass(frozen=True)
class Shape:
    """A family of trees."""

    parent: Parent
    children: Children


SHAPES = {
    "flat": Shape(lambda v, n, k: 0, _flat_children),
    "chain": Shape(_chain_parent, _chain_children),
    "kary": Shape(lambda v, n, k: (v - 1) // k, _kary_children),
    "knomial": Shape(_knomial_parent, _knomial_children),
}


@dataclass(frozen=True)
class Neighbours:
    """A member's neighbours in a tree: the group positions of its parent and its children."""

    parent: int | None
    children: tuple[int, ...]


def neighbours(group: Group, shape: str, radix: int) -> Neighbours:
    """Return this rank's neighbours in the group's tree of that shape and radix."""
    n, root = group.size, group.root
    v = (group.me - root) % n
    tree = SHAPES[shape]
    parent = None if v == 0 else (tree.parent(v, n, radix) + root) % n
    return Neighbours(parent, tuple((c + root) % n for c in tree.children(v, n, radix)))
