"""The broadcasts of ``solo``: ``pull`` along a tree, and ``spread``.

``pull``: in the flat tree, all members read from the root at once. In other trees, a member reads
each piece from its parent, and then its children read the piece from the member.

``spread``: each member reads a share of a piece from the root, and the other shares from the
members that have read these. So the root's memory is read once, and all members serve equally.

Each receiver copies every byte once in either of them.

Source: HAN, section III (ADAPT's trees); van de Geijn's scatter and allgather.
"""

from __future__ import annotations

from han.submodules.parts.cells import COPIED, READ, RELEASED
from han.submodules.parts.pieces import Piece
from han.submodules.parts.trees import SHAPES, Neighbours, neighbours
from han.submodules.solo.reads import Reads
from han.tasks.choice import LevelChoice
from han.tasks.contract import Parameter
from han.tasks.shares import share

RADIX = 2
PARAMETERS = {
    "tree": Parameter("name", "tree of a broadcast (pull)", choices=tuple(SHAPES)),
    "radix": Parameter(
        "int",
        "children of a member (kary), base of the tree (knomial), number of chains",
        1,
        64,
        tried=(2, 3, 5),
    ),
}


def tree_of(choice: LevelChoice) -> tuple[str, int]:
    """Return the shape and the radix of a broadcast's tree; the default is the flat one."""
    shape = str(dict(choice.parameters).get("tree", "flat"))
    return shape, choice.get("radix", 1 if shape == "chain" else RADIX)


def misfit(choice: LevelChoice) -> str | None:
    """Return the reason why the parameters describe no tree, or None."""
    shape, radix = tree_of(choice)
    if shape == "knomial" and radix < 2:
        return "a k-nomial tree needs a radix of at least 2"
    return None


def pull(solo: Reads) -> None:
    """Read each piece from the parent, then let the children read it."""
    group = solo.context.group
    tree = neighbours(group, *tree_of(solo.context.choice))
    for piece in solo.turns():
        if tree.parent is not None:
            solo.await_(tree.parent, RELEASED, piece.index + 1)
            _read(solo, (piece.start, piece.stop), tree.parent)
        if tree.children:
            solo.post(RELEASED, piece.index + 1)
    _leave(solo, tree)


def _leave(solo: Reads, tree: Neighbours) -> None:
    """Tell the parent that this rank has read everything, then wait until the children have."""
    if tree.parent is not None:
        solo.post(READ, solo.last)
    for child in tree.children:
        solo.await_(child, READ, solo.last)


def spread(solo: Reads) -> None:
    """Read a share of each piece from the root, and the other shares from the other members.

    A member that has the whole message knows that every other member has read its last share from
    the root. So the root waits for one member only. The other members wait for each other, as each
    of them is read by all others.
    """
    root, leads = solo.context.group.root, solo.context.group.leads
    readers = [m for m in solo.others if m != root]
    for piece in solo.turns():
        if leads:
            solo.post(RELEASED, piece.index + 1)
        else:
            _gather_shares(solo, piece, readers)
    if not leads:
        solo.post(READ, solo.last)
    for m in readers[:1] if leads else readers:
        solo.await_(m, READ, solo.last)


def _gather_shares(solo: Reads, piece: Piece, readers: list[int]) -> None:
    """Read this member's share of a piece from the root, then the shares of the other readers."""
    group = solo.context.group
    solo.await_(group.root, RELEASED, piece.index + 1)
    _read(solo, _share(solo, piece, group.me), group.root)
    solo.post(COPIED, piece.index + 1)
    for m in readers:
        solo.await_(m, COPIED, piece.index + 1)
        _read(solo, _share(solo, piece, m), m)


def _share(solo: Reads, piece: Piece, member: int) -> tuple[int, int]:
    """Return where in the message the share of a piece that a member reads from the root lies."""
    group = solo.context.group
    turn = (member - group.root) % group.size - 1
    start, stop = share(piece.nbytes, solo.context.grain, turn, group.size - 1)
    return piece.start + start, piece.start + stop


def _read(solo: Reads, part: tuple[int, int], member: int) -> None:
    """Read a part of the message from the buffer of a member that has it."""
    start, stop = part
    here, there = solo.context.result.to(start), solo.context.source.to(start)
    solo.pull(here, there, stop - start, member)
