"""The broadcasts of ``solo``: ``pull`` along a tree, and ``spread``.

With the flat tree all members read from the root at once, whose memory then serves them all. In
another one a member reads from its parent, and its children from it, piece by piece; ``spread``
has each member read a share from the root and everybody else's from where they have it, so that
the root's memory is read once and all serve alike. One copy a receiver in all of them.

Source: HAN, section III (ADAPT's trees); van de Geijn's scatter and allgather.
"""

from __future__ import annotations

from han.submodules.parts.cells import COPIED, READ, RELEASED
from han.submodules.parts.pieces import Piece, share
from han.submodules.parts.trees import SHAPES, Place, place
from han.submodules.solo.reads import Reads
from han.tasks.choice import LevelChoice
from han.tasks.contract import Parameter

RADIX = 2
PARAMETERS = {
    "tree": Parameter("name", "who reads from whom in a broadcast (pull)", choices=tuple(SHAPES)),
    "radix": Parameter(
        "int",
        "children a member has (kary), base (knomial), number of chains",
        1,
        64,
        tried=(2, 3, 5),
    ),
}


def tree_of(choice: LevelChoice) -> tuple[str, int]:
    """Return the shape and the radix of a broadcast's tree; all read from the root unless told."""
    shape = str(dict(choice.parameters).get("tree", "flat"))
    return shape, choice.get("radix", 1 if shape == "chain" else RADIX)


def misfit(choice: LevelChoice) -> str | None:
    """Return why the parameters make no tree, or None."""
    shape, radix = tree_of(choice)
    if shape == "knomial" and radix < 2:
        return "a k-nomial tree needs a radix of at least 2"
    return None


def pull(solo: Reads) -> None:
    """Read from the parent and let the children read, who tell when they are done."""
    group = solo.context.group
    tree = place(group, *tree_of(solo.context.choice))
    for piece in solo.pieces:
        solo.begin(piece)
        if tree.parent is not None:
            solo.await_(tree.parent, RELEASED, piece.index + 1)
            _read(solo, piece, (0, piece.nbytes), tree.parent)
        if tree.children:
            solo.tell(RELEASED, piece.index + 1)
        solo.end(piece)
    _leave(solo, tree)


def _leave(solo: Reads, tree: Place) -> None:
    """Wait until the children have read; the parent hears first that this rank has."""
    if tree.parent is not None:
        solo.tell(READ, solo.last)
    for child in tree.children:
        solo.await_(child, READ, solo.last)


def spread(solo: Reads) -> None:
    """Read a share from the root, then the others' from them.

    Who has everything knows that all others have read their last share from the root, so that
    the root need hear of one; the others' shares are read by each for itself.
    """
    root, leads = solo.context.group.root, solo.context.group.leads
    readers = [m for m in solo.others if m != root]
    for piece in solo.pieces:
        solo.begin(piece)
        if leads:
            solo.tell(RELEASED, piece.index + 1)
        else:
            _gather_shares(solo, piece, readers)
        solo.end(piece)
    if not leads:
        solo.tell(READ, solo.last)
    for m in readers[:1] if leads else readers:
        solo.await_(m, READ, solo.last)


def _gather_shares(solo: Reads, piece: Piece, readers: list[int]) -> None:
    group = solo.context.group
    solo.await_(group.root, RELEASED, piece.index + 1)
    _read(solo, piece, _share(solo, piece, group.me), group.root)
    solo.tell(COPIED, piece.index + 1)
    for m in readers:
        solo.await_(m, COPIED, piece.index + 1)
        _read(solo, piece, _share(solo, piece, m), m)


def _share(solo: Reads, piece: Piece, member: int) -> tuple[int, int]:
    """The bytes of a piece that a member reads from the root, which has none."""
    group = solo.context.group
    turn = (member - group.root) % group.size - 1
    return share(piece.nbytes, solo.context.element, turn, group.size - 1)


def _read(solo: Reads, piece: Piece, part: tuple[int, int], member: int) -> None:
    """Read bytes of a piece from a member that has them, to where they are wanted."""
    start, stop = part
    there = solo.context.source + (piece.start + start)
    solo.pull(solo.context.result + (piece.start + start), there, stop - start, member)
