"""Messages between two ranks of a communicator, for calls in which the others need not wait.

All engines progress meanwhile. If a step raises, the communicator is revoked: the other rank would
wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from mpi4py import MPI

from han import _native
from han.common.errors import PeerError
from han.ranks.departures import IN_FLIGHT
from han.ranks.health import Health
from han.ranks.meeting import Patience, abandon

T = TypeVar("T")


class Direct:
    """Sends and receives data of one call.

    `call` is the number of the call, the same on all ranks; `step` says what it is. The methods
    raise PeerError if another rank raised, gave up or left, and CollectiveTimeoutError.
    """

    def __init__(self, health: Health, call: int, step: str) -> None:
        self._health, self._call, self._step = health, call, step

    def send(self, data: bytes, rank: int) -> None:
        """Send data to a rank, and wait until they are under way."""
        notices = self._health.notices
        request = notices.mail.start_data(notices.token, self._call, data, notices.places[rank])
        try:
            self._wait(lambda: request.Test() or None, rank)
        except BaseException:
            abandon(request)  # with its buffer
            raise

    def receive(self, rank: int) -> memoryview:
        """Return the data that a rank sends; raises MemoryError, too."""
        notices, call = self._health.notices, self._call
        place = notices.places[rank]
        return self._wait(lambda: notices.mail.data(notices.token, call, place), rank)

    def _wait(self, test: Callable[[], T | None], rank: int) -> T:
        """Return what `test` returns if it is not None."""
        try:
            if (found := test()) is not None:
                return found  # without the preparation for a long wait
        except MPI.Exception:
            pass  # it comes again below
        except BaseException as error:
            self._health.give_up(error)
            raise
        with self._health.together(self._step):
            patience = Patience()
            while (found := self._tested(test, rank)) is None:
                _native.progress()
                if not patience.pause():
                    continue
                try:
                    self._look(rank)
                except PeerError:  # what the rank did before counts
                    if (found := test()) is None:
                        raise
                    return found
                self._health.meeting.check_limit(self._step, patience.waited)
            return found

    def _tested(self, test: Callable[[], T | None], rank: int) -> T | None:
        try:
            return test()
        except MPI.Exception:  # a rank that died may be the cause
            self._look(rank)
            raise

    def _look(self, rank: int) -> None:
        """Raise if a rank raised, gave up or died, or if this one left and sends nothing more."""
        health = self._health
        health.look(self._step)
        late = time.monotonic() - IN_FLIGHT
        if any(one.rank == rank and one.heard < late for one in health.gone()):
            health.lose(rank, self._step)
