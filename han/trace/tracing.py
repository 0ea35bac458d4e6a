"""The parts of a communicator that serve its traces: clocks, names and the file of HAN_TRACE."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mpi4py import MPI

from han.common.atomic import write_whole
from han.common.errors import HanError
from han.common.units import plural
from han.config.rc import rc
from han.ranks.clocks import STEP as CLOCKS
from han.ranks.clocks import Clock, Reading, last_reading, read_clock
from han.ranks.health import Health
from han.trace.recording import EVENTS, Recorder, Recording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from han.model.timeline import Timeline

VARIABLE = "HAN_TRACE"


def trace_folder(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """Return the folder of traces, made if need be, and what is wrong with it or None.

    ``han.rc.trace`` names the folder, else HAN_TRACE; "" if neither is set.
    """
    source, text = VARIABLE, environ.get(VARIABLE, "")
    if rc.trace is not None:
        source, text = "han.rc.trace", str(rc.trace)
    if not text:
        return "", None
    setting = f"{source} = {text!r}"
    try:
        os.makedirs(text, exist_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return text, f"{setting}: the folder cannot be made: {why}"
    if not os.access(text, os.W_OK | os.X_OK):
        return text, f"{setting}: this process may not write there"
    return text, None


def part_of(
    nodes: tuple[int, ...], communicator: str, recording: Recording, clock: Clock
) -> Timeline:
    """Return one rank's part of a timeline; `nodes` holds the node of each rank."""
    from han.model.timeline import Timeline

    title = f"{plural(len(nodes), 'rank')} on {plural(len({*nodes}), 'node')}"
    return Timeline(
        "measured", title, tuple(recording.times(clock)), recording.dropped, clock.uncertainty,
        nodes, communicator,
    )  # fmt: skip


def write_part(folder: str | Path, part: Timeline, rank: int) -> None:
    """Write one rank's part into a folder; the file appears as a whole or not at all."""
    from han.trace.timeline_files import to_json

    write_whole(Path(folder) / f"trace-{part.communicator}-{rank}.json", to_json(part))


class TraceFile:
    """Writes the file of one rank when the communicator is freed, or at exit of the process.

    MPI may be finalized by then, so this uses neither MPI nor the communicator's State.
    """

    def __init__(
        self, folder: str, recording: Recording, recorder: Recorder, reading: Reading,
        make: Callable[[Recording, Clock], Timeline],
    ) -> None:  # fmt: skip
        self.folder, self.recording = Path(folder), recording
        self._recorder = recorder
        self.readings = [reading]
        self._make = make
        self._process = os.getpid()
        atexit.register(self.write)

    def write(self) -> None:
        """Write the file once. Errors are printed, as no caller could catch them."""
        atexit.unregister(self.write)
        if self._process != os.getpid():  # a forked child must not write its parent's tasks
            return
        self._process = -1
        self._recorder.close()
        part = self._make(self.recording, Clock(tuple(self.readings)))
        if not part.times and not part.dropped:
            return
        try:
            write_part(self.folder, part, self.recording.rank)
        except OSError as error:
            message = f"han: {VARIABLE}: no trace is written in {self.folder}: {error.strerror}"
            print(message, file=sys.stderr, flush=True)


T = TypeVar("T")


class Tracing:
    """The traces of one communicator; methods are collective unless they say otherwise."""

    def __init__(self, health: Health, nodes: tuple[int, ...]) -> None:
        self._health = health
        # Returns this rank's part of a timeline; it does not refer to the communicator.
        self.part = partial(part_of, nodes, f"{health.notices.token:08x}")
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
        reading = self.early_readings[0]
        self.file = TraceFile(folder, recording, self.recorder, reading, self.part)
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
