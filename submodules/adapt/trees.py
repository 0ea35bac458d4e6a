"""The trees of ``adapt``: the parent and the children of a rank, and how their operands combine."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from han.submodules.parts.trees import neighbours
from han.tasks.context import Context

# algorithm: (shape in submodules/parts/trees.py, default radix)
SHAPE = {
    "linear": ("flat", 1),
    "chain": ("chain", 1),
    "binary": ("kary", 2),
    "binomial": ("knomial", 2),
    "knomial": ("knomial", 4),
}


class Child(NamedTuple):
    """A member that is a child; `before`: its operands come before those combined so far."""

    member: int
    before: bool = False


class Kin(NamedTuple):
    """A member's parent (None: it is the root) and its children in the order of combination."""

    parent: int | None
    children: tuple[Child, ...]


def kin(context: Context) -> Kin:
    """Return this rank's place in the tree of the context's algorithm."""
    group, algorithm = context.group, context.choice.algorithm
    if algorithm == "in_order_binary":
        return in_order(group.me, group.size, group.root)
    if algorithm == "by_rank":
        return by_rank(group.me, context.starts, group.root)
    if algorithm == "linear" and not context.builder.signature.commutative:
        return _linear(group.me, group.size, group.root)
    shape, radix = SHAPE[algorithm]
    found = neighbours(group, shape, context.choice.get("radix", radix))
    return Kin(found.parent, tuple(map(Child, found.children)))


def _linear(me: int, size: int, root: int) -> Kin:
    """Combine the operands behind the root's own, then those before it, the nearest one first."""
    if me != root:
        return Kin(root, ())
    behind = [Child(m) for m in range(root + 1, size)]
    return Kin(None, (*behind, *(Child(m, True) for m in reversed(range(root)))))


def in_order(me: int, size: int, root: int) -> Kin:
    """Return a member's place in a binary tree whose in-order walk is the order of members.

    The members before the root and those behind it form a balanced subtree each.
    """
    parent, low, middle, high = None, 0, root, size
    while me != middle:
        low, high = (low, middle) if me < middle else (middle + 1, high)
        parent, middle = middle, (low + high) // 2
    left = [Child((low + middle) // 2, True)] if low < middle else []
    right = [Child((middle + 1 + high) // 2)] if middle + 1 < high else []
    return Kin(parent, (*left, *right))


def by_rank(me: int, starts: Sequence[int], root: int) -> Kin:
    """Return a member's place in the binomial tree over ranks.

    Member m has combined operands from rank ``starts[m]`` on. A block of rank v of size 2^k holds
    the ranks from v, a multiple of 2^k, to v + 2^k - 1. Two neighbouring blocks of one size are
    combined into one of twice the size, first the small blocks; so the expression of the result
    does not depend on the root. A block's result is at the root if it is there, else at its lowest
    member.
    """
    children: list[Child] = []
    own, most = starts[me], starts[-1]
    for k in range(most.bit_length()):
        beside = (own >> k) ^ 1
        low, high = (bisect_left(starts, block << k) for block in (beside, beside + 1))
        if low == high:
            continue
        before, leads = beside < own >> k, low <= root < high
        other = root if leads else low
        if leads or (before and me != root):
            return Kin(other, tuple(children))
        children.append(Child(other, before))
    return Kin(None, tuple(children))
