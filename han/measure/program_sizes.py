"""Calls of sizes that change from call to call: a first pass over them and a second one.

A pass takes as many of the sizes as its time allows, in a random order that is the same on all
ranks. Both sides take turns after each chunk of sizes. The first pass is on a new communicator. A
last pass repeats sizes, one a chunk, to tell what a change of the size costs.
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
    """Microseconds per call by side, of each pass, and the number of calls in each."""

    us: tuple[Mapping[str, float], ...]
    calls: int


@dataclass(frozen=True)
class _Side:
    """A communicator and the arrays of its calls."""

    comm: MPI.Intracomm
    send: Array
    recv: Array
    blocks: bool

    def _arguments(self, most: int, largest: int) -> tuple[Any, Any]:
        if not self.blocks:
            return self.send[:most], self.recv[:most]
        counts = counts_of(most, self.comm.Get_size(), largest)
        return self.send[: counts[self.comm.Get_rank()]], [self.recv, counts, MPI.DOUBLE]

    def seconds(self, control: MPI.Intracomm, counts: Sequence[int], largest: int = 0) -> float:
        """Return the seconds of calls of some counts on this rank; `largest` as in `counts_of`."""
        call = self.comm.Allgatherv if self.blocks else self.comm.Allreduce
        pairs = [self._arguments(n, largest) for n in counts]
        control.Barrier()
        begun = perf_counter()
        for send, recv in pairs:
            call(send, recv)
        return perf_counter() - begun


def counts_of(most: int, size: int, largest: int) -> list[int]:
    """Return numbers of each rank's block: `most` at one rank, less from rank to rank after it.

    The largest block is at rank `largest` modulo `size`. A chunk of calls keeps it at one rank:
    in turn at several, ranks would wait for each other in each call, whether sizes change or not.
    """
    return [most - most * ((rank - largest) % size) // size for rank in range(size)]


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
    repeated, _ = _pass(session, sides, repeated_sizes(counts[:reached]), np.inf)
    return Passes((first, second, repeated), reached)


def repeated_sizes(counts: Sequence[int]) -> list[int]:
    """Return as many counts of the same distribution, in which each chunk repeats one.

    The chunks repeat the medians of groups of neighbours in size. Medians of the chunks themselves
    would all lie in the middle, where a call may take less time than the mean over all sizes.
    """
    ordered = sorted(counts)
    groups = [ordered[begin : begin + CHUNK] for begin in range(0, len(ordered), CHUNK)]
    chunks = [[median_low(group)] * len(group) for group in groups]
    whole, rest = chunks[: len(counts) // CHUNK], chunks[len(counts) // CHUNK :]
    random.Random(len(counts)).shuffle(whole)
    return [count for chunk in whole + rest for count in chunk]


def _pass(
    session: Session, sides: Mapping[str, _Side], counts: Sequence[int], seconds: float
) -> tuple[dict[str, float], int]:
    """Return microseconds per call by side, and the number of calls of each."""
    spent, done = np.zeros(len(sides)), 0
    while done < len(counts) and (not done or spent.sum() < seconds):
        chunk, number = counts[done : done + CHUNK], done // CHUNK
        done += len(chunk)
        mine = [side.seconds(session.control, chunk, number) for side in sides.values()]
        spent += session.slowest(mine)
    return dict(zip(sides, map(float, spent * 1e6 / done), strict=True)), done


def _check(session: Session, sides: Mapping[str, _Side], most: int, blocks: bool) -> None:
    """Compare what the calls of a pass left with the number of ranks, or with the ones gathered."""
    size = session.control.Get_size()
    right, reach = (1, sum(counts_of(most, size, 0))) if blocks else (size, most)
    wrong = {name: int((side.recv[:reach] != right).sum()) for name, side in sides.items()}
    problems = [
        f"rank {rank}: {count} numbers ({name})"
        for rank, told in enumerate(session.control.allgather(wrong))
        for name, count in told.items()
        if count
    ]
    if problems:
        raise WrongResultError(f"calls of different sizes are wrong: {'; '.join(problems)}")
