"""Calls of sizes that change from call to call: a first pass over them and a second one.

A pass takes as many of the sizes as its time allows, in a random order that is the same on all
ranks. Both sides take turns after each chunk of sizes. The first pass is on a new communicator. A
last pass repeats the median size of each chunk, to tell what a change of the size costs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

from han.common.errors import WrongResultError
from han.measure.bench_calls import Array
from han.measure.session import Session

SIZES = "sizes"
CHUNK = 25  # calls of one side at a time
ITEM = 8  # bytes of a number


@dataclass(frozen=True)
class Sizes:
    """Different sizes in bytes, from `least` to `most`."""

    name: str
    least: int
    most: int
    count: int
    blocks: bool = False  # gathered by all, one of each rank, the largest of that size
    group: str = SIZES

    def counts(self) -> list[int]:
        """Return the numbers of each call, all different, in a random order."""
        chance = random.Random(self.count)
        return chance.sample(range(self.least // ITEM, self.most // ITEM + 1), self.count)

    @property
    def passes(self) -> tuple[str, str, str]:
        """The names of the rows of the passes."""
        repeated = f"{self.name}, each {CHUNK} times"
        return f"{self.name}, first pass", f"{self.name}, once more", repeated


SMALL = Sizes("2000 sizes to 16KiB", 8, 16 << 10, 2000)
LARGE = Sizes("500 sizes, 80KiB to 1MiB", 80 << 10, 1 << 20, 500)
BLOCKS = Sizes("1000 Allgathervs to 16KiB", 8, 16 << 10, 1000, blocks=True)


@dataclass(frozen=True)
class Passes:
    """Microseconds per call of the passes, by side, and the number of calls in each."""

    first: Mapping[str, float]
    second: Mapping[str, float]
    repeated: Mapping[str, float]
    calls: int


@dataclass(frozen=True)
class _Side:
    """A communicator and the arrays of its calls."""

    comm: MPI.Intracomm
    send: Array
    recv: Array
    blocks: bool

    def _arguments(self, most: int) -> tuple[Any, Any]:
        if not self.blocks:
            return self.send[:most], self.recv[:most]
        counts = counts_of(most, self.comm.Get_size())
        return self.send[: counts[self.comm.Get_rank()]], [self.recv, counts, MPI.DOUBLE]

    def seconds(self, control: MPI.Intracomm, counts: Sequence[int]) -> float:
        """Return the seconds of calls of some counts on this rank."""
        call = self.comm.Allgatherv if self.blocks else self.comm.Allreduce
        pairs = [self._arguments(n) for n in counts]
        control.Barrier()
        begun = perf_counter()
        for send, recv in pairs:
            call(send, recv)
        return perf_counter() - begun


def counts_of(most: int, size: int) -> list[int]:
    """Return numbers of each rank's block: the largest is `most`, at another rank for each size."""
    return [most - most * ((rank + most) % size) // size for rank in range(size)]


def passes(
    session: Session, comms: Mapping[str, MPI.Intracomm], sizes: Sizes, seconds: float
) -> Passes:
    """Make the passes; collective.

    `comms` are new communicators by side. The first pass ends after about `seconds` of all sides
    together, the second one after the same sizes. Raises WrongResultError on all ranks.
    """
    counts = sizes.counts()
    most = max(counts)
    room = most * session.control.Get_size() if sizes.blocks else most
    sides = {
        name: _Side(comm, np.ones(most), np.zeros(room), sizes.blocks)
        for name, comm in comms.items()
    }
    for side in sides.values():
        side.seconds(session.control, [1])  # sets the communicator up
    first, reached = _pass(session, sides, counts, seconds)
    _check(session, sides, max(counts[:reached]), sizes.blocks)
    second, _ = _pass(session, sides, counts[:reached], np.inf)
    repeated, _ = _pass(session, sides, medians(counts[:reached]), np.inf)
    return Passes(first, second, repeated, reached)


def medians(counts: Sequence[int]) -> list[int]:
    """Return as many counts, in which each chunk repeats the median of its own."""
    chunks = [counts[begin : begin + CHUNK] for begin in range(0, len(counts), CHUNK)]
    return [median_low(chunk) for chunk in chunks for _ in chunk]


def _pass(
    session: Session, sides: Mapping[str, _Side], counts: Sequence[int], seconds: float
) -> tuple[dict[str, float], int]:
    """Return microseconds per call by side, and the number of calls of each."""
    spent, done = np.zeros(len(sides)), 0
    while done < len(counts) and (not done or spent.sum() < seconds):
        chunk = counts[done : done + CHUNK]
        done += len(chunk)
        mine = [side.seconds(session.control, chunk) for side in sides.values()]
        spent += session.slowest(np.array(mine))
    return dict(zip(sides, map(float, spent * 1e6 / done), strict=True)), done


def _check(session: Session, sides: Mapping[str, _Side], most: int, blocks: bool) -> None:
    """Compare what the calls of a pass left with the number of ranks, or with the ones gathered."""
    size = session.control.Get_size()
    right, reach = (1, sum(counts_of(most, size))) if blocks else (size, most)
    wrong = {name: int((side.recv[:reach] != right).sum()) for name, side in sides.items()}
    problems = [
        f"rank {rank}: {count} numbers ({name})"
        for rank, told in enumerate(session.control.allgather(wrong))
        for name, count in told.items()
        if count
    ]
    if problems:
        raise WrongResultError(f"calls of different sizes are wrong: {'; '.join(problems)}")
