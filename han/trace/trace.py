"""Traces of one rank's tasks, and timelines of all ranks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from han.common.errors import ArgumentError
from han.model.timeline import TaskTime, Timeline
from han.ranks.clocks import Clock, Reading
from han.trace.recording import Recording
from han.trace.timeline_parts import merge
from han.trace.tracing import Tracing, write_part

__all__ = ["TaskTime", "Trace"]


class Trace:
    """Records tasks inside a ``with`` block; afterwards ``times`` holds this rank's tasks.

    Times are by this rank's clock, in seconds. Several traces may be active at once, in several
    threads too; each records all tasks. A trace that is active when the communicator is freed ends
    then.

    Entering and leaving the block are not collective. :meth:`timeline` and :meth:`save` convert
    all ranks' times to rank 0's clock and are collective. With `align` entering is collective too:
    it compares the clocks at the beginning as well.
    """

    def __init__(self, tracing: Tracing, events: int, align: bool = False) -> None:
        if events < 1:
            raise ArgumentError(f"events = {events}: room for at least one is needed")
        self._tracing, self.align = tracing, align
        tracing.used = True
        self.times: list[TaskTime] = []
        self._recording = Recording(tracing.recorder.rank, events)
        self._readings: list[Reading] = []
        self._clock: Clock | None = None
        self._name = ""  # the number of this trace in the communicator

    @property
    def dropped(self) -> int:
        """Tasks of this rank that did not fit into the room for events."""
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
        """Return the tasks of all ranks by rank 0's clock on rank 0, None elsewhere; collective.

        The `uncertainty` of a timeline bounds the error of the clocks of different nodes. Raises
        ArgumentError inside the ``with`` block.
        """
        parts = self._tracing.collect(self._part(), "the gathering of a trace")
        return merge(parts)[0] if parts else None

    def save(self, folder: str | Path) -> None:
        """Write one file for each rank into `folder`, for ``han trace``; collective.

        Raises SetupError on all ranks if one of them cannot write.
        """
        write = partial(write_part, folder, self._part(), self._recording.rank)
        self._tracing.share(write, f"the writing of a trace to {folder}")

    def _part(self) -> Timeline:
        """Return this rank's part of the timeline; the first call compares the clocks."""
        if self._tracing.recorder.under_way(self._recording):
            raise ArgumentError("call timeline() and save() after the trace's with block")
        tracing = self._tracing
        if self._clock is None:
            self._readings += [*tracing.early_readings, tracing.read_clock()]
            self._clock = Clock(tuple(self._readings))
            self._name = tracing.next_name()
        part = tracing.part(self._recording, self._clock)
        return replace(part, communicator=part.communicator + self._name)
