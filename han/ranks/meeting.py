"""Steps of set-up that ranks take together, while the collectives under way go on.

A rank that waited inside a blocking call of MPI would not move its outstanding collectives,
and could not be told of errors. Here it polls: every round steps all collectives, and now and
then looks at the clock and at what the other ranks report.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

from han import _native
from han.common.errors import CollectiveTimeoutError, SetupError
from han.message.unlocked import return_errors

T = TypeVar("T")
# Tags on han's own communicators; engines' tags are larger.
TAG_COME, TAG_GO, TAG_CLOCK, TAG_LAST = 1, 2, 3, 4
YIELDS = 200  # rounds before naps
NAP = 50e-6  # seconds
LOOK = 0.02  # seconds between two looks around
_abandoned: list[object] = []  # MPI may still write to what these own


def abandon(owner: object) -> None:
    """Never let go of what MPI may still read or write."""
    _abandoned.append(owner)


class Patience:
    """How a loop that polls waits between two rounds."""

    def __init__(self) -> None:
        self.rounds = 0
        self.begun = self.looked = time.monotonic()

    @property
    def waited(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begun

    def pause(self) -> bool:
        """Let others run; return whether it is time to look around."""
        self.rounds += 1
        if self.rounds < YIELDS:
            os.sched_yield()
            return False
        time.sleep(NAP)
        now = time.monotonic()
        if now - self.looked < LOOK:
            return False
        self.looked = now
        return True


class Meeting:
    """Where the ranks of `comm`, a communicator of han's own, meet.

    Whoever waits longer than `limit` seconds (0: for ever) raises CollectiveTimeoutError;
    `look`, called with the step's name, may raise for other reasons.
    """

    def __init__(self, comm: MPI.Intracomm, limit: float) -> None:
        self.comm, self.limit = comm, limit
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.look: Callable[[str], None] | None = None

    def wait(self, request: MPI.Request, step: str, keep: object = None) -> None:
        """Wait for an MPI request that the step `step` stands on; `keep` owns its buffers."""
        patience = Patience()
        try:
            while not request.Test():
                _native.progress()
                if patience.pause() and not request.Test():
                    self._look(step, patience.waited)
        except BaseException:
            abandon((request, keep))
            raise

    def _look(self, step: str, waited: float) -> None:
        if self.look is not None:
            self.look(step)
        if self.limit and waited > self.limit:
            raise CollectiveTimeoutError(
                f"rank {self.rank} waited for {self.limit:g} s in {step} for the other ranks "
                "(the limit is HAN_TIMEOUT; 0: none)"
            )

    def barrier(self, step: str) -> None:
        """Wait until every rank has come."""
        self.wait(self.comm.Ibarrier(), step)

    def gather(self, ranks: Sequence[int], step: str) -> None:
        """Wait until each of `ranks`, of whom this is one, has come."""
        first, *others = ranks
        nothing = bytearray(1)
        if self.rank == first:
            for tag, move in ((TAG_COME, self.comm.Irecv), (TAG_GO, self.comm.Isend)):
                for r in others:
                    self.wait(move([nothing, 0, MPI.BYTE], r, tag), step, nothing)
        else:
            for tag, move in ((TAG_COME, self.comm.Isend), (TAG_GO, self.comm.Irecv)):
                self.wait(move([nothing, 0, MPI.BYTE], first, tag), step, nothing)

    def allgather(self, value: T, step: str) -> list[T]:
        """Return what every rank passes."""
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        counts = np.empty(self.size, np.int64)
        mine = np.array([data.size], np.int64)
        self.wait(self.comm.Iallgather(mine, counts), step, (mine, counts))
        everything = np.empty(int(counts.sum()), np.uint8)
        target = [everything, counts.tolist(), MPI.BYTE]
        self.wait(self.comm.Iallgatherv([data, MPI.BYTE], target), step, (data, everything))
        return _unpickle(everything, counts)

    def collect(self, value: T, step: str) -> list[T]:
        """Return on rank 0 what every rank passes; nothing elsewhere."""
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        counts = self.allgather(data.size, step)
        everything = np.empty(0 if self.rank else sum(counts), np.uint8)
        target = None if self.rank else [everything, counts, MPI.BYTE]
        self.wait(self.comm.Igatherv([data, MPI.BYTE], target), step, (data, everything))
        return [] if self.rank else _unpickle(everything, counts)

    def share(self, make: Callable[[], T], step: str) -> list[T]:
        """Return what `make` returns on every rank; where it raises on one, all raise SetupError.

        Only what raises at the same step on all ranks leaves the ranks together.
        """
        value, problem = None, None
        try:
            value = make()
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            problem = number, f"{type(error).__name__}: {error}"
        said = self.allgather((value, problem), step)
        problems = [(r, *p) for r, (_, p) in enumerate(said) if p is not None]
        if problems:
            raise SetupError(step, problems)
        return [v for v, _ in said]  # type: ignore[misc]


def _unpickle(
    data: np.ndarray[Any, Any], counts: Sequence[int] | np.ndarray[Any, Any]
) -> list[Any]:
    ends = np.cumsum(counts)
    return [
        pickle.loads(data[end - n : end].tobytes()) for n, end in zip(counts, ends, strict=True)
    ]


def duplicate(comm: MPI.Intracomm, limit: float) -> MPI.Intracomm:
    """Duplicate a communicator for han's own use; collective."""
    own, request = comm.Idup()
    Meeting(comm, limit).wait(request, "the making of a han.Comm")
    return_errors(own)
    return own
