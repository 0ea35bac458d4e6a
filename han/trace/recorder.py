"""Which recordings of a communicator go on, and how its engines serve all of them."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from han import _native
from han.trace.recording import Names, Recording


class Engines(Protocol):
    """The engines that there are, and their numbers."""

    def numbered(self) -> list[tuple[_native.Engine, int]]:
        """List them."""


class Plans(Protocol):
    """The plans that there are, and what their numbers stand for."""

    def names(self) -> list[tuple[int, Names]]:
        """List them."""


class Recorder:
    """Records for every trace that is under way; threads may begin and end them in any order.

    An engine records into one memory at a time. So what lies between two beginnings or ends is
    a stretch of its own, and every recording under way takes over what is in it. It may outlive
    the communicator, of which it holds nothing.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._engines: weakref.ref[Engines] | None = None
        self._plans: weakref.ref[Plans] | None = None
        self._lock = threading.RLock()  # a collection may free a request in the middle
        self._active: list[Recording] = []
        self._stretch: Recording | None = None

    def follow(self, engines: Engines, plans: Plans) -> None:
        """Ask these at each beginning and end which engines and plans there are."""
        self._engines, self._plans = weakref.ref(engines), weakref.ref(plans)

    def begin(self, recording: Recording) -> bool:
        """Record there as well from now on; return whether it is news."""
        with self._lock:
            if recording in self._active:
                return False
            self._cut([*self._active, recording])
            return True

    def end(self, recording: Recording) -> None:
        """Record no more there."""
        with self._lock:
            if recording in self._active:
                self._cut([r for r in self._active if r is not recording])

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._cut([])
            self._engines = self._plans = None

    def under_way(self, recording: Recording) -> bool:
        """Whether it has begun and not ended."""
        return recording in self._active

    def know(self, number: int, names: Names) -> None:
        """Note that a plan has been made."""
        with self._lock:
            if self._stretch is not None:
                self._stretch.know(number, names)

    def attach(self, engine: _native.Engine, request: int) -> None:
        """Note that an engine has been made."""
        with self._lock:
            if self._stretch is not None:
                self._stretch.attach(engine, request)

    def settle(self, engine: _native.Engine) -> None:
        """Note that an engine goes."""
        with self._lock:
            if self._stretch is not None:
                self._stretch.settle(engine)

    def _cut(self, active: list[Recording]) -> None:
        """Let one stretch end, and the next begin for those of `active`."""
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
