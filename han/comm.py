"""``han.Comm``: an mpi4py communicator whose collectives are han's."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from han.comm_blocks import BlockCollectives
from han.common.errors import ArgumentError, ArgumentTypeError, ConfigError, RevokedError
from han.config.environment import warn_of_unknown
from han.memory.arena import as_shared, shared_arrays
from han.message import message
from han.message.unlocked import ranks_of
from han.runtime.request import Request
from han.runtime.revocable import AGREED
from han.runtime.state import State

if TYPE_CHECKING:
    import numpy.typing as npt

    from han.explain import Explanation
    from han.runtime.plans import CacheInfo
    from han.tasks.graph import TaskGraph
    from han.trace.trace import Trace

_keyval: list[int] = []  # MPI's key for a communicator's State, made when first needed


def _key() -> int:
    if not _keyval:
        _keyval.append(MPI.Comm.Create_keyval(delete_fn=_delete))
    return _keyval[0]


def _delete(comm: MPI.Comm, keyval: int, state: State) -> None:
    if not MPI.Is_finalized():
        state.close(free=comm not in (MPI.COMM_WORLD, MPI.COMM_SELF))


class Comm(BlockCollectives):
    """An intra-communicator with hierarchical, pipelined collectives.

    Making one is collective over `comm`, which it stands for (it is no duplicate); making it
    twice finds the first one's state. `config` is a YAML file, the name of a ready
    configuration or a mapping; None asks ``HAN_CONFIG``, then takes two levels, node and
    network. Methods that han does not accelerate are mpi4py's own.

    Raises ConfigError and SharedMemoryError, on all ranks alike.
    """

    _origin: tuple[object, Any] = (None, None)

    def __new__(cls, comm: MPI.Comm | None = None, config: Any = None) -> Comm:
        """Stand for `comm`; None makes a null communicator."""
        if comm is not None and not isinstance(comm, MPI.Intracomm):
            raise ArgumentTypeError(f"han.Comm takes an MPI.Intracomm, not {type(comm).__name__}")
        self = super().__new__(cls, comm)
        self._state = _attach(MPI.Intracomm(comm), config) if comm else None
        return self

    # ---- what every method needs ------------------------------------------------------------

    def __repr__(self) -> str:
        name, state = f"han.{type(self).__name__}", self._state
        if state is None:
            return f"<{name} {'MPI.COMM_NULL' if self == MPI.COMM_NULL else 'not used yet'}>"
        levels = " < ".join(state.topology.names)
        failed = ", failed" if state.failed else ""
        return f"<{name} rank {state.rank} of {state.topology.describe()}: {levels}{failed}>"

    @property
    def _han(self) -> State:
        if self._state is None and self == MPI.COMM_NULL:
            raise RevokedError("this han.Comm is MPI.COMM_NULL: it was freed, or never made")
        if self._state is None:  # made by Idup or another method of MPI's
            self._state = _attach(MPI.Intracomm(self), self._origin[1])
        return self._state

    # ---- blocking ---------------------------------------------------------------------------

    def Barrier(self) -> None:
        """Wait until all ranks have called it."""
        state = self._state or self._han
        if not state.calls.barrier():
            state.run(message.barrier)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Broadcast `buf` from `root` to all ranks."""
        state = self._state or self._han
        if not state.calls.bcast(buf, root):
            state.run(message.bcast, buf, root)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> None:
        """Reduce to `root`; `recvbuf` counts there only."""
        state = self._state or self._han
        if not state.calls.reduce(sendbuf, recvbuf, op, root, state.rank == root):
            state.run(message.reduce, sendbuf, recvbuf, op, root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """Reduce to all ranks."""
        state = self._state or self._han
        if not state.calls.allreduce(sendbuf, recvbuf, op):
            state.run(message.allreduce, sendbuf, recvbuf, op)

    # ---- nonblocking ------------------------------------------------------------------------

    def Ibarrier(self) -> Request:  # type: ignore[override]
        """Start a barrier."""
        state = self._han
        return state.calls.ibarrier() or state.start(message.barrier)

    def Ibcast(self, buf: Any, root: int = 0) -> Request:  # type: ignore[override]
        """Start a broadcast."""
        state = self._han
        return state.calls.ibcast(buf, root) or state.start(message.bcast, buf, root)

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> Request:  # type: ignore[override]
        """Start a reduce."""
        state, at_root = self._han, self._han.rank == root
        started = state.calls.ireduce(sendbuf, recvbuf, op, root, at_root)
        return started or state.start(message.reduce, sendbuf, recvbuf, op, root)

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Request:  # type: ignore[override]
        """Start an allreduce."""
        state = self._han
        started = state.calls.iallreduce(sendbuf, recvbuf, op)
        return started or state.start(message.allreduce, sendbuf, recvbuf, op)

    # ---- persistent -------------------------------------------------------------------------

    def Barrier_init(self, info: MPI.Info = MPI.INFO_NULL) -> Request:  # type: ignore[override]
        """Make a barrier that can be started again and again."""
        return self._han.init(message.barrier)

    def Bcast_init(self, buf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Request:  # type: ignore[override]
        """Make a broadcast that can be started again and again."""
        return self._han.init(message.bcast, buf, root)

    def Reduce_init(  # type: ignore[override]
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
    ) -> Request:
        """Make a reduce that can be started again and again."""
        return self._han.init(message.reduce, sendbuf, recvbuf, op, root)

    def Allreduce_init(  # type: ignore[override]
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
    ) -> Request:
        """Make an allreduce that can be started again and again."""
        return self._han.init(message.allreduce, sendbuf, recvbuf, op)

    # ---- shared arrays ----------------------------------------------------------------------

    def empty(self, shape: Any, dtype: Any = float, order: Any = "C") -> npt.NDArray[Any]:
        """Make an array in memory that the ranks of the node map, as ``numpy.empty`` does.

        Collectives of 64 KiB and more read such arrays where they are, if all ranks' are such (and,
        unless they are persistent, all ranks share memory).
        Not collective. The array stays as long as it is used, whatever becomes of the
        communicator. Raises MemoryError when there is no room.
        """
        with shared_arrays(self):
            return np.empty(shape, dtype, order)

    def zeros(self, shape: Any, dtype: Any = float, order: Any = "C") -> npt.NDArray[Any]:
        """Make an array of zeros; see :meth:`empty`."""
        with shared_arrays(self):
            return np.zeros(shape, dtype, order)

    def full(
        self, shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C"
    ) -> npt.NDArray[Any]:
        """Make an array filled with one value; see :meth:`empty`."""
        with shared_arrays(self):
            return np.full(shape, fill_value, dtype, order)

    def asarray(self, a: Any, dtype: Any = None) -> npt.NDArray[Any]:
        """Return `a` if it is such an array, contiguous and of that type; else a copy that is.

        See :meth:`empty`.
        """
        self._han.live()
        return as_shared(a, dtype)

    def attach_window(self, win: MPI.Win) -> None:
        """Let persistent collectives read arrays in one of MPI's shared windows where they are.

        Collective. The ranks of a node pass the same window, made by ``MPI.Win.Allocate_shared`` on
        this communicator or another one that has all of them. It stays attached until it is
        detached or freed; a request whose buffers are in a window that was freed does not start.

        Raises ArgumentError, on all ranks alike, for other windows.
        """
        self._han.attach_window(win)

    def detach_window(self, win: MPI.Win) -> None:
        """Forget a window; collective. Requests that were made before go on as they are.

        Raises ArgumentError, on all ranks alike, where it is not attached.
        """
        self._han.detach_window(win)

    # ---- communicators ----------------------------------------------------------------------

    def _children(self, step: str, make: Callable[[], MPI.Comm]) -> Comm:
        """Make a communicator, together with all ranks, and a han.Comm of it."""
        state = self._han
        state.gather(step)
        return self._child(make())

    def _child(self, comm: MPI.Comm) -> Comm:
        """Make a han.Comm of a new communicator, with this one's configuration."""
        if comm == MPI.COMM_NULL:
            return Comm()
        plain = MPI.Intracomm(comm)
        try:
            return type(self)(plain, _Inherited(self._han))
        except AGREED:
            plain.Free()
            raise

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        """Split into a han.Comm for each color."""
        return self._children("Split", lambda: MPI.Intracomm(self).Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Comm:
        """Split by kind of place into han.Comms."""
        plain = MPI.Intracomm(self)
        return self._children("Split_type", lambda: plain.Split_type(split_type, key, info))

    def Dup(self, info: MPI.Info | None = None) -> Comm:
        """Duplicate."""
        return self._children("Dup", lambda: MPI.Intracomm(self).Dup(info))

    def Dup_with_info(self, info: MPI.Info) -> Comm:
        """Duplicate, with hints."""
        return self._children("Dup_with_info", lambda: MPI.Intracomm(self).Dup_with_info(info))

    def Clone(self) -> Comm:
        """Duplicate, without attributes' copies."""
        return self._children("Clone", lambda: MPI.Intracomm(self).Clone())

    def Idup(self, info: MPI.Info | None = None) -> tuple[Comm, MPI.Request]:
        """Start to duplicate; what han needs is made in the first call on the new han.Comm."""
        self._han.live()
        return self._later(*MPI.Intracomm(self).Idup(info))

    def Idup_with_info(self, info: MPI.Info) -> tuple[Comm, MPI.Request]:
        """Start to duplicate, with hints; see :meth:`Idup`."""
        self._han.live()
        return self._later(*MPI.Intracomm(self).Idup_with_info(info))

    def _later(self, comm: MPI.Intracomm, request: MPI.Request) -> tuple[Comm, MPI.Request]:
        """Wrap a communicator that is still being made; it keeps what the request is about."""
        child = super().__new__(type(self), comm)
        child._state, child._origin = None, (comm, _Inherited(self._han))
        return child, request

    def Create(self, group: MPI.Group) -> Comm:
        """Make a han.Comm of a group; collective over this communicator."""
        return self._children("Create", lambda: MPI.Intracomm(self).Create(group))

    def Create_group(self, group: MPI.Group, tag: int = 0) -> Comm:
        """Make a han.Comm of a group; collective over the group."""
        ranks = ranks_of(group, self)
        if MPI.UNDEFINED in ranks:
            raise ArgumentError("Create_group: the group has members outside of this communicator")
        self._han.gather("Create_group", ranks)
        return self._child(MPI.Intracomm(self).Create_group(group, tag))

    def Free(self) -> None:
        """Free the communicator and everything that han holds for it, once it is finished.

        Under HAN_TRACE the clocks are read once more: rank 0 waits 5 s at most for the others,
        and they 10 s for rank 0. Whoever comes later is left out and does not wait: its times
        stand on the reading at the beginning alone.
        """
        try:
            if self._state is not None:
                self._state.drain()
                self._state.tracing.end()
        finally:
            super().Free()
            self._state = None

    # ---- looking in -------------------------------------------------------------------------

    def explain(
        self,
        collective: str,
        nbytes: int | str = 0,
        op: MPI.Op = MPI.SUM,
        dtype: Any = "f8",
        root: int = 0,
        shared: bool = False,
    ) -> Explanation:
        """Tell what a call of `nbytes` (4194304, or ``"4MiB"``) would run and why; not collective.

        `collective` is the name of a call in lower case. ``"allgatherv"`` and
        ``"reduce_scatter_block"`` are explained as ``"allgather"`` and ``"reduce_scatter"``, which
        rules name too; blocks are all of `nbytes`.

        `shared` asks about a call on arrays that are shared on all ranks: shared arrays, or for a
        persistent call arrays in windows that are attached. Where a call that is not persistent can
        take them as they are, a last line says so in any case.

        Returns an object that prints as text and has the choice, the rule and the TaskGraph.
        """
        from han.explain import explain

        return explain(self._han, collective, nbytes, op, dtype, root, shared)

    def cache_info(self) -> CacheInfo:
        """Tell how many calls on this rank found a plan, and what making plans took.

        Not collective. It prints as text; :class:`han.runtime.plans.CacheInfo` says what counts.
        """
        return self._han.plans.info()

    def trace(self, events: int = 1 << 20, align: bool = False) -> Trace:
        """Record when each task of every call begins and ends on this rank.

        ``with comm.trace() as t: ...`` is not collective, and ``t.times`` has this rank's tasks
        by its own clock. ``t.timeline()`` and ``t.save(folder)``, afterwards, are collective and
        put all ranks on rank 0's clock; `align` makes entering collective too, and corrects for
        clocks that drift apart in a long run. `events` bounds the tasks; ``t.dropped`` counts
        those beyond.
        """
        from han.trace.trace import Trace

        return Trace(self._han, events, align)

    def plan(
        self,
        collective: str,
        nbytes: int | str = 0,
        op: MPI.Op = MPI.SUM,
        dtype: Any = "f8",
        root: int = 0,
    ) -> TaskGraph:
        """Return the TaskGraph (a networkx.DiGraph) of a call; not collective."""
        return self.explain(collective, nbytes, op, dtype, root).graph


class _Inherited:
    """A parent's configuration, to be taken as it is."""

    def __init__(self, parent: State) -> None:
        self.parent = parent


def _attach(comm: MPI.Intracomm, config: Any) -> State:
    """Find the communicator's State, or make it."""
    found: State | None = comm.Get_attr(_key())  # type: ignore[assignment]
    inherited = config.parent if isinstance(config, _Inherited) else None
    if found is not None:
        if config is not None and inherited is None and not _same(found, config):
            raise ConfigError(
                "this communicator already has a han.Comm with another configuration; "
                "duplicate it first: han.Comm(comm.Dup(), config=...)"
            )
        return found
    if inherited is not None:
        state = State(comm, inherited.config, inherited.conditions)
    else:
        if not comm.Get_rank():
            warn_of_unknown(os.environ)
        state = State(comm, config)
    comm.Set_attr(_key(), state)
    return state


def _same(state: State, config: Any) -> bool:
    from han.config.config import load_config

    return bool(load_config(config).fingerprint() == state.config.fingerprint())
