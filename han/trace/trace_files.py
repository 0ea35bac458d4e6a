"""``HAN_TRACE``: each rank writes its tasks to a file when the communicator is freed."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from han.common.atomic import write_whole
from han.config.rc import rc
from han.ranks.clocks import Clock, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from han.model.timeline import Timeline
    from han.trace.recorder import Recorder
    from han.trace.recording import Recording

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

    ranks, count = len(nodes), len(set(nodes))
    title = f"{ranks} rank{'s' * (ranks > 1)} on {count} node{'s' * (count > 1)}"
    return Timeline(
        "measured", title, tuple(recording.times(clock)), recording.dropped, clock.uncertainty,
        nodes, communicator,
    )  # fmt: skip


def part_path(folder: Path, part: Timeline, rank: int) -> Path:
    """Return the path of the file of one rank's part."""
    return folder / f"trace-{part.communicator}-{rank}.json"


def write_part(path: Path, part: Timeline) -> None:
    """Write one rank's part; the file appears as a whole or not at all."""
    from han.trace.timeline_files import to_json

    write_whole(path, to_json(part))


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
            write_part(part_path(self.folder, part, self.recording.rank), part)
        except OSError as error:
            message = f"han: {VARIABLE}: no trace is written in {self.folder}: {error.strerror}"
            print(message, file=sys.stderr, flush=True)
