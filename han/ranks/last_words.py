"""Values of all ranks when a program ends, without waiting long for any rank.

This is not collective: each rank sends its value, and rank 0 answers when it has received the
values or waits no more.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mpi4py import MPI

from han.ranks.discover import world_ranks
from han.ranks.measured import WAIT, WAIT_FOR_OTHERS
from han.ranks.meeting import Patience, abandon

VALUE, ANSWER = 1, 2  # tags


def post(comm: MPI.Intracomm, value: object, peer: int, tag: int) -> None:
    """Send a value, without waiting until it is received."""
    data = pickle.dumps(value)
    request = comm.Isend([data, MPI.BYTE], peer, tag)
    if not request.Test():
        abandon((request, data))


def letter(
    comm: MPI.Intracomm, source: int, tag: int, until: float,
    look: Callable[[], object] | None = None,
) -> tuple[int, Any] | None:  # fmt: skip
    """Return the sender and the value of the next letter; None if none has come by `until`.

    One that has come is returned even if this time has passed. `look` is called now and then,
    and may raise.
    """
    patience, status = Patience(), MPI.Status()
    while not (message := comm.Improbe(source, tag, status)):
        if time.monotonic() > until:
            return None
        if patience.pause() and look is not None:
            look()
    data = bytearray(status.Get_count(MPI.BYTE))
    request = message.Irecv([data, MPI.BYTE])
    while not request.Test():  # its sender may have died meanwhile
        if time.monotonic() > until:
            abandon((request, data))
            return None
        patience.pause()
    return status.Get_source(), pickle.loads(data)


def tell(comm: MPI.Intracomm, value: object, waits: bool = True) -> None:
    """Send a value to rank 0, and wait for its answer if it `waits`.

    `comm` is used for nothing else.
    """
    post(comm, value, 0, VALUE)
    if waits:  # some libraries complain of messages that nobody received
        letter(comm, 0, ANSWER, time.monotonic() + WAIT)


def hear(comm: MPI.Intracomm, until: float) -> dict[int, Any]:
    """Return the values of the other ranks, by rank; on rank 0."""
    found: dict[int, Any] = {}
    while len(found) < comm.Get_size() - 1:
        told = letter(comm, MPI.ANY_SOURCE, VALUE, until)
        if told is None:
            break
        found[told[0]] = told[1]
    for peer in range(1, comm.Get_size()):
        post(comm, None, peer, ANSWER)
    return found


class TreeNode(NamedTuple):
    """A rank and its place: the name of its tree, and whether it has joined and has a parent."""

    tree: int
    rank: int  # in MPI.COMM_WORLD
    joined: bool
    has_parent: bool


@dataclass
class Values:
    """The values of the ranks of a tree, and the ranks of MPI.COMM_WORLD that did not tell one."""

    values: list[Any] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)

    def add(self, other: Values) -> None:
        """Add the values of another part of the tree."""
        self.values += other.values
        self.missing += other.missing


class Reporters:
    """The place of this rank in the trees; joining is collective over each communicator.

    The ranks of all communicators that joined form trees. A rank tells its parent, which tells its
    own parent; the top of a tree has the values of all its ranks. So each value arrives once, also
    from ranks that are in several communicators.

    A rank without parent and children takes any parent. The top of a tree takes a parent only if
    the name of the parent's tree is less than its own: the ranks below it have names that are not
    less, so no rank becomes its own ancestor.
    """

    def __init__(self) -> None:
        rank = MPI.COMM_WORLD.Get_rank()
        self._place = TreeNode(rank, rank, joined=False, has_parent=False)
        self._parent: MPI.Intracomm | None = None  # its rank 0 is the parent
        self._children: list[tuple[MPI.Intracomm, list[int]]] = []  # rank 0 of each is this rank
        self._whole = False  # all ranks of the job are in one tree

    def join(self, comm: MPI.Intracomm) -> None:
        """Connect the trees of the ranks of `comm`, where ranks can take a parent; collective."""
        here = MPI.UNDEFINED not in world_ranks(comm)
        if self._whole and here:
            return
        places = [TreeNode(*place) for place in comm.allgather(tuple(self._place))]
        parent = parent_of(places)
        going = [takes(place, places[parent]) for place in places]
        going[parent] = True
        self._whole |= here and comm.Get_size() == MPI.COMM_WORLD.Get_size()
        if sum(going) > 1:
            self._connect(comm, places, parent, going)
        self._place = self._place._replace(joined=True)

    def _connect(
        self, comm: MPI.Intracomm, places: list[TreeNode], parent: int, going: list[bool]
    ) -> None:
        me = comm.Get_rank()
        color, key = 0 if going[me] else MPI.UNDEFINED, 0 if me == parent else me + 1
        made = MPI.Intracomm(comm.Split(color, key))
        if me == parent:
            told = [place.rank for place, goes in zip(places, going, strict=True) if goes]
            told.remove(places[parent].rank)
            self._children.append((made, told))
        elif going[me]:
            self._parent = made
            self._place = self._place._replace(tree=places[parent].tree, has_parent=True)

    def last_words(self, value: object, waits: bool = True) -> Values | None:
        """Gather the values of a tree; return them on its top, None elsewhere; not collective.

        A rank with a parent waits for its children half as long as the top does.
        """
        limit = WAIT_FOR_OTHERS / (1 if self._parent is None else 2)
        until = time.monotonic() + (limit if waits else 0.0)
        found = Values([value])
        for comm, ranks in self._children:
            told = hear(comm, until)
            for values in told.values():
                found.add(values)
            found.missing += [rank for k, rank in enumerate(ranks, 1) if k not in told]
        if self._parent is None:
            return found
        tell(self._parent, found, waits)
        return None


def parent_of(places: list[TreeNode]) -> int:
    """Return which of the ranks may become the parent of others."""
    some = [k for k, place in enumerate(places) if place.joined] or range(len(places))
    return min(some, key=lambda k: (places[k].tree, places[k].rank))


def takes(place: TreeNode, parent: TreeNode) -> bool:
    """Return whether a rank takes a parent."""
    return not place.joined or (not place.has_parent and parent.tree < place.tree)
