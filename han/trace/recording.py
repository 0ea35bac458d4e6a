"""Recordings: the memory into which engines record tasks, and the tasks read from it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from han._native import Engine
from han.common.system import text_of
from han.ranks.clocks import Clock

if TYPE_CHECKING:
    from han.model.timeline import TaskTime

EVENTS = 1 << 20  # default room in tasks: 72 bytes each, touched when used
HEAD = np.dtype(
    [(name, "u8") for name in ("n", "max", "dropped", "tsc", "t0", "ns0", "t1", "ns1", "unused")]
)
_MOMENTS, _DURATIONS = ("begin", "start", "end"), ("copying", "reducing")
_TICKS = [(name, "u8") for name in ("epoch", "plan", "nbytes", *_MOMENTS, *_DURATIONS)]
EVENT = np.dtype([*_TICKS, ("stream", "u4"), ("task", "u4")])  # as in native/events.h
ANCHOR = (1 << 32) - 1
CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


class Names(NamedTuple):
    """What the numbers in the events of one plan stand for.

    `nbytes` is the size of the message; events of a plan for many sizes have their own.
    """

    collective: str
    nbytes: int
    streams: tuple[str, ...]
    tasks: Sequence[str]


@dataclass(frozen=True)
class Taken:
    """The events of one engine.

    `moments` are nanoseconds of the monotonic clock since `base`; `tick` is the length of a tick
    in nanoseconds.
    """

    request: int
    base: int
    events: np.ndarray[Any, Any]
    moments: dict[str, np.ndarray[Any, Any]]
    tick: float  # nanoseconds

    def first(self, number: int) -> Taken:
        """Return the first `number` events."""
        moments = {name: column[:number] for name, column in self.moments.items()}
        return replace(self, events=self.events[:number], moments=moments)


class Recording:
    """The events of a communicator's engines, and the names that they need.

    It holds at most `events` events of each engine, and of all freed engines together. `dropped`
    counts the tasks without room, and those of unknown plans.
    """

    def __init__(self, rank: int, events: int) -> None:
        self.rank, self.events = rank, events
        self.dropped = 0
        self._names: dict[int, Names] = {}
        self._open: list[tuple[weakref.ref[Engine], int, np.ndarray[Any, Any]]] = []
        self._taken: list[Taken] = []
        self._tsc = text_of(CLOCK_SOURCE) == "tsc"  # the processor's counter

    def know(self, number: int, names: Names) -> None:
        """Remember what the number of a plan stands for."""
        self._names[number] = names

    def attach(self, engine: Engine, request: int) -> None:
        """Make an engine record into new memory; `request` is the number of the engine."""
        memory = np.zeros(1 + self.room, EVENT)
        engine.trace(memory, self._tsc)
        self._open.append((weakref.ref(engine), request, memory))

    def settle(self) -> None:
        """Take the events of all engines, and stop their recording."""
        for reference, request, memory in self._open:
            engine = reference()
            if engine is not None:
                engine.trace(None)
            self._take(request, memory)
        self._open.clear()

    @property
    def room(self) -> int:
        """Events of one engine that still fit."""
        return max(0, self.events - sum(len(taken.events) for taken in self._taken))

    def absorb(self, other: Recording) -> None:
        """Take over the events of a recording, as far as there is room."""
        room = self.room
        self._names |= other._names
        self._taken += [taken.first(room) for taken in other._taken]
        self.dropped += other.dropped + sum(max(0, len(t.events) - room) for t in other._taken)

    def times(self, clock: Clock | None = None) -> list[TaskTime]:
        """Return the tasks in order of their beginnings, with times converted by `clock`."""
        from han.model.timeline import whole_tasks

        times = [time for taken in self._taken for time in self._read(taken, clock or Clock())]
        return whole_tasks(times)

    def _take(self, request: int, memory: np.ndarray[Any, Any]) -> None:
        head = memory[:1].view(HEAD)[0]
        rows = memory[1 : 1 + int(head["n"])]
        anchors = rows[rows["stream"] == ANCHOR]
        ticks = _since(head["t0"], np.array([head["t0"], *anchors["begin"], head["t1"]]))
        ns = _since(head["ns0"], np.array([head["ns0"], *anchors["end"], head["ns1"]]))
        tasks = rows["stream"] != ANCHOR
        events = rows[tasks & np.isin(rows["plan"], list(self._names))]
        self.dropped += int(head["dropped"]) + int(tasks.sum()) - len(events)
        moments = {
            name: np.interp(_since(head["t0"], events[name]), ticks, ns) for name in _MOMENTS
        }
        tick = float(ns[-1] / ticks[-1]) if ticks[-1] else 1.0
        self._taken.append(Taken(request, int(head["ns0"]), events, moments, tick))

    def _read(self, taken: Taken, clock: Clock) -> list[TaskTime]:
        begin, start, end = (
            (taken.base + taken.moments[name] + clock.offset(taken.base + taken.moments[name]))
            * 1e-9
            for name in _MOMENTS
        )
        copying, reducing = (taken.events[name] * (taken.tick * 1e-9) for name in _DURATIONS)
        columns = (begin, start, end, copying, reducing)
        rows = zip(taken.events, *(column.tolist() for column in columns), strict=True)
        return [self._task(taken.request, *row) for row in rows]

    def _task(
        self, request: int, event: np.void,
        begin: float, start: float, end: float, copying: float, reducing: float,
    ) -> TaskTime:  # fmt: skip
        """Name the parts of an event. A rank that is alone copies outside of any task."""
        from han.model.timeline import TaskTime

        names = self._names[int(event["plan"])]
        number = int(event["task"])
        return TaskTime(
            self.rank, int(event["epoch"]), names.collective, names.streams[event["stream"]],
            names.tasks[number] if number < len(names.tasks) else "copy",
            begin, end, copying, reducing, start - begin, request,
            int(event["nbytes"]) or names.nbytes,
        )  # fmt: skip


def _since(first: int, moments: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return moments.astype(np.int64) - int(first)


# ---- the recorder of a communicator -------------------------------------------------------------


ListEngines = Callable[[], list[tuple[Engine, int]]]  # with their numbers
ListPlans = Callable[[], list[tuple[int, Names]]]  # their numbers, and what these stand for


class Recorder:
    """Records for all active recordings; threads may begin and end them in any order.

    An engine can record into one block of memory at a time. Each beginning or end of a recording
    therefore ends one internal recording (a stretch) and begins the next. Each active recording
    takes over the events of the stretch that ended. The recorder holds only weak references, so it
    may outlive the communicator.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._engines: weakref.WeakMethod[ListEngines] | None = None
        self._plans: weakref.WeakMethod[ListPlans] | None = None
        self._lock = threading.RLock()  # reentrant: the garbage collector may free a request here
        self._active: list[Recording] = []
        self._stretch: Recording | None = None

    def follow(self, engines: ListEngines, plans: ListPlans) -> None:
        """Set the methods that list the engines and plans of the communicator."""
        self._engines, self._plans = weakref.WeakMethod(engines), weakref.WeakMethod(plans)

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

    def attach(self, engine: Engine, request: int) -> None:
        """Note that an engine has been made; `request` is its number."""
        with self._lock:
            if self._stretch is not None:
                self._stretch.attach(engine, request)

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
            for number, names in plans() if plans is not None else ():
                self._stretch.know(number, names)
            for engine, number in engines() if engines is not None else ():
                self._stretch.attach(engine, number)
