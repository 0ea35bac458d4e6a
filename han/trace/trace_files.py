"""``HAN_TRACE``: every rank's tasks go to a file of its own when the communicator ends."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from han.config.rc import rc
from han.ranks.clocks import Clock, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from han.model.timeline import Timeline
    from han.trace.recorder import Recorder
    from han.trace.recording import Recording

VARIABLE = "HAN_TRACE"


def trace_folder(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """Return the folder that ``han.rc.trace`` or HAN_TRACE names, and what is wrong with it."""
    said_by, text = VARIABLE, environ.get(VARIABLE, "")
    if rc.trace is not None:
        said_by, text = "han.rc.trace", str(rc.trace)
    if not text:
        return "", None
    said = f"{said_by} = {text!r}"
    if not os.path.isdir(text):
        return text, f"{said}: no such folder; make it before the run, where all ranks see it"
    if not os.access(text, os.W_OK | os.X_OK):
        return text, f"{said}: this process may not write there"
    return text, None


def part_of(
    nodes: tuple[int, ...], communicator: str, recording: Recording, clock: Clock
) -> Timeline:
    """Return one rank's part of a timeline."""
    from han.model.timeline import Timeline

    ranks, count = len(nodes), len(set(nodes))
    title = f"{ranks} rank{'s' * (ranks > 1)} on {count} node{'s' * (count > 1)}"
    return Timeline(
        "measured", title, tuple(recording.times(clock)), recording.dropped, clock.uncertainty,
        nodes, communicator,
    )  # fmt: skip


def part_path(folder: Path, part: Timeline, rank: int) -> Path:
    """Return where a rank's part of a timeline goes."""
    return folder / f"trace-{part.communicator}-{rank}.json"


def write_part(path: Path, part: Timeline) -> None:
    """Write a rank's part: it is there as a whole, or not at all."""
    from han.trace.timeline_files import to_json

    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(to_json(part), encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class TraceFile:
    """Writes what one rank has recorded: when the communicator is freed, else at the exit.

    MPI may be gone by then, so nothing here needs it, nor the State that it came from.
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
        """Write the file, once; what goes wrong is said, since nobody is there to catch it."""
        atexit.unregister(self.write)
        if self._process != os.getpid():  # a fork: the tasks are its parent's
            return
        self._process = -1
        self._recorder.close()
        part = self._make(self.recording, Clock(tuple(self.readings)))
        if not part.times and not part.dropped:
            return
        try:
            write_part(part_path(self.folder, part, self.recording.rank), part)
        except OSError as error:
            said = f"han: {VARIABLE}: no trace is written in {self.folder}: {error.strerror}"
            print(said, file=sys.stderr, flush=True)
