"""The parts of a communicator that serve its traces: clocks, names and the file of HAN_TRACE."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mpi4py import MPI

from han.common.errors import HanError
from han.ranks.clocks import STEP as CLOCKS
from han.ranks.clocks import Clock, Reading, last_reading, read_clock
from han.ranks.health import Health
from han.trace.recorder import Recorder
from han.trace.recording import EVENTS, Recording
from han.trace.trace_files import TraceFile, part_of

if TYPE_CHECKING:
    from han.model.timeline import Timeline

T = TypeVar("T")


class Tracing:
    """The traces of one communicator; methods are collective unless they say otherwise."""

    def __init__(self, health: Health, nodes: tuple[int, ...]) -> None:
        self._health, self._nodes = health, nodes
        self.recorder = Recorder(health.rank)
        self.file: TraceFile | None = None
        self.used = False  # somebody has a trace, which refers to this
        self.early_readings: list[Reading] = []  # taken when recording began
        self._made = 0  # traces merged so far; the same on all ranks

    def record_into(self, folder: str) -> None:
        """Record from now on, for a file in `folder`."""
        self.early_readings = [read_clock(self._health.meeting)]
        recording = Recording(self._health.rank, EVENTS)
        self.used = True
        reading, make = self.early_readings[0], self._describe()
        self.file = TraceFile(folder, recording, self.recorder, reading, make)
        self.recorder.begin(recording)

    def read_clock(self) -> Reading:
        """Compare this rank's clock with rank 0's."""
        return self._step(lambda: read_clock(self._health.meeting), CLOCKS)

    def collect(self, value: T, step: str) -> list[T]:
        """Return the values of all ranks on rank 0."""
        return self._step(lambda: self._health.meeting.collect(value, step), step)

    def share(self, make: Callable[[], T], step: str) -> list[T]:
        """Return what `make` returns on every rank; if it raises on one, all raise SetupError."""
        return self._step(lambda: self._health.meeting.share(make, step), step)

    def _step(self, take: Callable[[], T], step: str) -> T:
        self._health.live()
        with self._health.together(step):
            return take()

    def next_name(self) -> str:
        """Return a suffix that is unique among the traces of the communicator; not collective."""
        self._made += 1
        return f".{self._made}"

    def timeline(self, recording: Recording, clock: Clock) -> Timeline:
        """Return this rank's part of a timeline; not collective."""
        return self._describe()(recording, clock)

    def _describe(self) -> Callable[[Recording, Clock], Timeline]:
        """Return a function that makes this rank's part; it does not refer to the communicator."""
        return partial(part_of, self._nodes, f"{self._health.notices.token:08x}")

    def end(self) -> None:
        """Compare the clocks a last time before the communicator is freed, without late ranks."""
        if self.file is None or self._health.failed is not None:
            return
        with contextlib.suppress(HanError, MPI.Exception):
            reading = last_reading(self._health.meeting, self._health.notices.token)
            if reading is not None:
                self.file.readings.append(reading)

    def close(self) -> None:
        """End all recordings, and write the file of HAN_TRACE; not collective."""
        self.recorder.close()
        if self.file is not None:
            self.file.write()
