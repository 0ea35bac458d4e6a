"""What becomes of a communicator when something goes wrong on a rank.

An error of a call that has moved nothing is told to the other ranks, and the call takes its turn
all the same. After one that the ranks cannot stay together in, the communicator is revoked.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from mpi4py import MPI

from han import _native
from han.common.errors import ConfigError, RevokedError, SetupError, SharedMemoryError
from han.memory.channel import Channel
from han.ranks.meeting import Meeting
from han.ranks.notices import Notices, first_cause, peer_error
from han.runtime.native_plans import empty_plan
from han.runtime.request import Request

AGREED = (ConfigError, SharedMemoryError, SetupError)  # raised by all ranks at the same step


class Revocable(ABC):
    """The part of a communicator's State that errors concern."""

    rank: int
    failed: str | None = None
    step: str = ""  # of set-up, while one is under way
    turning: int = 0  # 1 while a call is prepared: errors of that call concern it already
    meeting: Meeting
    notices: Notices
    channels: list[Channel]
    engine: Any
    calls: Any

    @abstractmethod
    def all_engines(self) -> list[Any]:
        """List the engines."""

    def live(self) -> None:
        """Raise RevokedError after an error that the ranks could not stay together in.

        Raises RuntimeError inside of a user's reduction operation.
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
    def _turn(self) -> Iterator[None]:
        """Prepare a call: an error is told to the other ranks, and the call counted as one."""
        issued, self.turning = self.engine.issued, 1
        try:
            yield
        except BaseException as error:
            if self.failed is None and self.engine.issued == issued:
                self._miss(issued, error)
            raise
        finally:
            self.turning = 0

    def _miss(self, call: int, error: BaseException) -> None:
        """Let a call that raised before anything moved take its turn all the same."""
        try:
            for channel in self.channels:
                channel.mark_error(call)
            self.notices.tell(call, error)
            nothing = empty_plan(self.engine, self.rank)
            Request(self.engine, nothing, 0, 0).Start()
        except BaseException:  # no memory, or interrupted again
            self.give_up(error)

    @contextlib.contextmanager
    def together(self, step: str) -> Iterator[None]:
        """Take a step with all ranks: whoever cannot end it gives the communicator up."""
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

    def _look(self, step: str) -> None:
        """Look around from set-up: at what other ranks report, and whether they are alive."""
        self.listen(self.engine.issued + self.turning, step)
        self.engine.look(0.0)

    def listen(self, calls: int, story: str) -> None:
        """Raise for errors that other ranks report of the first `calls` calls."""
        heard = self.notices.receive(calls)
        self.engine.held = self.notices.held
        if heard:
            error = peer_error(heard, self.rank, story)
            raise self.give_up(error, first_cause(heard).rank)

    def give_up(self, error: BaseException, cause: int | None = None) -> BaseException:
        """Revoke the communicator here and tell the other ranks; return `error`."""
        if self.failed is None:
            self.failed = f"{type(error).__name__}: {error}"
            with contextlib.suppress(MPI.Exception):
                self.notices.revoke(error, cause)
            for engine in self.all_engines():
                engine.fail()
            self.calls.clear()
        return error
