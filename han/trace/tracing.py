"""What of a communicator its traces need: clocks, names, and the files of HAN_TRACE."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mpi4py import MPI

from han.common.errors import HanError
from han.model.timeline import Timeline
from han.ranks.clocks import STEP as CLOCKS
from han.ranks.clocks import Clock, Reading, read_clock
from han.ranks.last_reading import last_reading
from han.trace.recorder import Recorder
from han.trace.recording import EVENTS, Recording
from han.trace.trace_files import TraceFile, part_of

if TYPE_CHECKING:
    from han.runtime.state import State

T = TypeVar("T")


class Tracing:
    """The traces of one communicator; what it offers is collective unless it says otherwise."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.recorder = _recorder(weakref.ref(state), state.rank)
        self.file: TraceFile | None = None
        self.early_readings: list[Reading] = []  # of this rank's clock
        self._made = 0  # traces put together so far, alike on all ranks

    def record_into(self, folder: str) -> None:
        """Trace from now on, into files."""
        self.early_readings = [read_clock(self._state.meeting)]
        recording = Recording(self._state.rank, EVENTS)
        reading, make = self.early_readings[0], self._describe()
        self.file = TraceFile(folder, recording, self.recorder, reading, make)
        self.recorder.begin(recording)

    def read_clock(self) -> Reading:
        """Compare this rank's clock with rank 0's."""
        return self._step(lambda: read_clock(self._state.meeting), CLOCKS)

    def collect(self, value: T, step: str) -> list[T]:
        """Return on rank 0 what all ranks pass."""
        return self._step(lambda: self._state.meeting.collect(value, step), step)

    def share(self, make: Callable[[], T], step: str) -> list[T]:
        """Return what `make` returns on every rank, or raise SetupError on all."""
        return self._step(lambda: self._state.meeting.share(make, step), step)

    def _step(self, take: Callable[[], T], step: str) -> T:
        self._state.live()
        with self._state.together(step):
            return take()

    def next_name(self) -> str:
        """Return what tells a trace from the communicator's others; not collective."""
        self._made += 1
        return f".{self._made}"

    def timeline(self, recording: Recording, clock: Clock) -> Timeline:
        """Return this rank's part of a timeline; not collective."""
        return self._describe()(recording, clock)

    def _describe(self) -> Callable[[Recording, Clock], Timeline]:
        """Return what makes this rank's part of a timeline, and holds nothing of the State."""
        state = self._state
        return partial(part_of, state.topology.memory, f"{state.notices.token:08x}")

    def end(self) -> None:
        """Read the clocks once more before the communicator goes, of ranks that come in time."""
        if self.file is None or self._state.failed is not None:
            return
        with contextlib.suppress(HanError, MPI.Exception):
            reading = last_reading(self._state.meeting, self._state.notices.token)
            if reading is not None:
                self.file.readings.append(reading)

    def close(self) -> None:
        """End all recordings, and write the file if there is to be one; not collective."""
        self.recorder.close()
        if self.file is not None:
            self.file.write()


def _recorder(find: Callable[[], State | None], rank: int) -> Recorder:
    """Make what may outlive the State, until the exit."""

    def engines() -> Iterable[Any]:
        state = find()
        return state.all_engines() if state else ()

    def plans() -> Iterable[Any]:
        state = find()
        return state.plans.living.values() if state else ()

    return Recorder(rank, engines, plans)
