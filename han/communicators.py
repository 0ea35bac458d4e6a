"""The methods of ``han.Comm`` that make communicators. Each one returns a han.Comm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from han.collectives import Collectives
from han.common.errors import ArgumentError
from han.message.unlocked import ranks_of
from han.ranks.health import AGREED
from han.runtime.state import State

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Inherited:
    """The state of a parent communicator, whose configuration a child takes over unchanged."""

    parent: State


class Communicators(Collectives):
    """Split, Dup, Create and so on. A new communicator has its parent's configuration.

    Except for Idup, the methods raise SharedMemoryError, on all ranks alike, if the memory of the
    new communicator cannot be made. Then the new communicator is freed.
    """

    _origin: tuple[object, Any] = (None, None)  # what Idup's request needs; the parent

    def _children(self, step: str, make: Callable[[], MPI.Comm]) -> Self:
        """Make a communicator together with all ranks, and return its han.Comm."""
        self._han.health.gather(step)
        return self._child(make())

    def _child(self, comm: MPI.Comm) -> Self:
        """Return the han.Comm of a new communicator, with this one's configuration."""
        if comm == MPI.COMM_NULL:
            return type(self)()
        plain = MPI.Intracomm(comm)
        try:
            return type(self)(plain, Inherited(self._han))  # type: ignore[call-arg]
        except AGREED:
            plain.Free()
            raise

    def Split(self, color: int = 0, key: int = 0) -> Self:
        """Return a han.Comm of the ranks with the same `color`, in the order of `key`; collective.

        With MPI.UNDEFINED as `color` a rank gets a null communicator.
        """
        return self._children("Split", lambda: MPI.Intracomm(self).Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Self:
        """Return a han.Comm of the ranks in one place, such as a node; collective."""
        plain = MPI.Intracomm(self)
        return self._children("Split_type", lambda: plain.Split_type(split_type, key, info))

    def Dup(self, info: MPI.Info | None = None) -> Self:
        """Return a duplicate; collective."""
        return self._children("Dup", lambda: MPI.Intracomm(self).Dup(info))

    def Dup_with_info(self, info: MPI.Info) -> Self:
        """Return a duplicate with hints; collective."""
        return self._children("Dup_with_info", lambda: MPI.Intracomm(self).Dup_with_info(info))

    def Clone(self) -> Self:
        """Return a duplicate without copies of attributes; collective."""
        return self._children("Clone", lambda: MPI.Intracomm(self).Clone())

    def Idup(self, info: MPI.Info | None = None) -> tuple[Self, MPI.Request]:
        """Start a duplicate; return it and MPI's request.

        The first call on the duplicate makes what han needs, and is collective therefore.
        """
        self._han.health.live()
        return self._later(*MPI.Intracomm(self).Idup(info))

    def Idup_with_info(self, info: MPI.Info) -> tuple[Self, MPI.Request]:
        """Start a duplicate with hints; see :meth:`Idup`."""
        self._han.health.live()
        return self._later(*MPI.Intracomm(self).Idup_with_info(info))

    def _later(self, comm: MPI.Intracomm, request: MPI.Request) -> tuple[Self, MPI.Request]:
        """Return a han.Comm of a communicator under construction, which it keeps alive."""
        child = super().__new__(type(self), comm)
        child._state, child._origin = None, (comm, Inherited(self._han))
        return child, request

    def Create(self, group: MPI.Group) -> Self:
        """Return a han.Comm of a group; collective over this communicator."""
        return self._children("Create", lambda: MPI.Intracomm(self).Create(group))

    def Create_group(self, group: MPI.Group, tag: int = 0) -> Self:
        """Return a han.Comm of a group; collective over the group only.

        Raises ArgumentError if the group has members outside of this communicator.
        """
        ranks = ranks_of(group, self)
        if MPI.UNDEFINED in ranks:
            raise ArgumentError("Create_group: the group has members outside of this communicator")
        self._han.health.gather("Create_group", ranks)
        return self._child(MPI.Intracomm(self).Create_group(group, tag))
