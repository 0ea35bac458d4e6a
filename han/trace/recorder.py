"""Which recordings of a communicator go on, and how its engines serve all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from han.trace.recording import Recording

if TYPE_CHECKING:
    from han.runtime.plans import Prepared

Things = Callable[[], Iterable[Any]]


class Recorder:
    """Records for every trace that is under way; threads may begin and end them in any order.

    An engine records into one memory at a time. So what lies between two beginnings or ends is
    a stretch of its own, and every recording under way takes over what is in it. `engines` and
    `plans` list what is there; until :meth:`close`, they are asked at each beginning and end.
    """

    def __init__(self, rank: int, engines: Things, plans: Things) -> None:
        self._rank, self._engines, self._plans = rank, engines, plans
        self._lock = threading.RLock()  # a collection may free a request in the middle
        self._active: list[Recording] = []
        self._stretch: Recording | None = None

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
            self._engines = self._plans = tuple

    def under_way(self, recording: Recording) -> bool:
        """Whether it has begun and not ended."""
        return recording in self._active

    def know(self, prepared: Prepared) -> None:
        """A plan has been made."""
        with self._lock:
            if self._stretch is not None:
                self._stretch.know(prepared)

    def attach(self, engine: Any, request: int) -> None:
        """An engine has been made."""
        with self._lock:
            if self._stretch is not None:
                self._stretch.attach(engine, request)

    def settle(self, engine: Any) -> None:
        """An engine goes."""
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
            self._stretch = Recording(self._rank, max(r.room for r in active))
            for prepared in list(self._plans()):
                self._stretch.know(prepared)
            for engine in self._engines():
                self._stretch.attach(engine, engine.on_error.number)
