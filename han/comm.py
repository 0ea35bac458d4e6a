"""``han.Comm``: an intra-communicator of mpi4py with han's collectives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from han import arguments
from han._native import by_mpi
from han.attached import PERMANENT, attach, drop, kept, revoke
from han.common.errors import ArgumentTypeError, HanError, RevokedError
from han.communicators import KINDS, Communicators
from han.intercomm import Intercomm
from han.memory.arena import as_shared, sharing
from han.memory.windows import Windows
from han.message.unlocked import set_handle
from han.neighbours import NeighbourCollectives
from han.runtime.inherited import Inherited
from han.runtime.plans import NOTHING_KEPT, CacheInfo
from han.runtime.state import State

if TYPE_CHECKING:
    import numpy.typing as npt

    from han.tasks.signature import Signature
    from han.tasks.task_graph import TaskGraph
    from han.trace.trace import Trace
    from han.tuning.explanation import Explanation


@contextlib.contextmanager
def shared_arrays(comm: Comm | None = None) -> Iterator[None]:
    """Make every NumPy array that is created inside the ``with`` block a shared array.

    The ranks of the node can map shared arrays, so collectives can read them without a copy. The
    block applies to the current thread and context, and to arrays that own their data. Not
    collective.

    Raises MemoryError if the arena has no room, and RevokedError if `comm` is given and revoked.
    """
    if comm is not None:
        comm._check_live()
    with sharing():
        yield


class Comm(Communicators):
    """An intra-communicator with hierarchical, pipelined collectives.

    Making one is collective over `comm`. It stands for `comm` and is no duplicate. A second
    han.Comm of the same communicator uses the state of the first one.

    `config` is the path of a YAML file, the name of a ready configuration, or a mapping. None
    takes ``HAN_CONFIG``, or without it two levels, node and network. Methods that han does not
    accelerate are those of mpi4py.

    Raises ConfigError and SharedMemoryError, on all ranks alike.

    Source: HAN, section III.
    """

    def __new__(cls, comm: MPI.Comm | None = None, config: Any = None) -> Comm:
        """Return a han.Comm of `comm`, or a null communicator for None.

        A communicator with a topology becomes a han.Cartcomm, han.Graphcomm or han.Distgraphcomm.

        Raises ArgumentTypeError if `comm` is no intra-communicator, ConfigError if it has a
        han.Comm with another configuration.
        """
        if comm is not None and (not isinstance(comm, MPI.Comm) or (comm and comm.Is_inter())):
            raise ArgumentTypeError(f"han.Comm takes an MPI.Intracomm, not {type(comm).__name__}")
        if cls is Comm and comm:
            self = cls._bare(comm, KINDS.get(comm.Get_topology()))
        else:
            self = cls._plain.__new__(cls, comm)
        self._state = self._attached(config) if comm else None
        self._constant = any(comm is each for each in PERMANENT)
        return self

    # ---- state --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        name, state = f"han.{type(self).__name__}", self._state
        if state is None:
            return f"<{name} {'MPI.COMM_NULL' if self == MPI.COMM_NULL else 'not used yet'}>"
        levels = " < ".join(state.parts.topology.names)
        failed = ", failed" if state.closed or state.health.failed else ""
        return f"<{name} rank {state.rank} of {state.parts.topology.describe()}: {levels}{failed}>"

    def _attached(self, config: Any) -> State:
        """Return the State of this communicator; make it if there is none (collective)."""
        return by_mpi(attach, MPI.Intracomm(self), config, _count)  # type: ignore[no-any-return]

    @staticmethod
    def _bare(comm: MPI.Comm, other: type[Comm] | None = None) -> Comm:
        """Return a communicator of mpi4py as the same kind of han.Comm; not collective.

        Its first call sets it up if it has no State. `other` is the class for one that mpi4py
        regards as a communicator without topology.
        """
        kinds = (kind for kind in KINDS.values() if isinstance(comm, kind._plain))
        kind = next(kinds, other or Comm)
        self: Comm = kind._plain.__new__(kind)
        # Topologies are not tested: Open MPI reports that of a graph's parent for some graphs.
        set_handle(self, comm)
        found = kept(comm) if comm else None
        if isinstance(found, Inherited):
            self._config = found
        self._state = found if isinstance(found, State) else None
        return self

    # ---- shared arrays ----------------------------------------------------------------------

    def empty(self, shape: Any, dtype: Any = float, order: Any = "C") -> npt.NDArray[Any]:
        """Return an uninitialised shared array; arguments are those of ``numpy.empty``.

        Collectives of 64 KiB and more read shared arrays without a copy, if the buffers of all
        ranks are shared. Unless the call is persistent, all ranks must share memory. Not
        collective. The array may outlive the communicator.

        Raises MemoryError if the arena has no room, RevokedError if the communicator is revoked.
        """
        with shared_arrays(self):
            return np.empty(shape, dtype, order)

    def zeros(self, shape: Any, dtype: Any = float, order: Any = "C") -> npt.NDArray[Any]:
        """Return a shared array of zeros; see :meth:`empty`."""
        with shared_arrays(self):
            return np.zeros(shape, dtype, order)

    def full(
        self, shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C"
    ) -> npt.NDArray[Any]:
        """Return a shared array filled with one value; see :meth:`empty`."""
        with shared_arrays(self):
            return np.full(shape, fill_value, dtype, order)

    def asarray(self, a: Any, dtype: Any = None) -> npt.NDArray[Any]:
        """Return `a` if it is a contiguous shared array of type `dtype`, else such a copy of it.

        Raises as :meth:`empty` does.
        """
        self._check_live()
        return as_shared(a, dtype)

    def attach_window(self, win: MPI.Win) -> None:
        """Let persistent collectives read arrays in a shared window of MPI without a copy.

        Collective. The ranks of a node pass the same window. It was made by
        ``MPI.Win.Allocate_shared`` on this communicator or on another one that contains all ranks
        of the node. It stays attached until it is detached or freed. A request with a buffer in a
        window that was freed raises ArgumentError in ``Start``.

        Raises ArgumentError, on all ranks alike, for other windows.

        Source: HAN, section III (SOLO).
        """
        self._han.of_window("attach_window", Windows.attach, win)

    def detach_window(self, win: MPI.Win) -> None:
        """Detach a window; collective. Requests that were made before still read from it.

        Raises ArgumentError, on all ranks alike, if it is not attached.
        """
        self._han.of_window("detach_window", Windows.detach, win)

    def Free(self) -> None:
        """Wait for all collectives; then free the communicator and all that han holds for it.

        Collective: it may wait for the other ranks, as long as a step of set-up does.

        With HAN_TRACE the clocks are compared once more. Rank 0 waits at most 5 s for the other
        ranks, and they wait at most 10 s for rank 0. A rank that is later takes no part in the
        comparison: its times are converted with the comparison at set-up only.

        Of a han.Comm of ``MPI.COMM_WORLD`` or ``MPI.COMM_SELF``, which MPI does not free, only
        han's part is freed.
        """
        permanent = self in PERMANENT
        state = self._state
        if not (permanent and state is not None and state.closed):
            self._end(None if permanent else super().Free)

    def Disconnect(self) -> None:
        """Wait for all collectives and for MPI's communication; then free the communicator."""
        self._end(super().Disconnect)

    def Revoke(self) -> None:
        """Make the communicator unusable on all ranks, in MPI's calls and in han's; not collective.

        Waiting ranks raise PeerError; in the call that sets the communicator up, MPI's own error.
        ``Shrink`` returns a communicator of the ranks that are left.
        """
        super().Revoke()
        revoke(self, RevokedError("Revoke was called"))

    def _end(self, end: Callable[[], None] | None) -> None:
        """Release all that han holds; `end` frees the communicator itself."""
        state = self._found()
        try:
            if state is not None and not state.closed:
                state.parts.engines.drain()
                state.parts.tracing.end()
        finally:
            self._release(state, end)

    def _release(self, state: State | None, end: Callable[[], None] | None) -> None:
        try:
            if state is not None:
                state.close()
        finally:
            if state is not None:
                # MPI keeps a freed communicator, with its attributes, while requests refer to it.
                drop(self)
            if end is not None:
                busy = self._lost is not None or (state is not None and state.busy)
                self._state = None
                (self._forget if busy else end)()

    def _forget(self) -> None:
        """Become null; MPI keeps the communicator, for a call on it never completes."""
        set_handle(self, MPI.COMM_NULL)

    # ---- inspection ---------------------------------------------------------------------------

    def explain(
        self,
        collective: str,
        nbytes: int | str | None = None,
        op: MPI.Op = MPI.SUM,
        dtype: Any = "f8",
        root: int = 0,
        shared: bool = False,
        device: bool = False,
    ) -> Explanation:
        """Return what a call of `nbytes` bytes would run, and why; not collective.

        `collective` is the name of a call in lower case. For ``"allgatherv"`` and
        ``"reduce_scatter_block"`` the answer is that of ``"allgather"`` and ``"reduce_scatter"``,
        which rules name too, and for ``"neighbor_alltoall"`` and its kin that of ``"alltoallv"``
        with these neighbours. `nbytes` is a number or a text such as ``"4MiB"``. For calls by
        blocks it is the size of one block; for a barrier it may be left out.

        With `shared` the buffers of all ranks are taken to be shared arrays or, for a persistent
        call, arrays in attached windows. If a call that is not persistent can read shared arrays
        in place, the last line of the answer always says so. With `device` the buffers are in
        memory of a device.

        Returns an object that prints as text and holds the choice, the rule and the TaskGraph.
        Raises ArgumentError for a call that cannot be made, HanError on a communicator that is not
        set up yet, or before the first call with neighbours if ranks tell each other in it.
        """
        from han.explain import explain
        from han.model.collectives import expect_size

        expect_size(collective, nbytes)
        state = self._found()
        if state is None:
            self._check_live()
        signature = self._signature_of(collective, nbytes or 0, op, dtype, root)
        if state is None:
            raise HanError(
                "explain: this communicator is not set up yet, so nothing is decided; its first "
                "blocking collective sets it up: call Barrier() on all ranks before"
            )
        return explain(state, signature, shared, device)

    def _signature_of(self, collective: str, *details: Any) -> Signature:
        """Return the Signature of a call, for `explain`."""
        from han.explain import make_signature

        return make_signature(collective, *details)

    def cache_info(self) -> CacheInfo:
        """Return statistics of this rank's calls and plans; not collective.

        The result prints as text; its fields are those of
        :class:`han.runtime.plans.CacheInfo`.
        """
        state = self._found()
        if state is None:
            self._check_live()
            return NOTHING_KEPT
        return state.parts.plans.info()

    def trace(self, events: int = 1 << 20, align: bool = False) -> Trace:
        """Return a Trace, which records when each task begins and ends on this rank.

        ``with comm.trace() as t: ...`` is not collective, but on a communicator that is not set up
        yet, this method is. Afterwards ``t.times`` holds this rank's
        tasks by its own clock, in seconds. ``t.timeline()`` and ``t.save(folder)`` are collective
        and convert the times of all ranks to rank 0's clock. With `align` entering is collective
        too: the clocks are compared at the beginning and at the end, so that the drift of a long
        run is corrected. At most `events` tasks of each engine are recorded; ``t.dropped`` counts
        the others.

        Raises ArgumentError if `events` is less than 1.
        """
        from han.trace.trace import Trace

        state = self._han
        state.health.live()
        return Trace(state.parts.tracing, events, align)

    def plan(
        self,
        collective: str,
        nbytes: int | str = 0,
        op: MPI.Op = MPI.SUM,
        dtype: Any = "f8",
        root: int = 0,
    ) -> TaskGraph:
        """Return the TaskGraph (a networkx.DiGraph) of a call; not collective.

        The arguments are those of :meth:`explain`.
        """
        return self.explain(collective, nbytes, op, dtype, root).graph


def _count(comm: MPI.Intracomm, output: str) -> None:
    from han.statistics import count_calls

    count_calls(comm, output)


class Topocomm(NeighbourCollectives, Comm):
    """A han.Comm with a topology."""

    _plain = MPI.Topocomm
    __new__ = Comm.__new__  # type: ignore[assignment]  # MPI.Topocomm's would come first


class Cartcomm(MPI.Cartcomm, Topocomm):
    """A han.Comm with a Cartesian topology."""

    _plain = MPI.Cartcomm
    __new__ = Comm.__new__  # type: ignore[assignment]

    def Sub(self, remain_dims: Any) -> Cartcomm:
        """Return a han.Cartcomm of the ranks in one grid of fewer dimensions; collective."""
        self._agree("Sub", lambda: arguments.remaining(remain_dims, self.Get_dim()))
        return self._child(super().Sub(remain_dims))  # type: ignore[no-any-return]


class Graphcomm(MPI.Graphcomm, Topocomm):
    """A han.Comm with a graph topology."""

    _plain = MPI.Graphcomm
    __new__ = Comm.__new__  # type: ignore[assignment]


class Distgraphcomm(MPI.Distgraphcomm, Topocomm):
    """A han.Comm with a distributed graph topology."""

    _plain = MPI.Distgraphcomm
    __new__ = Comm.__new__  # type: ignore[assignment]


KINDS.update({MPI.CART: Cartcomm, MPI.GRAPH: Graphcomm, MPI.DIST_GRAPH: Distgraphcomm})
Intercomm.merged = Comm
