"""Windows: moments on one clock at which all ranks begin an observation, in series.

A barrier lets ranks out at different times, by as much as a small collective takes. Here all ranks
agree on a series of moments by rank 0's clock, and each rank waits for them on its own one. An
observation lasts from the last rank's begin to the last rank's end. Where a rank came late to its
moment, the observation is left out if there are others, and later windows are wider. Where each
rank has a processor, observations in which another program took one of these are left out too,
unless that happens in nearly all of them.

Where ranks are on fewer processors, a rank that has waited for its moment waits for a processor
next, for longer than the call takes. There calls are made in a row, as programs make them.

Source: Hunold, Carpen-Amarie, Reproducible MPI micro-benchmarking isn't as easy as you think,
section 4.4.
"""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI

from han.measure import measured
from han.model.timeline import TaskTime
from han.tuning.costs.stages import Ranks, stage_seconds

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Series:
    """Observations in seconds on the slowest rank, and those that nothing disturbed.

    A late rank disturbs an observation, and so does another program on a rank's processor.
    """

    seconds: Array
    good: Array  # of bool
    begins: Array  # of this rank, by its own clock

    @property
    def is_disturbed(self) -> bool:
        """Whether no observation is good."""
        return not self.good.any()

    @property
    def counted(self) -> Array:
        """Which observations count: those that nothing disturbed, or else the quickest one."""
        return self.seconds == self.seconds.min() if self.is_disturbed else self.good

    @property
    def usable(self) -> list[float]:
        """The seconds of the observations that count."""
        return [float(s) for s in self.seconds[self.counted]]


@dataclass
class Windows:
    """Makes observations on all ranks of `control`.

    `offset` returns the seconds to add to this rank's clock for rank 0's, and is called before each
    series in windows by all ranks. `crowded`: the ranks are on fewer processors. `links`: some
    messages leave a node, so a series begins after a rest.
    """

    control: MPI.Intracomm
    offset: Callable[[], float]
    clock: Callable[[], float] = time.monotonic
    crowded: bool = False
    links: bool = True
    _wider: float = field(default=1.0)
    _lead: float = field(default=measured.LEAD)
    _calm: deque[bool] = field(default_factory=lambda: deque(maxlen=measured.RECENT_SERIES))

    @property
    def busy(self) -> bool:
        """Whether a rank rarely has its processor for itself; the same on all ranks.

        Then a rank that waits lets others run at once, wider windows would not help, and
        observations in which other programs ran count, as there are hardly any others.
        """
        return self.crowded or (
            len(self._calm) == measured.RECENT_SERIES and sum(self._calm) < measured.FEW_CALM
        )

    def observe(
        self, call: Callable[[], object], count: int, expected: float,
        before: Callable[[], object] | None = None,
    ) -> Series:  # fmt: skip
        """Observe `count` calls that take about `expected` seconds each; collective.

        Each rank runs `before` ahead of each window.
        """
        if self.crowded and before is None:
            return self._in_a_row(call, count)
        offset = self.offset()
        width = (
            max(
                measured.LEAST_WINDOW,
                measured.ROOM * expected,
                expected + measured.CROWDED_ROOM * self.crowded,
            )
            * self._wider
        )
        rest = min(width, measured.REST) if self.links or self.busy else 0.0
        first = self._agree(self.clock() + offset + self._lead + rest) - offset
        begins, ends, switches = np.zeros(count), np.zeros(count), np.zeros(count)
        for k in range(count):
            if before is not None:
                before()
            begins[k] = self._wait(first + k * width)
            before_call = _switches()
            call()
            ends[k] = self.clock()
            switches[k] = _switches() - before_call
        lateness = begins - first - width * np.arange(count)
        return self._series(begins, ends, lateness, switches, offset)

    def _in_a_row(self, call: Callable[[], object], count: int) -> Series:
        """Observe calls back to back; each has the mean of its part on the slowest rank."""
        stamps = np.zeros(count + 1)
        self.control.Barrier()
        stamps[0] = self.clock()
        for k in range(count):
            call()
            stamps[k + 1] = self.clock()
        edges = np.linspace(0, count, min(measured.PARTS_OF_ROW, count) + 1).astype(int)
        means = np.diff(stamps[edges]) / np.diff(edges)
        self.control.Allreduce(MPI.IN_PLACE, means, MPI.MAX)
        seconds = np.repeat(means, np.diff(edges))
        return Series(seconds, np.ones(count, bool), stamps[:-1])

    def _series(
        self, begins: Array, ends: Array, lateness: Array, switches: Array, offset: float
    ) -> Series:
        mine = [begins + offset, ends + offset, lateness, switches, -begins - offset]
        most = np.concatenate(mine)
        self.control.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
        begin, end, late, switched, first = most.reshape(5, -1)
        in_time = late <= np.maximum(measured.LATE, measured.LATE_SHARE * (end - begin))
        seconds = durations(-first, begin, end, in_time)
        calm = in_time & (switched == 0)
        if (end - begin).max() < measured.LONG_CALL:  # a longer call is hardly ever left alone
            self._calm.append(bool(calm.any()))
        good = in_time if self.busy else calm
        if 2 * int(in_time.sum()) < len(in_time) and not self.busy:
            self._wider = min(measured.WIDEST, self._wider * measured.WIDER)
        else:
            self._wider = max(1.0, self._wider / measured.WIDER)
        too_soon = self.busy or not in_time[0]  # for a rank to hear of the first moment
        self._lead = (
            measured.LEAD if too_soon else max(measured.SHORT_LEAD, self._lead / measured.WIDER)
        )
        return Series(seconds, good, begins)

    def _agree(self, moment: float) -> float:
        """Return rank 0's moment on all ranks."""
        return float(self.control.bcast(moment))

    def _wait(self, moment: float) -> float:
        """Return the time at which this rank goes on: `moment`, or now if that is over."""
        while True:
            now = self.clock()
            if now >= moment:
                return now
            if self.busy and moment - now > measured.SLEEP:
                time.sleep(moment - now - measured.SLEEP)
            elif self.busy or moment - now > measured.NAP:
                os.sched_yield()


def durations(first: Array, last: Array, end: Array, in_time: Array) -> Array:
    """Return the seconds from the last rank's begin to the last end; from the first one's if late.

    Data may have reached a late rank before it began, so that its own time is almost nothing.
    """
    return end - np.where(in_time, last, first)


def joined(several: Sequence[Series]) -> Series:
    """Return the observations of several series, in their order."""
    names = ("seconds", "good", "begins")
    return Series(*(np.concatenate([getattr(one, name) for one in several]) for name in names))


def _switches() -> int:
    """Return how often this thread had to leave its processor to another one."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def observations(expected: float, busy: bool = False, in_row: bool = False) -> int:
    """Return how many observations a series of calls has that take `expected` seconds.

    On busy ranks more of them, as each one may be disturbed; `in_row`: of calls in a row.
    """
    if expected > measured.SINGLE:
        return 1
    seconds, most = (
        (measured.BUSY_VISIT, measured.BUSY_MOST_OBSERVED)
        if busy
        else (measured.VISIT, measured.MOST_OBSERVED)
    )
    if in_row:
        seconds, most = measured.ROW, measured.MOST_IN_ROW
    return min(most, max(measured.FEWEST_OBSERVED, int(seconds / max(expected, 1e-6))))


def split(times: Sequence[TaskTime], series: Series, stage_of: Mapping[str, int]) -> list[Ranks]:
    """Return the seconds of each stage on this rank, for each observation that counts."""
    of: list[list[TaskTime]] = [[] for _ in series.begins]
    for one in times:
        at = int(np.searchsorted(series.begins, one.end, "right")) - 1
        if at >= 0:
            of[at].append(one)
    return [
        stage_seconds(of[at], stage_of, float(series.begins[at]))
        for at in np.flatnonzero(series.counted)
    ]


def typical(rows: Sequence[Ranks], whole: float | None = None) -> Ranks:
    """Return the median of each stage, scaled so that they add up to `whole` seconds.

    If it is None, they add up to the median of the totals.
    """
    middles = [median(column) for column in zip(*rows, strict=True)]
    total = sum(middles)
    whole = median(map(sum, rows)) if whole is None else whole
    scale = whole / total if total else 1.0
    return tuple(scale * one for one in middles)
