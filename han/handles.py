"""``han.Comm`` as a value: handles of communicators that exist, and pickling."""

from __future__ import annotations

from typing import Any, ClassVar

from mpi4py import MPI

from han.communicators import Communicators
from han.intercomm import Intercomm

KINDS: dict[int, type[Any]] = {}  # han's class for each topology; han.comm enters them

# mpi4py's own constants. A program may put a han.Comm in their place; pickle then finds them here.
COMM_WORLD, COMM_SELF = MPI.COMM_WORLD, MPI.COMM_SELF
PREDEFINED = {"COMM_WORLD": COMM_WORLD, "COMM_SELF": COMM_SELF, "COMM_NULL": MPI.COMM_NULL}


class Handles(Communicators):
    """Class methods that return communicators, and pickling, as mpi4py has them.

    The methods with a handle are not collective. If the communicator has no han.Comm yet, the
    first call on the result makes what han needs, and is collective therefore.
    """

    _plain: ClassVar[type[MPI.Intracomm]] = MPI.Intracomm  # mpi4py's class of the same kind
    _constant = False  # it stands for MPI.COMM_WORLD or MPI.COMM_SELF itself

    def free(self) -> None:
        """Call `Free` if this is neither null nor ``MPI.COMM_WORLD`` or ``MPI.COMM_SELF``.

        As in mpi4py, a copy of one of these two becomes a null communicator.
        """
        if not self._constant:
            self._state = None if self in PREDEFINED.values() else self._state
            super().free()

    @classmethod
    def _of(cls, comm: MPI.Comm) -> MPI.Comm:
        """Return a communicator of mpi4py as one of han's; a null communicator as it is."""
        if not comm:
            return comm
        return Intercomm(comm) if comm.Is_inter() else cls._bare(comm)

    @classmethod
    def fromhandle(cls, handle: int) -> MPI.Comm:
        """Return the communicator with an MPI handle."""
        return cls._of(super().fromhandle(handle))

    @classmethod
    def fromint(cls, arg: int, /) -> MPI.Comm:
        """Return the communicator with an integer handle."""
        return cls._of(super().fromint(arg))

    @classmethod
    def f2py(cls, arg: int) -> MPI.Comm:
        """Return the communicator with a Fortran handle."""
        return cls._of(super().f2py(arg))

    @classmethod
    def Get_parent(cls) -> Intercomm:
        """Return a han.Intercomm to the parent processes; null if nothing spawned this one."""
        return Intercomm(super().Get_parent())

    @classmethod
    def Join(cls, fd: int) -> Intercomm:
        """Return a han.Intercomm of two processes that are connected by a socket."""
        return Intercomm(super().Join(fd))

    @classmethod
    def Create_from_group(cls, *arguments: Any, **more: Any) -> Any:
        """Return a han.Comm of a group; collective over it. Arguments are those of mpi4py."""
        return Intercomm.made(super().Create_from_group(*arguments, **more))

    def __reduce__(self) -> tuple[Any, ...]:
        """Raise ValueError unless this is null, MPI.COMM_WORLD or MPI.COMM_SELF."""
        for name, comm in PREDEFINED.items():
            if self == comm:
                return _restored, (type(self), name)
        raise ValueError(
            f"a han.{type(self).__name__} cannot be pickled; only MPI.COMM_WORLD, MPI.COMM_SELF "
            "and null communicators can"
        )


def _restored(kind: type[Handles], name: str) -> MPI.Comm:
    """Return a predefined communicator from its pickle: the program's own object if it is one."""
    current: MPI.Comm = getattr(MPI, name)
    return current if type(current) is kind else kind._bare(kind._plain(PREDEFINED[name]), kind)
