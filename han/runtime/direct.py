"""Messages between two ranks of a communicator, for calls in which the others need not wait.

All engines progress meanwhile. If a call raises, the communicator is revoked: the other rank would
wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from han import _native
from han.common.errors import PeerError
from han.ranks.departures import IN_FLIGHT
from han.ranks.health import Health
from han.ranks.meeting import Patience, abandon

T = TypeVar("T")


def send_to(health: Health, data: bytes, rank: int, step: str) -> None:
    """Send data of the present call to a rank, and wait until they are under way.

    `step` says what for. Raises PeerError if another rank raised, gave up or left, and
    CollectiveTimeoutError.
    """
    notices, call = health.notices, health.engines.own.issued
    request = notices.mail.start_data(notices.token, call, data, notices.places[rank])
    try:
        _wait(health, lambda: request.Test() or None, rank, step)
    except BaseException:
        abandon((request, data))
        raise


def receive_from(health: Health, rank: int, step: str) -> memoryview:
    """Return the data that a rank sends in the present call.

    Raises MemoryError, and what `send_to` raises.
    """
    notices, call = health.notices, health.engines.own.issued
    place = notices.places[rank]
    return _wait(health, lambda: notices.mail.data(notices.token, call, place), rank, step)


def _wait(health: Health, test: Callable[[], T | None], rank: int, step: str) -> T:
    """Return what `test` returns if it is not None."""
    try:
        if (found := test()) is not None:
            return found
    except BaseException as error:
        health.give_up(error)
        raise
    patience = Patience()
    with health.together(step):
        while True:
            if (found := test()) is not None:
                return found
            _native.progress()
            if not patience.pause():
                continue
            try:
                health.look(step)
                _expect(health, rank, step)
            except PeerError:  # what the rank did before counts
                if (found := test()) is None:
                    raise
                return found
            health.meeting.check_limit(step, patience.waited)


def _expect(health: Health, rank: int, step: str) -> None:
    """Raise if a rank left, and its last messages have arrived."""
    late = time.monotonic() - IN_FLIGHT
    if any(one.rank == rank and one.heard < late for one in health.gone()):
        health.lose(rank, step)
