"""When tasks began and ended: what overlaps with what, measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from han.common.errors import ArgumentError
from han.model.timeline import TaskTime, Timeline
from han.ranks.clocks import Clock, Reading
from han.trace.recording import Recording
from han.trace.timeline_parts import merge
from han.trace.trace_files import part_path, write_part
from han.trace.tracing import Tracing

__all__ = ["TaskTime", "Trace"]


class Trace:
    """Records while it is entered; :attr:`times` holds the tasks of this rank.

    Traces may overlap as they like, in several threads too: each records all there is. One that
    is still entered when the communicator is freed ends then.

    Entering and leaving are this rank's own affair, and so is :attr:`times`, by its own clock.
    :meth:`timeline` and :meth:`save` put all ranks on one clock: they are collective, and so is
    entering when `align` asks for the clocks to be read at the beginning as well.
    """

    def __init__(self, tracing: Tracing, events: int, align: bool = False) -> None:
        if events < 1:
            raise ArgumentError(f"events = {events}: room for at least one is needed")
        self._tracing, self.align = tracing, align
        self.times: list[TaskTime] = []
        self._recording = Recording(tracing.recorder.rank, events)
        self._readings: list[Reading] = []
        self._clock: Clock | None = None
        self._name = ""  # among the traces of the communicator

    @property
    def dropped(self) -> int:
        """Tasks of this rank that found no room."""
        return self._recording.dropped

    def __enter__(self) -> Trace:
        if self.align:
            self._readings.append(self._tracing.read_clock())
        if not self._tracing.recorder.begin(self._recording):
            raise ArgumentError("this trace is entered already; make another with comm.trace()")
        return self

    def __exit__(self, *exc: object) -> None:
        self._tracing.recorder.end(self._recording)
        self.times = self._recording.times()

    def timeline(self) -> Timeline | None:
        """Return the tasks of all ranks by rank 0's clock, on rank 0; None elsewhere; collective.

        Its `uncertainty` says how far the clocks of nodes may be apart.
        """
        parts = self._tracing.collect(self._part(), "the gathering of a trace")
        return merge(parts)[0] if parts else None

    def save(self, folder: str | Path) -> None:
        """Write a file for each rank, for ``han trace``; collective.

        Raises SetupError, on all ranks alike, where one cannot write.
        """
        part = self._part()
        path = part_path(Path(folder), part, self._recording.rank)
        self._tracing.share(lambda: write_part(path, part), f"the writing of a trace to {folder}")

    def _part(self) -> Timeline:
        """Return this rank's part of the timeline; reads the clocks once."""
        if self._tracing.recorder.under_way(self._recording):
            raise ArgumentError("a trace is put together after its with block")
        tracing = self._tracing
        if self._clock is None:
            self._readings += [*tracing.early_readings, tracing.read_clock()]
            self._clock = Clock(tuple(self._readings))
            self._name = tracing.next_name()
        part = tracing.timeline(self._recording, self._clock)
        return replace(part, communicator=part.communicator + self._name)
