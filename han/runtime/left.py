"""Calls that han leaves to the MPI library: their requests, and what comes before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from mpi4py import MPI

from han import _native
from han.common.errors import HanError, MismatchError
from han.message.message import Message
from han.model.element_types import kernel
from han.ranks.health import Health
from han.ranks.meeting import Patience
from han.ranks.notices import DEVICES
from han.runtime.native_plans import identity
from han.tasks.signature import Signature

if TYPE_CHECKING:
    from typing_extensions import Self


class Left(Exception):
    """The MPI library is to carry out a call, by whoever called han; nothing has started."""


class Nothing:
    """The look-up of a communicator that is not set up: it serves no call."""

    def __getattr__(self, name: str) -> Callable[..., bool]:
        return lambda *arguments: False


NOTHING = Nothing()
AGREEMENT = Signature("allreduce", 1, 8, "sum", "uint64")


class HeldRequest(MPI.Request):
    """A request of the MPI library that keeps the buffers of its call alive.

    mpi4py keeps them itself, but not the send buffer of ``Ireduce_scatter``.
    """

    _buffers: tuple[object, ...]

    def __new__(cls, request: MPI.Request, buffers: tuple[object, ...]) -> Self:
        """Take over the handle of `request`."""
        self = MPI.Request.__new__(cls, request)
        self._buffers = buffers
        return self


def left_request(request: MPI.Request, health: Health, step: str) -> LeftRequest:
    """Wrap the request of a call of the MPI library; `step` is the name of the call."""
    if isinstance(request, MPI.Prequest):
        return LeftPrequest(request, health, step)
    return LeftRequest(request, health, step)


class CollectiveRequest(MPI.Request):
    """What requests of collectives have in common."""

    def wait(self, status: MPI.Status | None = None) -> None:
        """Wait until complete."""
        self.Wait(status)

    def test(self, status: MPI.Status | None = None) -> tuple[bool, None]:
        """Make progress; return whether it is complete."""
        return self.Test(status), None

    def Cancel(self) -> None:
        """Raise HanError: MPI does not allow cancelling collectives."""
        raise HanError("Cancel: a collective cannot be cancelled; call Wait")

    def cancel(self) -> None:
        """Raise HanError: MPI does not allow cancelling collectives."""
        self.Cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.Free()


class LeftRequest(CollectiveRequest):
    """A request of the MPI library whose ``Wait`` raises when another rank fails.

    It is complete after the request `after`, if there is one. While it waits, han's own requests
    progress, and this rank receives notices. If a rank raised or gave the communicator up, the call
    would never complete. For lists of requests see :class:`han.Request`.
    """

    _health: Health
    _step: str
    _call: int  # the number of the latest call
    _own: MPI.Prequest  # if it is persistent
    persistent = False
    after: MPI.Request | None = None
    buffers: tuple[object, ...] = ()  # kept alive; see HeldRequest

    def __new__(cls, request: MPI.Request, health: Health, step: str) -> Self:
        """Take over the handle of `request`."""
        self = MPI.Request.__new__(cls, request)
        self._health, self._step = health, step
        self._call = health.notices.left - 1
        return self

    def __repr__(self) -> str:
        return f"<han.LeftRequest {self._step}, the MPI library's own>"

    def look(self) -> None:
        """Raise if a rank raised, gave up or left, so that the call never completes."""
        try:
            self._health.live()
            self._health.listen(0, self._step)
            self._health.expect_call(self._call, self._step)
        except BaseException:
            self._health.left_behind(self)
            raise

    def Wait(self, status: MPI.Status | None = None) -> Literal[True]:
        """Wait until complete; raises PeerError if another rank raised in its call."""
        patience = Patience(busy=True)
        try:
            if self.after is not None:  # if it raises, this one may never complete
                self.after.Wait()
            while not self.Get_status():
                _native.progress()
                if patience.pause():
                    self.look()
        except BaseException:
            self._health.left_behind(self)
            raise
        return super().Wait(status)

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Make progress, also of han's requests; return whether this one is complete."""
        if (self.after is None or self.after.Test()) and super().Test(status):
            return True
        _native.progress()
        self.look()
        return False


class LeftPrequest(LeftRequest, MPI.Prequest):
    """A persistent LeftRequest."""

    persistent = True

    def __new__(cls, request: MPI.Prequest, health: Health, step: str) -> Self:
        """Take over the handle of `request`; ``Start`` still goes through `request`."""
        self = super().__new__(cls, request, health, step)
        self._own = request
        return self

    def Start(self) -> None:
        """Start the call; raises if the request was freed or the communicator is revoked."""
        if self == MPI.REQUEST_NULL:
            raise HanError("Start: the request has been freed")
        self.look()
        with self._health.notices.leaving():
            self._own.Start()
        self._call = self._health.notices.left - 1


def agreement(signature: Signature, health: Health) -> Message:
    """Make the allreduce that comes before a call on memory of a device.

    A rank whose buffers are on the host cannot know of a peer's that are not. It would wait in
    han's call, and the peer in MPI's. So a rank with memory of a device first takes part in an
    allreduce of a number that stands for its call. Ranks that make another call show another
    number, or none. The end of the allreduce raises MismatchError then.
    """
    mine, total = np.array([identity(signature)], np.uint64), np.zeros(1, np.uint64)

    def end() -> None:
        if total[0] != mine.repeat(health.size).sum(dtype=np.uint64):
            raise health.give_up(
                MismatchError(
                    f"the ranks do not make the same calls: rank {health.rank} calls "
                    f"{signature.describe()}, another rank does not; {DEVICES}"
                )
            )

    return Message(
        AGREEMENT, mine.ctypes.data, total.ctypes.data, (mine, total), end=end,
        numbers=kernel("sum", "uint64"),
    )  # fmt: skip
