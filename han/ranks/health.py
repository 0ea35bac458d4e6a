"""The health of a communicator: whether its ranks are still in step, and what errors change.

A call may raise on a rank before any data has moved. That rank then tells the other ranks, and
runs an empty plan in place of the call. After any other error inside a collective, the
communicator is revoked: no rank can use it any more.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from han import _native
from han.common.errors import ConfigError, RevokedError, SetupError, SharedMemoryError
from han.ranks.measured import FLUSH
from han.ranks.meeting import Meeting, Patience, abandon
from han.ranks.notices import (
    Departure,
    Notices,
    first_cause,
    lost_call,
    lost_run,
    lost_step,
    peer_error,
)

AGREED = (ConfigError, SharedMemoryError, SetupError)  # raised on all ranks at the same step
FREED = "it has been freed"


def raised_alike(error: BaseException) -> bool:
    """Return whether all ranks raise an error at the same step."""
    return isinstance(error, AGREED) and not getattr(error, "alone", False)


def check_live(failed: str | None) -> None:
    """Raise RevokedError if `failed`, why a communicator is revoked, is not None.

    Raises RuntimeError inside a user's reduction operation.
    """
    _refuse_inside_op()
    if failed is not None:
        raise revoked(failed)


def _refuse_inside_op() -> None:
    if _native.inside_op():
        raise RuntimeError("a reduction operation must not call han: it runs inside a collective")


def revoked(failed: str) -> RevokedError:
    """Return the error of a call on a communicator that is revoked because of `failed`."""
    way_out = (
        "free it after its last call and the last Start of its persistent requests"
        if failed == FREED
        else "make a new han.Comm from a communicator of the ranks that are left"
    )
    return RevokedError(f"this communicator cannot be used any more: {failed}; {way_out}")


class Preparing:
    """The block in which a call is prepared; functions with ``yield`` take thrice as long."""

    __slots__ = ("_health", "_issued")

    def __init__(self, health: Health) -> None:
        self._health = health

    def __enter__(self) -> None:
        self._issued, self._health._preparing = self._health.engines.own.issued, 1

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        health, issued = self._health, self._issued
        health._preparing = 0
        if error is None or health.failed is not None:
            return
        if health.engines.own.issued == issued:
            health._miss(issued, error)


class Initiating:
    """The block in which a persistent request is made; see `Health.initiating`."""

    __slots__ = ("_call", "_health", "_story")

    def __init__(self, health: Health, story: str) -> None:
        self._health, self._story = health, story

    def __enter__(self) -> int:
        health, notices = self._health, self._health.notices
        self._call, notices.left = notices.left, notices.left + 1
        if notices.early:
            try:
                health.listen(health.engines.own.issued, self._story)
            except BaseException as error:
                self._tell(error)
                raise
        return self._call

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        if self._health.failed is None and not raised_alike(error):
            self._health.notices.tell(self._call, error)


class Together:
    """The block of a collective step; see `Health.together`."""

    __slots__ = ("_before", "_health", "_step")

    def __init__(self, health: Health, step: str) -> None:
        self._health, self._step = health, step

    def __enter__(self) -> None:
        self._before, self._health.step = self._health.step, self._step

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        health = self._health
        try:
            if error is not None and health.failed is None and not raised_alike(error):
                health.give_up(error)
        finally:
            health.step = self._before


class Health:
    """What this rank knows about the other ranks of a communicator."""

    engines: Any = None  # of the runtime; set before the first call

    def __init__(self, meeting: Meeting, notices: Notices) -> None:
        self.meeting, self.notices = meeting, notices
        self.rank, self.size = meeting.rank, meeting.size
        self.failed: str | None = None  # why the communicator is revoked; None: it is not
        self.step = ""  # the collective set-up step under way, or ""
        self._unraised: BaseException | None = None  # why, if no call has raised it yet
        self._near: dict[int, Departure] = {}  # by rank: those that share memory and have left
        self._left_behind = False
        notices.alert = self.alert
        self._preparing = 0  # 1 while a call is prepared: its notices concern this rank already

    def left_behind(self, request: MPI.Request) -> None:
        """Give up a call of the MPI library on the program's communicator."""
        self._left_behind = True
        abandon(request)  # keeps its buffers alive

    @property
    def busy(self) -> bool:
        """Whether a call on the program's communicator was given up: it never completes."""
        return self._left_behind or (self.meeting.gave_up and self.meeting.comm != self.meeting.own)

    def alert(self) -> None:
        """Let waiting runs look at the notices, which another communicator may have received."""
        if self.engines is None:
            return
        self.engines.own.held = self.notices.held
        if self.notices.gone:
            self.engines.hold(self.notices.gone)

    def live(self) -> None:
        """Raise RevokedError if the communicator is revoked, or the error that was put off.

        Raises RuntimeError inside a user's reduction operation.
        """
        _refuse_inside_op()
        self.check_failed()

    def check_failed(self) -> None:
        """Raise RevokedError if the communicator is revoked, or the error that was put off."""
        if self.failed is None:
            return
        error, self._unraised = self._unraised, None
        raise error or revoked(self.failed)

    def put_off(self, error: BaseException) -> None:
        """Revoke the communicator; the next call raises `error`, which cannot be raised now."""
        self._unraised = self.give_up(error)

    def preparing(self) -> Preparing:
        """Prepare a call: if this raises, tell the other ranks and count the call all the same."""
        return Preparing(self)

    def initiating(self, story: str) -> Initiating:
        """Count a call that makes a persistent request; if it raises here, tell the other ranks.

        Such calls are counted as those that are left to the MPI library. Yields its number.
        """
        return Initiating(self, story)

    def _miss(self, call: int, error: BaseException) -> None:
        """Tell the other ranks that `call` raised before data moved; run an empty plan instead."""
        try:
            self.engines.mark_error(call)
            self.notices.tell(call, error)
            self.engines.skip()
        except BaseException:  # such as MemoryError or a second interrupt
            self.give_up(error)

    def together(self, step: str) -> Together:
        """Take a collective step: if it raises here, revoke the communicator.

        Errors that all ranks raise at the same step (AGREED) do not revoke it.
        """
        return Together(self, step)

    def gather(self, step: str, ranks: Sequence[int]) -> None:
        """Wait until those in `ranks` have reached `step`; collectives progress."""
        self.live()
        with self.together(step):
            if self.rank in ranks:
                self.meeting.gather(ranks, step)

    def look(self, step: str) -> None:
        """Raise for notices of other ranks and for peers that died; used in set-up steps."""
        self.listen(self.engines.own.issued + self._preparing, step)
        self.engines.own.look(0.0)

    def listen(self, calls: int, story: str) -> None:
        """Raise for notices about the first `calls` calls; `story` says what the rank waits for."""
        self.check_failed()  # a callback of MPI or another thread may have heard of it first
        heard = self.notices.receive(calls)
        self.alert()
        if heard:
            cause = first_cause(heard)
            if cause.rank != cause.sender:  # the sender may have given up because `rank` left
                self.lose(cause.rank, story)
            raise self.give_up(peer_error(heard, self.rank, story), cause.rank)

    # ---- ranks that left --------------------------------------------------------------------

    def gone(self) -> list[Departure]:
        """Return the departures of all ranks that this rank knows to have left."""
        for one in self.engines.departures():
            if one.rank not in self._near:
                self._near[one.rank] = one
        return [*self._near.values(), *self.notices.gone]

    def expect_run(self, engine: int, finished: int, story: str) -> None:
        """Raise if a rank on another node left without the run after `finished` ones."""
        self._without(lost_run(self.notices.gone, engine, finished), story)

    def expect_call(self, call: int, story: str) -> None:
        """Raise if a rank left without making a call that is left to the MPI library."""
        self._without(lost_call(self.gone(), call), story)

    def expect_step(self, step: str) -> None:
        """Raise if a rank left that the present set-up step needs."""
        meeting = self.meeting
        self._without(lost_step(self.gone(), meeting.steps, meeting.among), step)

    def lose(self, rank: int, story: str) -> None:
        """Raise if `rank` has left, so that a call or a step that waits cannot complete."""
        self._without(next((one for one in self.gone() if one.rank == rank), None), story)

    def _without(self, departure: Departure | None, story: str) -> None:
        if departure is not None and not departure.may_call:
            raise self.give_up(departure.error(self.rank, story), departure.rank)

    def give_up(self, error: BaseException, cause: int | None = None) -> BaseException:
        """Revoke the communicator, tell the other ranks, and return `error`.

        `cause` is the rank whose error is the first cause; None: this rank.
        """
        if self.failed is None:
            self.failed = f"{type(error).__name__}: {error}"
            with contextlib.suppress(MPI.Exception):
                self.notices.revoke(error, cause)
            if self.engines is not None:
                self.engines.fail()
        return error

    # ---- the end ------------------------------------------------------------------------------

    def flush(self) -> bool:
        """Receive what is under way; return False if a rank does not do the same; collective.

        A rank that knows of no message cannot tell that none is under way, so the ranks ask each
        other. One that knows of an error waits for FLUSH at most, as others may have failed.
        """
        comm, notices = self.meeting.comm, self.notices
        limit = (self.meeting.limit or math.inf) if notices.silent else FLUSH
        sent, some = np.array([not notices.silent], np.int32), np.zeros(1, np.int32)
        asked = _native.by_mpi(comm.Iallreduce, sent, some, MPI.MAX)
        if not self._flushed(asked.Test, limit, (asked, sent, some)):
            return False
        if not some[0]:
            return True
        sends, expected = np.array(notices.sent, np.int32), np.zeros(self.size, np.int32)
        told = _native.by_mpi(comm.Ialltoall, sends, expected)

        def arrived() -> bool:
            return told.Test() and np.array_equal(notices.received, expected)

        return self._flushed(arrived, FLUSH, (told, sends, expected))

    def _flushed(self, done: Callable[[], bool], limit: float, keep: object) -> bool:
        """Receive messages until all is `done`; return False after `limit` seconds.

        Returns False too if a rank has revoked the communicator, or has left. `keep` owns what MPI
        may still use.
        """
        patience, whole = Patience(), False
        try:
            while not (whole := done()):
                _native.progress()
                self.notices.fetch()
                if patience.pause() and (patience.waited > limit or self._given_up()):
                    break
        finally:
            if not whole:
                self.meeting.gave_up = True
                abandon(keep)
        return whole

    def _given_up(self) -> bool:
        """Return whether a rank takes no part in the end of the communicator."""
        return self.notices.revoked or any(not one.may_call for one in self.gone())
