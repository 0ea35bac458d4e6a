"""The methods of ``han.Comm`` that make communicators: each returns a han.Comm."""

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
    """A parent's configuration, to be taken as it is."""

    parent: State


class Communicators(Collectives):
    """Split, Dup, Create and their kin. A new communicator has its parent's configuration."""

    _origin: tuple[object, Any] = (None, None)  # what Idup's request is about, and the parent

    def _children(self, step: str, make: Callable[[], MPI.Comm]) -> Self:
        """Make a communicator, together with all ranks, and a han.Comm of it."""
        self._han.health.gather(step)
        return self._child(make())

    def _child(self, comm: MPI.Comm) -> Self:
        """Make a han.Comm of a new communicator, with this one's configuration."""
        if comm == MPI.COMM_NULL:
            return type(self)()
        plain = MPI.Intracomm(comm)
        try:
            return type(self)(plain, Inherited(self._han))  # type: ignore[call-arg]
        except AGREED:
            plain.Free()
            raise

    def Split(self, color: int = 0, key: int = 0) -> Self:
        """Split into a han.Comm for each color."""
        return self._children("Split", lambda: MPI.Intracomm(self).Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Self:
        """Split by kind of place into han.Comms."""
        plain = MPI.Intracomm(self)
        return self._children("Split_type", lambda: plain.Split_type(split_type, key, info))

    def Dup(self, info: MPI.Info | None = None) -> Self:
        """Duplicate."""
        return self._children("Dup", lambda: MPI.Intracomm(self).Dup(info))

    def Dup_with_info(self, info: MPI.Info) -> Self:
        """Duplicate, with hints."""
        return self._children("Dup_with_info", lambda: MPI.Intracomm(self).Dup_with_info(info))

    def Clone(self) -> Self:
        """Duplicate, without attributes' copies."""
        return self._children("Clone", lambda: MPI.Intracomm(self).Clone())

    def Idup(self, info: MPI.Info | None = None) -> tuple[Self, MPI.Request]:
        """Start to duplicate; what han needs is made in the first call on the new han.Comm."""
        self._han.health.live()
        return self._later(*MPI.Intracomm(self).Idup(info))

    def Idup_with_info(self, info: MPI.Info) -> tuple[Self, MPI.Request]:
        """Start to duplicate, with hints; see :meth:`Idup`."""
        self._han.health.live()
        return self._later(*MPI.Intracomm(self).Idup_with_info(info))

    def _later(self, comm: MPI.Intracomm, request: MPI.Request) -> tuple[Self, MPI.Request]:
        """Wrap a communicator that is still being made; it keeps what the request is about."""
        child = super().__new__(type(self), comm)
        child._state, child._origin = None, (comm, Inherited(self._han))
        return child, request

    def Create(self, group: MPI.Group) -> Self:
        """Make a han.Comm of a group; collective over this communicator."""
        return self._children("Create", lambda: MPI.Intracomm(self).Create(group))

    def Create_group(self, group: MPI.Group, tag: int = 0) -> Self:
        """Make a han.Comm of a group; collective over the group."""
        ranks = ranks_of(group, self)
        if MPI.UNDEFINED in ranks:
            raise ArgumentError("Create_group: the group has members outside of this communicator")
        self._han.health.gather("Create_group", ranks)
        return self._child(MPI.Intracomm(self).Create_group(group, tag))
