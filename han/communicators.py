"""The methods of ``han.Comm`` that return communicators of han, and pickling."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from han import arguments
from han.attached import has_attribute, in_step, inherit_later
from han.intercomm import Intercomm
from han.objects import Objects
from han.ranks.health import AGREED
from han.ranks.meeting import agree
from han.runtime.inherited import Inherited
from han.runtime.roots import ROOTS

if TYPE_CHECKING:
    from typing_extensions import Self


KINDS: dict[int, type[Any]] = {}  # han's class for each topology; han.comm enters them

# mpi4py's own constants. A program may put a han.Comm in their place; pickle then finds them here.
COMM_WORLD, COMM_SELF = MPI.COMM_WORLD, MPI.COMM_SELF
PREDEFINED = {"COMM_WORLD": COMM_WORLD, "COMM_SELF": COMM_SELF, "COMM_NULL": MPI.COMM_NULL}


class Communicators(Objects):
    """Split, Dup, Create and so on. A new communicator has its parent's configuration.

    The ranks first agree on the arguments. If they are wrong on a rank, it raises the error and
    the others PeerError; arguments that must be the same on all ranks and are not raise
    MismatchError. Then no communicator is made.

    A new communicator is MPI's until its first call that sets it up: a blocking or persistent
    collective. That call waits for all ranks. It raises SharedMemoryError, on all ranks alike, if
    the memory of the communicator cannot be made. A later call tries again. Nonblocking calls
    before it are the MPI library's. These methods do not set it up, unless it is one that `Shrink`
    returned.
    """

    _constant = False  # it stands for MPI.COMM_WORLD or MPI.COMM_SELF itself

    def _set_up(self) -> bool:
        """Set a new communicator up if it has made many calls of objects; return whether it did."""
        config, handle = self._config, self.handle
        if not isinstance(config, Inherited) or self.Get_size() == 1 or not has_attribute(self):
            return False
        if not config.nest.used_often(handle):
            return False
        try:
            return self._han is not None
        except AGREED:
            config.nest.never_set_up(handle)
            return False

    @property
    def _heritage(self) -> Any:
        """What a child takes over; of a communicator that is not used yet, what it has itself."""
        state = self._found()
        return self._config if state is None else state.parts.heritage

    def _agree(self, step: str, read: Callable[[], object]) -> None:
        """Read the arguments of `step` together with all ranks."""
        inherited = self._config if self._found() is None else None
        if isinstance(inherited, Inherited):
            self._check_live()
            comm = MPI.Intracomm(self)
            agree(inherited.meeting(comm), in_step(comm), step, read)
            return
        state = self._han
        state.health.live()
        together, exchange = state.health.together(step), None
        if state.eager.serves and state.parts.topology.whole is not None:
            exchange = partial(self._agreed, state)
        agree(state.health.meeting, together, step, read, exchange)

    @staticmethod
    def _bare(comm: MPI.Comm, other: Any = None) -> Any:
        raise NotImplementedError("han.Comm knows the classes")

    def _child(self, comm: MPI.Comm) -> Any:
        """Return a new communicator of mpi4py as one of han's."""
        return self._unused(self._bare(comm))

    def _unused(self, child: Any) -> Any:
        """Let the first call on `child`, a new han.Comm, set it up."""
        if child:
            child._inherit(self._heritage)
        return child

    def _inter(self, comm: MPI.Intercomm) -> Intercomm:
        return Intercomm(comm, self._heritage)

    # ---- parts and duplicates -----------------------------------------------------------------

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Return a han.Comm of the ranks with the same `color`, in the order of `key`; collective.

        With MPI.UNDEFINED as `color` a rank gets a null communicator.
        """
        self._agree("Split", lambda: arguments.split(color, key))
        return self._child(super().Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Any:
        """Return a han.Comm of the ranks in one place, such as a node; collective."""
        self._agree("Split_type", lambda: arguments.split_type(split_type, key, info))
        return self._child(super().Split_type(split_type, key, info))

    def Dup(self, info: MPI.Info | None = None) -> Self:
        """Return a duplicate; collective."""
        self._agree("Dup", lambda: arguments.info(info))
        return self._unused(super().Dup(info))  # type: ignore[no-any-return]

    def Dup_with_info(self, info: MPI.Info) -> Self:
        """Return a duplicate with hints; collective."""
        self._agree("Dup_with_info", lambda: arguments.info(info))
        return self._unused(super().Dup_with_info(info))  # type: ignore[no-any-return]

    def Clone(self) -> Self:
        """Return a duplicate; collective."""
        self._agree("Clone", lambda: None)
        return self._unused(super().Clone())  # type: ignore[no-any-return]

    def Idup(self, info: MPI.Info | None = None) -> tuple[Self, MPI.Request]:
        """Start a duplicate; return it and MPI's request."""
        self._check_live()
        return self._later(*super().Idup(info))

    def Idup_with_info(self, info: MPI.Info) -> tuple[Self, MPI.Request]:
        """Start a duplicate with hints; see :meth:`Idup`."""
        self._check_live()
        return self._later(*super().Idup_with_info(info))

    def _later(self, child: Any, request: MPI.Request) -> tuple[Any, MPI.Request]:
        """Let the first call set up `child`, whose attributes cannot be set yet."""
        child._config = self._heritage
        inherit_later(child)
        return child, request

    def Create(self, group: MPI.Group) -> Any:
        """Return a han.Comm of a group; collective over this communicator.

        Raises ArgumentError if the group has members outside of this communicator.
        """
        self._agree("Create", lambda: arguments.group("Create", group, self) and None)
        return self._child(super().Create(group))

    def Create_group(self, group: MPI.Group, tag: int = 0) -> Any:
        """Return a han.Comm of a group; collective over the group only.

        Raises ArgumentError if the group has members outside of this communicator.
        """
        arguments.integer(tag)
        ranks = arguments.group("Create_group", group, self)
        state = self._found()
        if state is not None:
            state.health.gather("Create_group", ranks)
        else:
            self._check_live()
        return self._child(super().Create_group(group, tag))

    def Shrink(self) -> Any:
        """Return a han.Comm of the ranks that have not failed; collective over these ranks.

        It has this communicator's configuration and takes over nothing else.
        """
        child, mine = self._bare(super().Shrink()), self._heritage
        ROOTS.forget()
        child._config = mine.config if isinstance(mine, Inherited) else mine
        return child

    # ---- topologies ---------------------------------------------------------------------------

    def Create_cart(self, dims: Any, periods: Any = None, reorder: bool = False) -> Any:
        """Return a han.Cartcomm, a grid of ranks; collective.

        A rank outside of the grid gets a null communicator.
        """
        self._agree("Create_cart", lambda: arguments.cart(dims, periods, reorder))
        return self._child(super().Create_cart(dims, periods, reorder))

    def Create_graph(self, index: Any, edges: Any, reorder: bool = False) -> Any:
        """Return a han.Graphcomm; collective. A rank outside gets a null communicator."""
        self._agree("Create_graph", lambda: arguments.graph(index, edges, reorder))
        return self._child(super().Create_graph(index, edges, reorder))

    def Create_dist_graph_adjacent(
        self,
        sources: Any,
        destinations: Any,
        sourceweights: Any = None,
        destweights: Any = None,
        info: MPI.Info = MPI.INFO_NULL,
        reorder: bool = False,
    ) -> Any:
        """Return a han.Distgraphcomm; each rank passes its own neighbours; collective."""
        weights = sourceweights, destweights
        step, size = "Create_dist_graph_adjacent", self.Get_size()
        self._agree(step, lambda: arguments.adjacent(sources, destinations, weights, info, size))
        made = super().Create_dist_graph_adjacent(
            sources, destinations, sourceweights, destweights, info, reorder
        )
        return self._child(made)

    def Create_dist_graph(
        self,
        sources: Any,
        degrees: Any,
        destinations: Any,
        weights: Any = None,
        info: MPI.Info = MPI.INFO_NULL,
        reorder: bool = False,
    ) -> Any:
        """Return a han.Distgraphcomm; each rank passes a part of the graph; collective."""
        graph, size = (sources, degrees, destinations, weights), self.Get_size()
        self._agree("Create_dist_graph", lambda: arguments.dist_graph(*graph, info, size))
        return self._child(super().Create_dist_graph(*graph, info, reorder))

    # ---- intercommunicators -------------------------------------------------------------------

    def Create_intercomm(
        self, local_leader: int, peer_comm: MPI.Intracomm, remote_leader: int, tag: int = 0
    ) -> Intercomm:
        """Return a han.Intercomm; collective over this communicator and the remote one."""
        given, size = (local_leader, peer_comm, remote_leader, tag), self.Get_size()
        self._agree("Create_intercomm", lambda: arguments.intercomm(*given, size))
        return self._inter(super().Create_intercomm(*given))

    def Spawn(self, *arguments: Any, **more: Any) -> Intercomm:
        """Start processes; return a han.Intercomm; collective. Arguments are those of mpi4py."""
        self._agree("Spawn", lambda: None)
        return self._inter(super().Spawn(*arguments, **more))

    def Spawn_multiple(self, *arguments: Any, **more: Any) -> Intercomm:
        """Start processes of several programs; see :meth:`Spawn`."""
        self._agree("Spawn_multiple", lambda: None)
        return self._inter(super().Spawn_multiple(*arguments, **more))

    def Accept(self, *arguments: Any, **more: Any) -> Intercomm:
        """Accept a connection; return a han.Intercomm; collective. Arguments are mpi4py's."""
        self._agree("Accept", lambda: None)
        return self._inter(super().Accept(*arguments, **more))

    def Connect(self, *arguments: Any, **more: Any) -> Intercomm:
        """Connect to a port; return a han.Intercomm; collective. Arguments are mpi4py's."""
        self._agree("Connect", lambda: None)
        return self._inter(super().Connect(*arguments, **more))

    # ---- communicators that exist -------------------------------------------------------------
    # The methods with a handle are not collective. If the communicator has no han.Comm yet, the
    # first call on the result makes what han needs, and is collective therefore.

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


def _restored(kind: type[Communicators], name: str) -> MPI.Comm:
    """Return a predefined communicator from its pickle: the program's own object if it is one."""
    current: MPI.Comm = getattr(MPI, name)
    return current if type(current) is kind else kind._bare(kind._plain(PREDEFINED[name]), kind)
