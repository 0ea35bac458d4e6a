"""How the parts of a freed communicator pass to the next one of the same ranks (`resting`)."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from mpi4py import MPI

from han import _native
from han.config.config import Config
from han.memory.shared import SharedMemory
from han.ranks.health import FREED
from han.runtime.binder import Binder
from han.runtime.inherited import Inherited
from han.runtime.leaving import State as Leaving
from han.runtime.leaving import at_end
from han.runtime.persistent import Persistent
from han.runtime.plans import Plans
from han.runtime.request import Request
from han.runtime.resting import Nest, Ranks
from han.trace.tracing import Tracing

T = TypeVar("T")


class State(Leaving, Protocol):
    """The state of a communicator, as far as one that follows it takes it over."""

    config: Config
    binder: Binder
    calls: _native.Calls[Request]
    persistent: Persistent
    plans: Plans
    shared: SharedMemory
    tracing: Tracing
    rests: bool
    origin: tuple[Inherited, Ranks] | None

    @property
    def nest(self) -> Nest | None:
        """What freed children have left; None if no child was made."""

    def end(self) -> None:
        """Release everything; not collective."""


class Left(NamedTuple):
    """The parts of a freed communicator, as a State that no communicator has.

    `room`: the bytes of this rank's rings and scratch memory, which stay the same.
    """

    state: State
    room: int

    @property
    def token(self) -> int:
        """Identifies them, the same on all ranks."""
        return self.state.health.notices.token

    @property
    def sound(self) -> bool:
        """Whether this rank knows of no error, and of no rank that has left."""
        return _sound(self.state)

    @property
    def nest(self) -> Nest | None:
        """What its own children left; None if it had none."""
        return self.state.nest

    def revoke(self, error: BaseException) -> None:
        """Let the ranks that take them over, or have done so, raise PeerError; not collective."""
        self.state.health.give_up(error)
        self.end()

    def end(self) -> None:
        """Give back all that they hold; not collective."""
        self.state.end()


def leave(state: State) -> bool:
    """Leave the parts of `state`, which is freed, to the next child of the same ranks.

    Returns False if they cannot serve another communicator. Other handles of the freed one keep
    `state`, whose calls raise RevokedError. From the moment that ``state.rests`` is set, also if
    this raises, the parts are not `state`'s to release.
    """
    if state.origin is None or not (_plain(state) and _sound(state)):
        return False
    inherited, ranks = state.origin
    if inherited.parent.failed is not None or not inherited.nest.open:
        return False
    parts = _copied(state)
    parts.closed = False
    state.health = _copied(state.health)
    state.health.failed = FREED
    state.calls = state.engines.dead
    at_end(parts)
    state.rests = True
    room = parts.engines.room + parts.binder.room
    for one in inherited.nest.put(ranks, Left(parts, room)):
        one.end()
    return True


def succeed(state: State, parts: Left, comm: MPI.Intracomm) -> None:
    """Make `state`, of `comm`, from the parts of a freed communicator; not collective."""
    before = parts.state
    vars(state).update(vars(before))
    before.closed = True
    state.plans.restart()
    state.health.meeting.comm = comm
    at_end(state)


def _copied(whole: T) -> T:
    """Return a shallow copy; ``copy.copy`` takes several times as long."""
    other: T = object.__new__(type(whole))
    vars(other).update(vars(whole))
    return other


def _sound(state: State) -> bool:
    health = state.health
    health.notices.fetch()
    return health.failed is None and health.notices.silent and not state.engines.departures()


def _plain(state: State) -> bool:
    """Return whether `state` has nothing that belongs to its communicator alone."""
    config, health = state.config, state.health
    asked = config.check or state.tracing.used
    made = state.persistent.used or bool(state.shared.windows)
    return not (asked or made or health.busy or health.meeting.own is not None)
