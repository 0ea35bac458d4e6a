"""The trees of ``sm``: one for releases and one for gathers.

Either tree can be skewed, or joined from trees within sockets.

Source: Jain et al., section III-A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from han.model.topology import Group
from han.submodules.measured import TREE_RADIX
from han.submodules.parts.trees import SHAPES, Neighbours
from han.tasks.canonical import canonical, starts_of_groups
from han.tasks.choice import LevelChoice
from han.tasks.contract import ANY, Algorithm, Parameter, Question

NAMES = ("flat", "kary", "knomial")
IN_CELLS = ("cells", "chunk", "inline", "read_parent_flag", "in_recv", "trailing")
PARAMETERS = {
    "radix": Parameter(
        "int", "children of a member (kary), base of the tree (knomial)", 2, 64
    ),
    "skew": Parameter(
        "name", "left: a member's first children come first; right: last", choices=("left", "right")
    ),
    "leaders": Parameter(
        "name", "a tree within each socket and one of their leaders, who come first or last",
        choices=("none", "first", "last")
    ),
    "socket_tree": Parameter("name", "tree within a socket (leaders)", choices=NAMES),
    "socket_radix": Parameter("int", "radix within a socket (leaders)", 2, 64),
}  # fmt: skip


TAKEN = (*PARAMETERS, *IN_CELLS)
ALGORITHMS = {
    "flat": Algorithm(
        "all members are the root's children", ordered="always", takes=TAKEN, families=ANY,
        canonical=True,
    ),
    "kary": Algorithm("k-ary tree of flags", ordered="never", takes=TAKEN, families=ANY),
    "knomial": Algorithm("k-nomial tree of flags", takes=TAKEN, families=ANY, canonical=True),
}  # fmt: skip


def _in_pairs(question: Question) -> bool:
    """Return whether all groups of a level pair up as consecutive ranks do."""
    topology, level, signature = question.topology, question.level, question.signature
    if not level:  # a group has consecutive ranks, from a multiple of a power of two on
        return True
    starts = starts_of_groups(topology, signature, level)
    return all(canonical(s) == canonical(tuple(range(len(s)))) for s in starts)


@dataclass(frozen=True)
class Tree:
    """A tree for the members of any group: its shape, skew, and trees within sockets."""

    shape: str
    radix: int
    skew: str
    leaders: str
    socket_shape: str
    socket_radix: int

    @classmethod
    @lru_cache(256)
    def of(cls, choice: LevelChoice) -> Tree:
        """Return the tree of tasks that run `choice`."""
        values, shape = dict(choice.parameters), choice.algorithm
        radix = int(str(values.get("radix", TREE_RADIX)))
        return cls(
            shape, radix, str(values.get("skew", "left")), str(values.get("leaders", "none")),
            str(values.get("socket_tree", shape)), int(str(values.get("socket_radix", radix))),
        )  # fmt: skip

    @property
    def ordered(self) -> str:
        """When a reduction keeps the order of operands, as in :class:`Algorithm`."""
        plain = self.skew == "left" and self.leaders == "none"
        return ALGORITHMS[self.shape].ordered if plain else "never"

    def canonical(self, question: Question) -> bool:
        """Return whether a reduction can combine in the canonical order.

        Where all members are the root's children, it combines them in any order. A binomial tree
        combines neighbours in pairs, and pairs in pairs, towards the first member.
        """
        if self.leaders != "none" or self.shape == "flat":
            return self.leaders == "none"
        binomial = (self.shape, self.radix, self.skew) == ("knomial", 2, "left")
        return binomial and not question.signature.root and _in_pairs(question)

    def describe(self) -> str:
        """Return a name such as ``knomial, skewed right, by sockets``."""
        skew = ", skewed right" if self.skew == "right" else ""
        return self.shape + skew + (", by sockets" if self.leaders != "none" else "")

    def neighbours(self, group: Group, sockets: Sequence[int]) -> Neighbours:
        """Return this rank's neighbours; `sockets` holds the socket of each member of the group."""
        turned = [(group.root + k) % group.size for k in range(group.size)]
        if self.leaders == "none":
            return self._within(turned, group.me, self.shape, self.radix)
        members: dict[int, list[int]] = {}
        for m in turned:  # the root leads its socket; the first member in turn leads another one
            members.setdefault(sockets[m], []).append(m)
        home = members[sockets[group.me]]
        inside = self._within(home, group.me, self.socket_shape, self.socket_radix)
        if inside.parent is not None:
            return inside
        heads = [m[0] for m in members.values()]
        above = self._within(heads, group.me, self.shape, self.radix)
        parts = (above.children, inside.children)
        order = parts if self.leaders == "first" else reversed(parts)
        return Neighbours(above.parent, tuple(chain.from_iterable(order)))

    def _within(self, members: Sequence[int], me: int, shape: str, radix: int) -> Neighbours:
        """Return the neighbours of `me` in a tree of `members`, the root first."""
        n, v, tree = len(members), members.index(me), SHAPES[shape]
        children = [members[c] for c in tree.children(v, n, radix)]
        parent = None if v == 0 else members[tree.parent(v, n, radix)]
        return Neighbours(parent, tuple(children if self.skew == "left" else reversed(children)))
