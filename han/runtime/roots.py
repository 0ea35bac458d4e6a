"""Communicators that later ones of the program may descend from, although it made them apart.

A communicator without a parent is a root. What it knows stays when it is freed: its mail, where
its ranks and their arenas are, and the nest. A later communicator of some of its ranks, with the
same settings, takes the root for its parent. The communicator of its mail stays until MPI is
finalized.
"""

from __future__ import annotations

import contextlib
import os
import threading
from functools import partial

from mpi4py import MPI

from han.ranks.discover import world_ranks
from han.ranks.mail import Mail
from han.runtime.given import Given
from han.runtime.inherited import Inherited
from han.runtime.measured import MOST_ROOTS
from han.runtime.resting import do_all


class Roots:
    """The roots of this process, and the `room` for more, in all of its life.

    Later communicators find those that are `kept`. `made` are all but those that a larger one has
    replaced: the same on all ranks of a root.
    """

    def __init__(self, room: int = MOST_ROOTS) -> None:
        self._lock = threading.Lock()  # threads may make communicators at the same time
        self.kept: list[Inherited] = []
        self.made: list[Inherited] = []
        self.room = room

    def takes(self, comm: MPI.Intracomm) -> bool:
        """Return whether this rank can keep a new root; its ranks must be known by their number."""
        known = MPI.UNDEFINED not in world_ranks(comm)
        return self.room > 0 and known and _same_session(comm, MPI.COMM_WORLD)

    def add(self, root: Inherited) -> None:
        """Keep a root, which all its ranks can keep, in place of those whose ranks it has."""
        with self._lock:
            before = [one for one in self.made if _replaces(root, one)]
            self.made = [*(one for one in self.made if one not in before), root]
            self.kept = [*(one for one in self.kept if one not in before), root]
            self.room -= 1
        do_all(partial(_close_if_freed, one) for one in before)

    def have(self, mail: Mail) -> bool:
        """Return whether a mail is that of a root, which stays; the same on all ranks."""
        return any(root.mail is mail for root in self.made)

    def leave_out(self, root: Inherited) -> None:
        """Find a root no more: other ranks of a communicator have another one, or none."""
        with self._lock:
            self.kept = [one for one in self.kept if one is not root]
        _close_if_freed(root)

    def find(self, comm: MPI.Intracomm, given: Given) -> Inherited | None:
        """Return the root that a new communicator descends from; None if this rank has none.

        Its ranks find the same one, or tell each other that they do not.
        """
        kept = sorted(self.kept, key=lambda root: root.token)
        return next((root for root in kept if _fits(root, comm, given)), None)

    def forget(self) -> None:
        """Let no communicator descend from these roots, as a process of theirs may have failed."""
        do_all(root.nest.close for root in self.kept)


def _close_if_freed(root: Inherited) -> None:
    if root.parent.failed is not None:
        root.nest.close()


def _replaces(root: Inherited, one: Inherited) -> bool:
    return _alike(root.given, one.given) and {*one.world} <= {*root.world}


def _alike(one: Given, other: Given) -> bool:
    """Return whether settings are the same, and waits, which the number does not stand for."""
    return one.number == other.number and one.config == other.config


def _fits(root: Inherited, comm: MPI.Intracomm, given: Given) -> bool:
    own = root.mail.comm
    if not root.keeps or not _alike(root.given, given) or _has_failed(own):
        return False
    if not _same_session(own, comm):
        return False
    ranks = root.places(comm)
    with contextlib.suppress(OSError):
        mine = None if ranks is None else root.facts[ranks[comm.Get_rank()]]
        return mine is not None and mine.cpus == os.sched_getaffinity(0)
    return False


def _same_session(own: MPI.Intracomm, comm: MPI.Intracomm) -> bool:
    """Return whether communicators are of one session, as far as the MPI library tells.

    `own` is han's, and reports errors.
    """
    try:
        MPI.Comm.Compare(own, comm)
    except MPI.Exception:
        return False
    return True


def _has_failed(comm: MPI.Intracomm) -> bool:
    """Return whether this rank knows that a process of a communicator has failed."""
    with contextlib.suppress(AttributeError, NotImplementedError):  # no fault tolerance
        failed = comm.Get_failed()
        some = bool(failed.Get_size())
        failed.Free()
        return some or comm.Is_revoked()
    return False


ROOTS = Roots()
