"""When tasks began and ended: what overlaps with what, measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from han._recording import Recording
from han._trace_files import part_path, write_part
from han.clocks import Clock, Reading
from han.errors import ArgumentError
from han.timeline import TaskTime, Timeline, merge

if TYPE_CHECKING:
    from han.state import State

__all__ = ["TaskTime", "Trace"]


class Trace:
    """Records while it is entered; :attr:`times` holds the tasks of this rank.

    Entering and leaving are this rank's own affair, and so is :attr:`times`, by its own clock.
    :meth:`timeline` and :meth:`save` put all ranks on one clock: they are collective, and so is
    entering when `align` asks for the clocks to be read at the beginning as well.
    """

    def __init__(self, state: State, events: int, align: bool = False) -> None:
        if events < 1:
            raise ArgumentError(f"events = {events}: room for at least one is needed")
        self.state, self.align = state, align
        self.times: list[TaskTime] = []
        self._recording = Recording(state.rank, events)
        self._outer: Recording | None = None
        self._readings: list[Reading] = []
        self._clock: Clock | None = None
        self._name = ""  # among the traces of the communicator

    @property
    def dropped(self) -> int:
        """Tasks of this rank that found no room."""
        return self._recording.dropped

    def __enter__(self) -> Trace:
        if self.align:
            self._readings.append(self.state.read_clock())
        self._outer = self.state.recording
        self.state.record(self._recording)
        return self

    def __exit__(self, *exc: object) -> None:
        self.state.record(self._outer)
        if self._outer is not None:
            self._outer.absorb(self._recording)
        self.times = self._recording.times()

    def timeline(self) -> Timeline | None:
        """Return the tasks of all ranks by rank 0's clock, on rank 0; None elsewhere; collective.

        Its `uncertainty` says how far the clocks of nodes may be apart.
        """
        parts = self.state.collect(self._part(), "the gathering of a trace")
        return merge(parts)[0] if parts else None

    def save(self, folder: str | Path) -> None:
        """Write a file for each rank, for ``han trace``; collective.

        Raises SetupError, on all ranks alike, where one cannot write.
        """
        part = self._part()
        path = part_path(Path(folder), part, self.state.rank)
        self.state.share(lambda: write_part(path, part), f"the writing of a trace to {folder}")

    def _part(self) -> Timeline:
        """Return this rank's part of the timeline; reads the clocks once."""
        if self.state.recording is self._recording:
            raise ArgumentError("a trace is put together after its with block")
        if self._clock is None:
            self._readings += [*self.state.early_readings, self.state.read_clock()]
            self._clock = Clock(tuple(self._readings))
            self.state.traces += 1
            self._name = f".{self.state.traces}"
        part = self.state.timeline(self._recording, self._clock)
        return replace(part, communicator=part.communicator + self._name)
