"""The recorder of a communicator: it lets several traces record the same engines."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from han import _native
from han.trace.recording import Names, Recording


class EngineList(Protocol):
    """The engines of a communicator."""

    def numbered(self) -> list[tuple[_native.Engine, int]]:
        """List the engines with their numbers."""


class PlanNames(Protocol):
    """The plans of a communicator."""

    def names(self) -> list[tuple[int, Names]]:
        """List the numbers of the plans with the names that they stand for."""


class Recorder:
    """Records for all active recordings; threads may begin and end them in any order.

    An engine can record into one block of memory at a time. Each beginning or end of a recording
    therefore ends one internal recording (a stretch) and begins the next. Each active recording
    takes over the events of the stretch that ended. The recorder holds only weak references, so it
    may outlive the communicator.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._engines: weakref.ref[EngineList] | None = None
        self._plans: weakref.ref[PlanNames] | None = None
        self._lock = threading.RLock()  # reentrant: the garbage collector may free a request here
        self._active: list[Recording] = []
        self._stretch: Recording | None = None

    def follow(self, engines: EngineList, plans: PlanNames) -> None:
        """Set where the recorder finds the engines and plans of the communicator."""
        self._engines, self._plans = weakref.ref(engines), weakref.ref(plans)

    def begin(self, recording: Recording) -> bool:
        """Begin a recording; return False if it is active already."""
        with self._lock:
            if recording in self._active:
                return False
            self._cut([*self._active, recording])
            return True

    def end(self, recording: Recording) -> None:
        """End a recording."""
        with self._lock:
            if recording in self._active:
                self._cut([r for r in self._active if r is not recording])

    def close(self) -> None:
        """End all recordings."""
        with self._lock:
            self._cut([])
            self._engines = self._plans = None

    def under_way(self, recording: Recording) -> bool:
        """Return whether a recording is active."""
        return recording in self._active

    def know(self, named: Callable[[], tuple[int, Names]]) -> None:
        """Note that a plan has been made; `named` returns its number and names."""
        with self._lock:
            if self._stretch is not None:
                self._stretch.know(*named())

    def attach(self, engine: _native.Engine, request: int) -> None:
        """Note that an engine has been made; `request` is its number."""
        with self._lock:
            if self._stretch is not None:
                self._stretch.attach(engine, request)

    def settle(self, engine: _native.Engine) -> None:
        """Take the events of an engine that is about to be freed."""
        with self._lock:
            if self._stretch is not None:
                self._stretch.settle(engine)

    def _cut(self, active: list[Recording]) -> None:
        """End the current stretch, and begin one for the recordings in `active`."""
        if self._stretch is not None:
            self._stretch.settle()
            for recording in self._active:
                recording.absorb(self._stretch)
        self._active, self._stretch = active, None
        if active:
            self._stretch = Recording(self.rank, max(r.room for r in active))
            plans = self._plans() if self._plans is not None else None
            engines = self._engines() if self._engines is not None else None
            for number, names in plans.names() if plans is not None else ():
                self._stretch.know(number, names)
            for engine, number in engines.numbered() if engines is not None else ():
                self._stretch.attach(engine, number)
