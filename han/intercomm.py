"""``han.Intercomm``: an intercommunicator of mpi4py whose ``Merge`` returns a ``han.Comm``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from mpi4py import MPI

from han.runtime.inherited import Inherited

if TYPE_CHECKING:
    from typing_extensions import Self


class Intercomm(MPI.Intercomm):
    """An intercommunicator. Its collectives are those of the MPI library.

    Making one is not collective. `config` is the configuration of communicators that ``Merge``
    makes; see :class:`han.Comm`. A han.Comm passes its own on to its intercommunicators.
    """

    merged: ClassVar[Any]  # han.Comm; its module sets this
    _config: Any = None

    def __new__(cls, comm: MPI.Comm | None = None, config: Any = None) -> Self:
        """Return a han.Intercomm of `comm`, or a null communicator for None.

        Raises TypeError if `comm` is no intercommunicator.
        """
        self = super().__new__(cls, comm)
        self._config = config
        return self

    def __repr__(self) -> str:
        if not self:
            return f"<han.{type(self).__name__} MPI.COMM_NULL>"
        sizes = f"{self.Get_size()} and {self.Get_remote_size()} ranks"
        return f"<han.{type(self).__name__} rank {self.Get_rank()}, {sizes}>"

    def Merge(self, high: bool = False) -> Any:
        """Return a han.Comm of both groups; the group that passes `high` comes last; collective.

        Its first call raises ConfigError, on all ranks alike, if the groups have different
        configurations.
        """
        return self.made(super().Merge(high), self._config)

    @classmethod
    def made(cls, comm: MPI.Intracomm, config: Any = None) -> Any:
        """Return a new communicator as a han.Comm, which its first call sets up."""
        made = cls.merged._bare(comm)
        if isinstance(config, Inherited):
            made._inherit(config)
        else:
            made._config = config
        return made

    def _other(self, comm: MPI.Comm) -> Intercomm:
        """Return a communicator that was made of this one, with the same configuration."""
        return Intercomm(comm, self._config)

    def _same(self, comm: Self) -> Self:
        comm._config = self._config
        return comm

    def Dup(self, info: MPI.Info | None = None) -> Self:
        """Return a duplicate; collective."""
        return self._same(super().Dup(info))

    def Dup_with_info(self, info: MPI.Info) -> Self:
        """Return a duplicate with hints; collective."""
        return self._same(super().Dup_with_info(info))

    def Clone(self) -> Self:
        """Return a duplicate; collective."""
        return self._same(super().Clone())

    def Idup(self, info: MPI.Info | None = None) -> tuple[Self, MPI.Request]:
        """Start a duplicate; return it and MPI's request."""
        comm, request = super().Idup(info)
        return self._same(comm), request

    def Idup_with_info(self, info: MPI.Info) -> tuple[Self, MPI.Request]:
        """Start a duplicate with hints; return it and MPI's request."""
        comm, request = super().Idup_with_info(info)
        return self._same(comm), request

    def Create(self, group: MPI.Group) -> Intercomm:
        """Return a han.Intercomm of a group of each side; collective."""
        return self._other(super().Create(group))

    def Split(self, color: int = 0, key: int = 0) -> Intercomm:
        """Return a han.Intercomm of the ranks with the same `color`; collective."""
        return self._other(super().Split(color, key))

    def Split_type(
        self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL
    ) -> Intercomm:
        """Return a han.Intercomm of the ranks in one place; collective."""
        return self._other(super().Split_type(split_type, key, info))

    def Shrink(self) -> Intercomm:
        """Return a han.Intercomm of the ranks that have not failed."""
        return self._other(super().Shrink())

    @classmethod
    def Create_from_groups(cls, *arguments: Any, **more: Any) -> Intercomm:  # type: ignore[override]
        """Return a han.Intercomm of two groups; collective. Arguments are those of mpi4py."""
        return cls(super().Create_from_groups(*arguments, **more))
