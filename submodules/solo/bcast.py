"""The broadcasts of ``solo``: ``pull`` along a tree, ``spread`` and ``meet``.

``pull``: in the flat tree, all members read from the root at once. In other trees, a member reads
each piece from its parent, and then its children read the piece from the member.

``spread``: each member reads a share of a piece from the root, and the other shares from the
members that have read these. So the root's memory is read once, and all members serve equally.

``meet``: a member reads most of each piece from the root, and the root, which is idle in ``pull``,
writes the rest into the member's memory meanwhile. All ranks copy the same number of bytes: of two
ranks, each copies half of the message.

Each receiver gets every byte by one copy in all of them.

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
        "int", "children of a member (kary), base of the tree (knomial), number of chains", 1, 64
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


# ---- meet ----------------------------------------------------------------------------------------


def _cut(solo: Reads, piece: Piece) -> int:
    """Return the byte of the message from which on the root writes: the last of equal shares."""
    size = len(solo.members)
    return piece.start + share(piece.nbytes, solo.context.grain, size - 1, size)[0]


def meet(solo: Reads) -> None:
    """Broadcast from the group's root, which writes a part of each piece into every member."""
    if solo.context.group.leads:
        _lead(solo)
    else:
        _follow(solo)


def _lead(solo: Reads) -> None:
    """Release a piece, then write a part of it into each member's memory, the next member first.

    The root adds one to its flag when it releases a piece, and one after each member.
    """
    context, size = solo.context, len(solo.members)
    for piece in solo.turns():
        released = piece.index * size + 1
        solo.post(RELEASED, released)
        for nth, m in enumerate(solo.others, 1):
            solo.await_(m, COPIED, solo.last)
            at = _cut(solo, piece)
            solo.push(context.result.to(at), context.source.to(at), piece.stop - at, m)
            solo.post(RELEASED, released + nth)
    solo.await_all(READ)


def _follow(solo: Reads) -> None:
    """Allow the root to write, read the rest of each piece, and wait for the root's part."""
    context, group, size = solo.context, solo.context.group, len(solo.members)
    nth = (group.me - group.root) % size
    for piece in solo.turns():
        if piece is solo.pieces[0]:
            solo.post(COPIED, solo.last)
        solo.await_(group.root, RELEASED, piece.index * size + 1)
        here, there = (ref.to(piece.start) for ref in (context.result, context.source))
        solo.pull(here, there, _cut(solo, piece) - piece.start, group.root)
        solo.await_(group.root, RELEASED, piece.index * size + 1 + nth)
    solo.post(READ, solo.last)
