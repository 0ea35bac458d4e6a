"""The State of a communicator, kept in an attribute of MPI's, and the communicators that have one.

A communicator that is not used yet has what it inherits from its parent in its place, or why it
cannot be set up.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mpi4py import MPI

from han.common.errors import ConfigError, RevokedError
from han.common.uncaught import print_briefly, print_once
from han.config.environment import warn_of_unknown
from han.ranks.calibration import tell_problems
from han.ranks.discover import try_to_load
from han.ranks.health import check_live, raised_alike, revoked
from han.runtime.given import tell_problem
from han.runtime.inherited import Inherited
from han.runtime.state import State

if TYPE_CHECKING:
    from han.config.config import Config

PERMANENT = (MPI.COMM_WORLD, MPI.COMM_SELF)  # MPI does not free them
_keyval: list[int] = []  # MPI's key of the attribute that holds a State; made at first use
at_drop: list[Callable[[int], object]] = []  # called with the handle of a communicator
_later: list[weakref.ref[Any]] = []  # children that MPI may not have made yet, as han.Comm


@dataclass(frozen=True)
class Lost:
    """Why a step failed on this rank alone: another attempt would wait for ranks that went on."""

    why: str


Kept = State | Inherited | Lost
Count = Callable[[MPI.Intracomm, str], None]


def _key() -> int:
    if not _keyval:
        _keyval.append(MPI.Comm.Create_keyval(delete_fn=_delete))
    return _keyval[0]


def _delete(comm: MPI.Comm, keyval: int, what: Kept) -> None:
    if isinstance(what, State) and not MPI.Is_finalized():
        what.close(free=comm not in PERMANENT)
    elif isinstance(what, Inherited) and not MPI.Is_finalized():
        what.nest.forget(comm.handle)


def kept(comm: MPI.Comm) -> Kept | None:
    """Return the State of a communicator, or what stands in its place, or None; not collective."""
    found: Any = comm.Get_attr(_key())
    if found is None and _later:
        found = next((child._config for child in _children() if child == comm), None)
    return found if isinstance(found, Kept) else None


def has_attribute(comm: MPI.Comm) -> bool:
    """Return whether `keep` was called for a communicator, so that han hears when MPI frees it."""
    return comm.Get_attr(_key()) is not None


def keep(comm: MPI.Comm, what: Kept) -> None:
    """Let other han.Comm of the same communicator find its State, or what stands in its place."""
    comm.Set_attr(_key(), what)
    if _later:
        _later[:] = [weakref.ref(child) for child in _children() if child != comm]


def inherit_later(child: Any) -> None:
    """Let other han.Comm of `child` find what it inherits, which it cannot have as an attribute.

    MPI may make it later, and drop the attributes that it has until then.
    """
    _later[:] = [weakref.ref(each) for each in (*_children(), child)]


def _children() -> list[Any]:
    """Return the children in `_later` that still exist."""
    return [child for child in (ref() for ref in _later) if child is not None]


def revoke(comm: MPI.Comm, error: BaseException) -> None:
    """Tell the other ranks that this one revokes `comm`, unless MPI alone serves it; local."""
    found = kept(comm)
    if isinstance(found, State):
        found.health.give_up(error)


@contextlib.contextmanager
def in_step(comm: MPI.Intracomm) -> Iterator[None]:
    """Take a collective step of a communicator without a State; an error of this rank is kept."""
    try:
        yield
    except BaseException as error:
        if not raised_alike(error):
            keep(comm, Lost(f"{type(error).__name__}: {error}"))
        raise


def drop(comm: MPI.Comm) -> None:
    """Close the State of a communicator if it is not closed; forget it."""
    comm.Delete_attr(_key())
    for hear in at_drop:
        hear(comm.handle)


def attach(comm: MPI.Intracomm, config: Any, count: Count) -> State:
    """Return the communicator's State; make it if there is none (collective).

    `count` counts its calls from then on, if statistics are wanted.
    """
    found = kept(comm)
    if isinstance(found, Lost):
        raise revoked(found.why)
    if found is not None:
        own = found.parts if isinstance(found, State) else found
        _expect_same(own.config, config)
        config = found
    if isinstance(config, State):
        return config
    if isinstance(config, Inherited):
        with in_step(comm):
            config.nest.forget(comm.handle)
            return _with_state(comm, State(comm, config.config, config), count)
    try:
        with in_step(comm):
            state = _with_state(comm, _agreed(comm, config), count)
    finally:
        if not comm.Get_rank():
            warn_of_unknown(os.environ)  # if it raises, the ranks are in step all the same
    tell_problem(state.parts.given.tuned, comm.Get_rank())
    tell_problems()
    return state


def _with_state(comm: MPI.Intracomm, state: State, count: Count) -> State:
    """Attach a State to its communicator, and count its calls if statistics are wanted."""
    keep(comm, state)
    print_briefly()
    output = state.parts.given.statistics
    if output:
        count(comm, output)
    return state


def _agreed(comm: MPI.Intracomm, config: Any) -> State:
    """Make a State; rank 0 prints a ConfigError, which all ranks raise."""
    try:
        return State(comm, config)
    except ConfigError as error:
        print_once(error, comm.Get_rank())
        raise


def _expect_same(own: Config, config: Any) -> None:
    """Raise ConfigError if a communicator's han.Comm has another configuration than `config`."""
    if config is None or isinstance(config, Inherited):
        return
    loaded, problem = try_to_load(config)
    if problem is not None:
        raise problem
    if loaded.fingerprint() != own.fingerprint():
        raise ConfigError(
            "this communicator already has a han.Comm with another configuration; "
            "duplicate it first: han.Comm(comm.Dup(), config=...)"
        )


class Attached(MPI.Intracomm):
    """An intra-communicator with a State, which its first collective step makes."""

    _plain: ClassVar[type[MPI.Intracomm]] = MPI.Intracomm  # mpi4py's class of the same kind
    _state: State | None = None
    _config: Any = None  # of a communicator without a State: what its State is made with
    _of_c = False  # a C program's, which carries out by MPI what han leaves

    @property
    def _han(self) -> State:
        """The State; the first use makes it (collective)."""
        if self._state is None:
            self._check_live()
            self._state = self._attached(self._config)
        return self._state

    @property
    def _lost(self) -> str | None:
        """Why a step of this communicator, which is not set up, failed on this rank, if it did."""
        unused = self._state is None and self != MPI.COMM_NULL
        found = kept(self) if unused else None
        return found.why if isinstance(found, Lost) else None

    def _attached(self, config: Any) -> State:
        raise NotImplementedError("han.Comm counts its calls")

    def _found(self) -> State | None:
        """Return the State, which another han.Comm of the communicator may have made, or None."""
        if self._state is None and self != MPI.COMM_NULL:
            found = kept(self)
            self._state = found if isinstance(found, State) else None
        return self._state

    def _inherit(self, config: Inherited | None) -> None:
        """Keep what the first call sets this communicator up with, for other handles too."""
        self._config = config
        if config is not None:
            keep(self, config)

    def _check_live(self) -> None:
        """Raise RevokedError if this is null or revoked; not collective."""
        if self._state is not None:
            self._state.health.live()
        elif self == MPI.COMM_NULL:
            raise RevokedError("this han.Comm is MPI.COMM_NULL: it was freed or never made")
        else:
            check_live(self._lost)
