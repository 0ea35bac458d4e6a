"""``han.Comm``: an mpi4py communicator whose collectives are han's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentTypeError, ConfigError, RevokedError
from han.common.uncaught import print_once
from han.communicators import Communicators, Inherited
from han.config.environment import warn_of_unknown
from han.memory.arena import as_shared, sharing
from han.runtime.state import State

if TYPE_CHECKING:
    import numpy.typing as npt

    from han.runtime.cache_info import CacheInfo
    from han.tasks.task_graph import TaskGraph
    from han.trace.trace import Trace
    from han.tuning.explanation import Explanation

_keyval: list[int] = []  # MPI's key for a communicator's State, made when first needed


def _key() -> int:
    if not _keyval:
        _keyval.append(MPI.Comm.Create_keyval(delete_fn=_delete))
    return _keyval[0]


def _delete(comm: MPI.Comm, keyval: int, state: State) -> None:
    if not MPI.Is_finalized():
        state.close(free=comm not in (MPI.COMM_WORLD, MPI.COMM_SELF))


@contextlib.contextmanager
def shared_arrays(comm: Comm | None = None) -> Iterator[None]:
    """Let every NumPy array that is made inside be one that the ranks of the node share.

    It holds for the thread and context that enter it, and for arrays that own their data. Not
    collective. `comm`, if given, must still be usable. Raises MemoryError when there is no room.
    """
    if comm is not None:
        comm._han.health.live()
    with sharing():
        yield


class Comm(Communicators):
    """An intra-communicator with hierarchical, pipelined collectives.

    Making one is collective over `comm`, which it stands for (it is no duplicate); making it
    twice finds the first one's state. `config` is a YAML file, the name of a ready
    configuration or a mapping; None asks ``HAN_CONFIG``, then takes two levels, node and
    network. Methods that han does not accelerate are mpi4py's own.

    Raises ConfigError and SharedMemoryError, on all ranks alike.
    """

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
        failed = ", failed" if state.health.failed else ""
        return f"<{name} rank {state.rank} of {state.topology.describe()}: {levels}{failed}>"

    @property
    def _han(self) -> State:
        if self._state is None and self == MPI.COMM_NULL:
            raise RevokedError("this han.Comm is MPI.COMM_NULL: it was freed, or never made")
        if self._state is None:  # made by Idup or another method of MPI's
            self._state = _attach(MPI.Intracomm(self), self._origin[1])
        return self._state

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
        self._han.health.live()
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

    def Free(self) -> None:
        """Free the communicator and everything that han holds for it, once it is finished.

        Under HAN_TRACE the clocks are read once more: rank 0 waits 5 s at most for the others,
        and they 10 s for rank 0. Whoever comes later is left out and does not wait: its times
        stand on the reading at the beginning alone.
        """
        try:
            if self._state is not None:
                self._state.engines.drain()
                self._state.tracing.end()
        finally:
            if self._state is not None:
                # MPI keeps a freed communicator, with its attributes, while requests refer to it.
                self.Delete_attr(_key())
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

        Not collective. Prints as text; :class:`han.runtime.cache_info.CacheInfo` says what counts.
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

        return Trace(self._han.tracing, events, align)

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


def _attach(comm: MPI.Intracomm, config: Any) -> State:
    """Find the communicator's State, or make it."""
    found: State | None = comm.Get_attr(_key())  # type: ignore[assignment]
    inherited = config.parent if isinstance(config, Inherited) else None
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
        state = _agreed(comm, config)
    comm.Set_attr(_key(), state)
    return state


def _agreed(comm: MPI.Intracomm, config: Any) -> State:
    """Make a State; a configuration error, which all ranks raise, is printed by rank 0."""
    try:
        return State(comm, config)
    except ConfigError as error:
        print_once(error, comm.Get_rank())
        raise


def _same(state: State, config: Any) -> bool:
    from han.config.config import load_config

    return bool(load_config(config).fingerprint() == state.config.fingerprint())
