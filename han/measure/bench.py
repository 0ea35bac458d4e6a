"""Measure han beside the MPI library, in turns, in one run.

Every size is measured in rounds; in each round a batch of back-to-back calls of han and one of
the MPI library follow each other, so that whatever else the machine does meets both. A batch
starts at a barrier of MPI's own; its time is that of the slowest rank. Both sides get the same
NumPy arrays through the same mpi4py calls, after their results were compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import repeat
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

from han.comm import Comm
from han.common.errors import WrongResultError
from han.common.units import format_size
from han.measure.bench_calls import Buffers, Call, Case, Mode, Prepared, check_case, prepare
from han.model.collectives import DATALESS
from han.model.measurements import Times

SHORTEST_BATCH = 0.002  # seconds: below, the barrier and the clock show
LONGEST_BATCH = 0.020
WARM_UP = 20  # calls: those that plan, and the first that try two ways (native/engine/trials.h)
SIDES = ("han", "mpi")


@dataclass(frozen=True)
class Settings:
    """How to measure; `seconds` is about what one size may take, both sides together."""

    mode: Mode = Mode.BLOCKING
    dtype: str = "float64"
    op: str = "sum"
    root: int = 0
    rounds: int = 9
    iterations: int | None = None
    seconds: float = 0.3
    check: bool = True
    only: str | None = None
    shared: bool = False
    fresh: bool = False  # the data is written anew before each call, within the time

    def case(self, collective: str, nbytes: int) -> Case:
        """Return the case of one collective and size."""
        return Case(collective, nbytes, self.dtype, self.op, self.root)

    @property
    def sides(self) -> tuple[str, ...]:
        """Who is measured."""
        return SIDES if self.only is None else (self.only,)

    @property
    def compares(self) -> bool:
        """Whether han's results are held against MPI's."""
        return self.check and self.only != "mpi"


@dataclass(frozen=True)
class Row:
    """One size of one collective."""

    collective: str
    nbytes: int
    times: Mapping[str, Times]
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        """How many times longer the MPI library takes; None if only one side was measured."""
        if len(self.times) < len(SIDES):
            return None
        return self.times["mpi"].median / self.times["han"].median

    def record(self) -> dict[str, Any]:
        """Return the row as plain data."""
        record: dict[str, Any] = {"collective": self.collective, "nbytes": self.nbytes}
        record |= {side: asdict(times) for side, times in self.times.items()}
        return record | {"ratio": self.ratio, "notes": list(self.notes)}


def _write_and_call(buffers: Buffers, call: Call) -> None:
    buffers.write()
    call()


class Bench:
    """The communicators of a measurement. Making one is collective; use it in ``with``."""

    def __init__(self, comm: MPI.Intracomm, config: Any, settings: Settings) -> None:
        self.settings = settings
        self.control = comm.Dup()
        self.comms: dict[str, MPI.Intracomm] = {}
        if "han" in settings.sides:
            self.comms["han"] = Comm(comm.Dup(), config)
        if "mpi" in settings.sides or settings.compares:
            self.comms["mpi"] = comm.Dup()

    @property
    def han(self) -> Comm | None:
        """The communicator of han's side, if there is one."""
        comm = self.comms.get("han")
        return comm if isinstance(comm, Comm) else None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # after an error the ranks need not all get here
            for comm in (*self.comms.values(), self.control):
                comm.Free()

    def rows(self, collective: str, sizes: Iterable[int]) -> Iterator[Row]:
        """Measure a collective, size by size; collective over the communicator.

        Raises ArgumentError before anything is called, and WrongResultError on all ranks.
        """
        for nbytes in sizes if collective not in DATALESS else (0,):
            yield self.measure(self.settings.case(collective, nbytes))

    def measure(self, case: Case) -> Row:
        """Measure one case."""
        check_case(case, self.control.size)
        buffers = Buffers(case, self.control.rank, self.control.size, self.settings.shared)
        prepared = {
            side: prepare(comm, buffers, self.settings.mode) for side, comm in self.comms.items()
        }
        self._compare(buffers, prepared)
        calls = {side: prepared[side].call for side in self.settings.sides}
        if self.settings.fresh:
            calls = {side: partial(_write_and_call, buffers, call) for side, call in calls.items()}
        times = self.time(calls)
        self._compare(buffers, prepared)  # later calls take quicker paths than the first
        for one in prepared.values():
            one.free()
        notes = tuple(f"{side}: {one.note}" for side, one in prepared.items() if one.note)
        return Row(case.collective, case.nbytes, times, notes)

    def _compare(self, buffers: Buffers, prepared: Mapping[str, Prepared]) -> None:
        """Run both sides once and compare every rank's bytes, if that is wanted."""
        if not self.settings.compares:
            return
        results = []
        for side in SIDES:
            buffers.reset()
            self.control.Barrier()
            prepared[side].call()
            results.append(buffers.result())
        ours, theirs = results
        wrong = np.flatnonzero(ours != theirs)
        said = self.control.allgather((int(wrong[0]), wrong.size) if wrong.size else None)
        problems = [
            f"rank {rank}: {count} bytes differ, the first at offset {first}"
            for rank, (first, count) in ((r, s) for r, s in enumerate(said) if s is not None)
        ]
        if problems:
            raise WrongResultError(
                f"{buffers.case.describe()}: han's result is not MPI's: {'; '.join(problems)}"
            )

    def time(self, calls: Mapping[str, Call]) -> dict[str, Times]:
        """Measure calls in turns, whatever they are; collective."""
        counts = {side: self._batch_size(call) for side, call in calls.items()}
        rounds = self.settings.rounds
        mine = np.zeros((len(calls), rounds))
        for k in range(rounds):
            for row, (side, call) in zip(mine, calls.items(), strict=True):
                row[k] = self._batch(call, counts[side])
        slowest = np.empty_like(mine)
        self.control.Allreduce(mine, slowest, MPI.MAX)
        return {
            side: Times(float(np.median(us)), float(us.min()), float(us.max()), counts[side])
            for side, us in zip(calls, slowest * 1e6, strict=True)
        }

    def _batch(self, call: Call, count: int) -> float:
        """Return the seconds per call of `count` calls in a row, on this rank."""
        self.control.Barrier()
        start = perf_counter()
        for _ in repeat(None, count):
            call()
        return (perf_counter() - start) / count

    def _batch_size(self, call: Call) -> int:
        """Warm up, and return how many calls make a batch; the same on all ranks."""
        self._batch(call, WARM_UP)
        if self.settings.iterations is not None:
            return self.settings.iterations
        share = self.settings.seconds / (self.settings.rounds * len(self.settings.sides))
        wanted = min(max(share, SHORTEST_BATCH), LONGEST_BATCH)
        count = 1
        while True:
            each: float = self.control.allreduce(self._batch(call, count), op=MPI.MAX)
            if each * count >= wanted / 4:
                return max(1, round(wanted / each))
            count = min(4 * count, max(count + 1, math.ceil(wanted / each)))


def describe_sizes(sizes: Iterable[int]) -> str:
    """Return sizes as people write them."""
    return ", ".join(format_size(size) for size in sizes)
