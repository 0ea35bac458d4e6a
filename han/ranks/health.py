"""Whether the ranks of a communicator are still together, and what an error does to that.

An error of a call that has moved nothing is told to the other ranks, and the call takes its turn
all the same. After an error that the ranks cannot stay together in, the communicator is revoked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from mpi4py import MPI

from han import _native
from han.common.errors import ConfigError, RevokedError, SetupError, SharedMemoryError
from han.ranks.meeting import Meeting
from han.ranks.notices import Notices, first_cause, peer_error

AGREED = (ConfigError, SharedMemoryError, SetupError)  # raised by all ranks at the same step


class Engines(Protocol):
    """The engines that an error concerns."""

    @property
    def own(self) -> _native.Engine:
        """The communicator's own engine."""

    def mark_error(self, call: int) -> None:
        """Mark `call` as one that raised here, in memory that peers read."""

    def skip(self) -> None:
        """Start a call that moves nothing, in place of one that raised."""

    def fail(self) -> None:
        """Let every engine raise from now on."""


class Health:
    """What this rank knows of the others: alive, at the same step, or failed."""

    engines: Engines  # set once they are made, before any call

    def __init__(self, meeting: Meeting, notices: Notices) -> None:
        self.meeting, self.notices = meeting, notices
        self.rank, self.size = meeting.rank, meeting.size
        self.failed: str | None = None  # why no call can be made any more
        self.step = ""  # of set-up, while one is under way
        self._preparing = 0  # 1 while a call is prepared: errors of that call concern it already

    def live(self) -> None:
        """Raise RevokedError after an error that the ranks could not stay together in.

        Raises RuntimeError inside a user's reduction operation.
        """
        if _native.inside_op():
            raise RuntimeError(
                "a reduction operation must not call han: it runs inside a collective"
            )
        if self.failed is not None:
            raise RevokedError(
                f"this communicator cannot be used any more: {self.failed}; "
                "make a new han.Comm from a communicator of the ranks that are left"
            )

    @contextlib.contextmanager
    def preparing(self) -> Iterator[None]:
        """Prepare a call: an error is told to the other ranks, and the call counted as one."""
        own = self.engines.own
        issued, self._preparing = own.issued, 1
        try:
            yield
        except BaseException as error:
            if self.failed is None and own.issued == issued:
                self._miss(issued, error)
            raise
        finally:
            self._preparing = 0

    def _miss(self, call: int, error: BaseException) -> None:
        """Let a call that raised before anything moved take its turn all the same."""
        try:
            self.engines.mark_error(call)
            self.notices.tell(call, error)
            self.engines.skip()
        except BaseException:  # no memory, or interrupted again
            self.give_up(error)

    @contextlib.contextmanager
    def together(self, step: str) -> Iterator[None]:
        """Take a step with all ranks: a rank that cannot finish it revokes the communicator."""
        before, self.step = self.step, step
        try:
            yield
        except AGREED:
            raise
        except BaseException as error:
            if self.failed is None:
                self.give_up(error)
            raise
        finally:
            self.step = before

    def gather(self, step: str, ranks: Sequence[int] | None = None) -> None:
        """Wait until all ranks, or those given, have come to `step`; other collectives go on."""
        self.live()
        with self.together(step):
            if ranks is None:
                self.meeting.barrier(step)
            elif self.rank in ranks:
                self.meeting.gather(ranks, step)

    def look(self, step: str) -> None:
        """Hear what other ranks report, and find out whether they are alive; used in set-up."""
        self.listen(self.engines.own.issued + self._preparing, step)
        self.engines.own.look(0.0)

    def listen(self, calls: int, story: str) -> None:
        """Raise for errors that other ranks report of the first `calls` calls."""
        heard = self.notices.receive(calls)
        self.engines.own.held = self.notices.held
        if heard:
            error = peer_error(heard, self.rank, story)
            raise self.give_up(error, first_cause(heard).rank)

    def give_up(self, error: BaseException, cause: int | None = None) -> BaseException:
        """Revoke the communicator here and tell the other ranks; return `error`."""
        if self.failed is None:
            self.failed = f"{type(error).__name__}: {error}"
            with contextlib.suppress(MPI.Exception):
                self.notices.revoke(error, cause)
            self.engines.fail()
        return error
