"""One frame for all measurements: communicators, calls in turns, batches, medians, checks.

Candidates are measured in rounds. A round has one batch of back-to-back calls of each candidate, so
that other load on the machine affects all candidates. A batch starts with a barrier of the MPI
library. Its time is that of the slowest rank. The order changes from round to round, because a
batch may leave links busy and caches warm for the next one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from mpi4py import MPI

from han.comm import Comm
from han.common.errors import WrongResultError
from han.common.grouped import grouped
from han.common.units import plural
from han.measure.bench_calls import Array, Buffers, Call
from han.model.measurements import Times
from han.ranks.clocks import system
from han.runtime.alike import ALIKE
from han.runtime.roots import ROOTS

if TYPE_CHECKING:
    from typing_extensions import Self

WARM_UP = 20  # calls, which make plans and warm the caches
MOST_CALLS = 10_000  # in a batch
REFERENCE = "mpi"

T = TypeVar("T")


class Session:
    """The communicators of one measurement, and the turns in which calls are timed.

    Making one is collective over `comm`; use it in ``with``, which frees the communicators. `calls`
    is the number of calls in a batch; None: it follows from the duration of a call.
    """

    def __init__(
        self, comm: MPI.Intracomm, rounds: int, calls: int | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:  # fmt: skip
        self.control = comm.Dup()
        self.rounds, self.calls = rounds, calls
        self._clock = clock
        self._made: list[MPI.Intracomm] = []
        self._load = now()

    def others(self) -> float:
        """Return how many processors other programs have used since the start; collective."""
        return others(self.control.allgather(used_since(self._load)))

    def add_han(self, config: Any) -> Comm:
        """Return a new communicator of han; collective."""
        made = Comm(self.control.Dup(), config)
        self._made.append(made)
        return made

    def add_mpi(self) -> MPI.Intracomm:
        """Return a new communicator of the MPI library; collective."""
        self._made.append(self.control.Dup())
        return self._made[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # after an error, some ranks may never get here
            for comm in (*self._made, self.control):
                comm.Free()

    # ---- time -------------------------------------------------------------------------------

    def times(
        self, calls: Mapping[str, Call], seconds: float, warm_up: int = WARM_UP,
        most: int = MOST_CALLS,
    ) -> dict[str, Times]:  # fmt: skip
        """Time calls in turns, in batches of about `seconds`; return microseconds per call."""
        counts = {n: self.batch_size(call, seconds, warm_up, most) for n, call in calls.items()}
        return summary(self.in_turns(calls, counts), counts)

    def in_turns(self, calls: Mapping[str, Call], counts: Mapping[str, int]) -> dict[str, Array]:
        """Return the microseconds per call in each round; batches have `counts` calls."""
        mine = np.zeros((len(calls), self.rounds))
        rows = [*zip(mine, calls.items(), strict=True)]
        for k in range(self.rounds):
            for row, (name, call) in in_order(rows, k):
                row[k] = self.batch(call, counts[name])
        return dict(zip(calls, self.slowest(mine) * 1e6, strict=True))

    def batch(self, call: Call, count: int = 1) -> float:
        """Return the seconds per call of `count` back-to-back calls on this rank."""
        self.control.Barrier()
        start = self._clock()
        for _ in repeat(None, count):
            call()
        return (self._clock() - start) / count

    def apart(self, call: Call, count: int) -> float:
        """Return the seconds per call of `count` calls on this rank.

        A barrier follows each call, outside of its time.
        """
        total = 0.0
        for _ in repeat(None, count):
            start = self._clock()
            call()
            total += self._clock() - start
            self.control.Barrier()
        return total / count

    def batch_size(
        self, call: Call, seconds: float, warm_up: int = WARM_UP, most: int = MOST_CALLS
    ) -> int:
        """Warm up; return how many calls take about `seconds`, up to `most`, on all ranks alike."""
        self.batch(call, warm_up)
        if self.calls is not None:
            return self.calls
        count = 1
        while True:
            each = float(self.slowest([self.batch(call, count)])[0])
            if each * count >= seconds / 4 or count >= most:
                return max(1, min(most, round(seconds / each)))
            count = min(4 * count, max(count + 1, math.ceil(seconds / each)))

    def slowest(self, mine: Array | list[float]) -> Array:
        """Return the maximum of each number over all ranks; collective."""
        found = np.array(mine, float)
        self.control.Allreduce(MPI.IN_PLACE, found, MPI.MAX)
        return found

    # ---- results ----------------------------------------------------------------------------

    def compare(self, buffers: Buffers, calls: Mapping[str, Call]) -> None:
        """Run each call once, and compare its result with that of the MPI library's call.

        Raises WrongResultError on all ranks, with the ranks and bytes that differ.
        """
        results = {}
        for name, call in calls.items():
            buffers.reset()
            self.control.Barrier()
            call()
            results[name] = buffers.result()
        right = results.pop(REFERENCE)
        wrong = {name: np.flatnonzero(found != right) for name, found in results.items()}
        mine = {name: (int(at[0]), at.size) for name, at in wrong.items() if at.size}
        problems = [
            f"rank {rank}: {count} bytes differ, the first at offset {first} ({name})"
            for rank, told in enumerate(self.control.allgather(mine))
            for name, (first, count) in told.items()
        ]
        if problems:
            raise WrongResultError(
                f"{buffers.case.describe()}: the result differs from MPI's: {'; '.join(problems)}"
            )


def begin_anew() -> None:
    """Let new communicators take over nothing from earlier ones; the first of them is a root.

    The process may have as many roots as it measures rounds, so all rounds are alike.
    """
    ALIKE.clear()
    for root in [*ROOTS.kept]:
        ROOTS.leave_out(root)
    ROOTS.room = max(1, ROOTS.room)


def in_order(several: Sequence[T], turn: int) -> list[T]:
    """Return the order of a turn, by its number.

    After twice as many turns as there are candidates, each of two or three has come directly after
    each other one equally often.
    """
    at = turn % len(several) if several else 0
    ordered = [*several[at:], *several[:at]]
    return ordered if turn // max(1, len(several)) % 2 == 0 else ordered[::-1]


def summary(us: Mapping[str, Array], counts: Mapping[str, int]) -> dict[str, Times]:
    """Return the times of batches of `counts` calls, from the microseconds of each round."""
    return {
        name: Times(float(np.median(one)), float(one.min()), float(one.max()), counts[name])
        for name, one in us.items()
    }


# ---- other programs -----------------------------------------------------------------------------


STAT = Path("/proc/stat")
BUSY = (1, 2, 3, 6, 7)  # fields of its first line: user, nice, system, interrupts
WORTH_TELLING = 0.2  # processors
SHORTEST = 0.2  # seconds: the kernel counts in steps of 10 ms


class Used(NamedTuple):
    """What a rank saw: its kernel, seconds, and seconds of its processors and of its own."""

    kernel: str
    elapsed: float
    busy: float
    own: float


def used_since(begun: Sequence[float]) -> Used:
    """Return what this rank has seen since ``now()`` returned `begun`."""
    elapsed, busy, own = (b - a for a, b in zip(begun, now(), strict=True))
    return Used(system(), elapsed, busy, own)


def others(used: list[Used]) -> float:
    """Return how many processors others used, on the machine where they used most.

    The kernel counts the time in which processors were busy; what ranks used of it is subtracted.
    """
    machines = grouped((one.kernel, one) for one in used)
    return max(map(_others_on, machines.values()), default=0.0)


def _others_on(ranks: list[Used]) -> float:
    elapsed = max(one.elapsed for one in ranks)
    if elapsed < SHORTEST:
        return 0.0
    busy = sum(one.busy for one in ranks) / len(ranks)
    return max(0.0, (busy - sum(one.own for one in ranks)) / elapsed)


def note(processors: float) -> str:
    """Return a line that tells of other programs, or nothing."""
    if processors < WORTH_TELLING:
        return ""
    cores = plural(os.cpu_count() or 1, "processor")
    return (
        f"# others    other programs used {processors:.1f} of {cores} meanwhile:\n"
        "#           times are longer, and ratios differ, from those of an idle machine"
    )


def now() -> tuple[float, float, float]:
    """Return seconds: of the clock, of all processors when busy, and of this process."""
    times = os.times()
    try:
        fields = STAT.read_text().split("\n", 1)[0].split()
        busy = sum(int(fields[k]) for k in BUSY) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        busy = 0.0  # not told here: no others are seen
    return perf_counter(), busy, times.user + times.system
