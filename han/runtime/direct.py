"""Messages between two ranks of a communicator, for calls in which the others need not wait.

All engines progress meanwhile. If a step raises, the communicator is revoked: the other rank would
wait for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from typing import TypeVar

from mpi4py import MPI

from han import _native
from han.common.errors import PeerError
from han.ranks.health import Health
from han.ranks.measured import IN_FLIGHT, LOOK, YIELDS
from han.ranks.meeting import Patience, abandon

T = TypeVar("T")


class Direct:
    """Sends and receives data of one call.

    `call` is the number of the call, the same on all ranks; `step` says what it is. The methods
    raise PeerError if another rank raised, gave up or left, and CollectiveTimeoutError.
    """

    def __init__(self, health: Health, call: int, step: str) -> None:
        self._health, self._step = health, step
        notices = health.notices
        self._mail, self._places = notices.mail, notices.places
        self._label = notices.mail.label(notices.token, call)

    def send(self, data: bytes, rank: int) -> None:
        """Send data to a rank, and wait until they are under way."""
        self._sending(data, rank, lambda sent: sent or None)

    def receive(self, rank: int) -> memoryview:
        """Return the data that a rank sends; raises MemoryError, too."""
        place = self._places[rank]
        return self._wait(lambda: self._mail.data(self._label, place), (rank,))

    def exchange(self, data: bytes, rank: int) -> memoryview:
        """Send data to a rank, which does the same at the same time; return what it sends."""
        place, found = self._places[rank], None

        def test(sent: bool) -> memoryview | None:
            nonlocal found
            if found is None:
                found = self._mail.data(self._label, place)
            return found if sent else None

        return self._sending(data, rank, test)

    def _sending(self, data: bytes, rank: int, test: Callable[[bool], T | None]) -> T:
        """Send data to a rank; return what `test` returns, which is told whether they are sent."""
        request = self._mail.start_data(self._label, data, self._places[rank])
        try:
            return self._wait(lambda: test(request.Test()), (rank,))
        except BaseException:
            abandon(request)  # with its buffer
            raise

    def receive_each(self, ranks: Collection[int]) -> dict[int, memoryview]:
        """Return the data that each of some ranks sends; raises MemoryError, too.

        Those of all ranks are under way together.
        """
        found: dict[int, memoryview] = {}
        missing = [*ranks]

        def test() -> dict[int, memoryview] | None:
            for rank in missing[:]:
                data = self._mail.data(self._label, self._places[rank])
                if data is not None:
                    found[rank] = data
                    missing.remove(rank)
            return None if missing else found

        return self._wait(test, missing)

    def _wait(self, test: Callable[[], T | None], ranks: Collection[int]) -> T:
        """Return what `test` returns if it is not None; `ranks` are those that it waits for."""
        try:
            soon = time.monotonic() + LOOK
            for _ in range(YIELDS):  # without the preparation for a long wait
                if (found := test()) is not None:
                    return found
                _native.progress()
                os.sched_yield()
                if time.monotonic() > soon:
                    break
        except MPI.Exception:
            pass  # it comes again below
        except BaseException as error:
            self._health.give_up(error)
            raise
        with self._health.together(self._step):
            patience = Patience(YIELDS)
            while (found := self._tested(test, ranks)) is None:
                _native.progress()
                if not patience.pause():
                    continue
                try:
                    self._look(ranks)
                except PeerError:  # what the ranks did before counts
                    if (found := test()) is None:
                        raise
                    return found
                self._health.meeting.check_limit(self._step, patience.waited)
            return found

    def _tested(self, test: Callable[[], T | None], ranks: Collection[int]) -> T | None:
        try:
            return test()
        except MPI.Exception:  # a rank that died may be the cause
            self._look(ranks)
            raise

    def _look(self, ranks: Collection[int]) -> None:
        """Raise if a rank raised, gave up or died, or if one of these left and is silent."""
        health = self._health
        health.look(self._step)
        late = time.monotonic() - IN_FLIGHT
        for one in health.gone():
            if one.rank in ranks and one.heard < late:
                health.lose(one.rank, self._step)
