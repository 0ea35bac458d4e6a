"""Ranks that have left: their programs ended while other ranks may still wait for them.

A rank that leaves stores in shared memory, for the ranks of its node, how far it has come and why
it leaves. It sends the same to other nodes in a message. A call that it has finished completes on
all ranks. A rank that waits in a later one raises PeerError.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from han.common.errors import PeerError

IN_FLIGHT = 0.1  # seconds in which the last messages of a rank that left arrive
ENDED = "its program ended (at its last line, by sys.exit or by MPI.Finalize)"
GRACE = 1.0  # seconds in which a rank whose program ended may still make calls, at exit


@dataclass(frozen=True)
class Departure:
    """How far a rank came before it left, and why it left.

    All ranks count alike: `steps` set-up steps are finished, `calls` is the number of the next
    call that is left to the MPI library, and `runs` holds (number, finished runs) of each engine.
    A departure that is read from shared memory has no `runs`: the control records tell them.
    """

    rank: int
    text: str
    steps: int
    calls: int
    runs: tuple[tuple[int, int], ...] | None = None
    heard: float = field(default_factory=time.monotonic, compare=False)

    @property
    def may_call(self) -> bool:
        """Whether the rank may still take part in a call, in a function that runs at exit."""
        return self.text == ENDED and time.monotonic() < self.heard + GRACE

    def finished(self, engine: int) -> int | None:
        """Return the number of runs that the rank finished on an engine; None: see its record."""
        return None if self.runs is None else dict(self.runs).get(engine, 0)

    def error(self, rank: int, story: str) -> PeerError:
        """Return the error of `rank`; `story` says what it waited for."""
        return PeerError(f"rank {self.rank} left: {self.text}; rank {rank} was in {story}")


def lost_run(gone: Iterable[Departure], engine: int, finished: int) -> Departure | None:
    """Return who left without the run that follows `finished` runs of an engine, if any did."""
    for one in gone:
        runs = one.finished(engine)
        if runs is not None and runs <= finished:
            return one
    return None


def lost_call(gone: Iterable[Departure], call: int) -> Departure | None:
    """Return who left without making a call that is left to the MPI library, if any did."""
    return next((one for one in gone if one.calls <= call), None)


def lost_step(
    gone: Iterable[Departure], steps: int, among: Sequence[int] | None
) -> Departure | None:
    """Return who left without the set-up step that follows `steps` steps, if any did.

    Steps of some ranks, those in `among`, are not counted. A rank that has left may have taken
    part in such a step: then its last message arrives within IN_FLIGHT.
    """
    late = time.monotonic() - IN_FLIGHT
    for one in gone:
        if one.steps > steps:
            continue
        if among is None or (one.rank in among and one.heard < late):
            return one
    return None
