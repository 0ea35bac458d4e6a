"""Requests of calls that han leaves to the MPI library: they end when another rank fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mpi4py import MPI

from han import _native
from han.common.errors import HanError
from han.ranks.health import Health
from han.ranks.meeting import Patience, abandon

if TYPE_CHECKING:
    from typing_extensions import Self


def left_request(request: MPI.Request, health: Health, step: str) -> LeftRequest:
    """Wrap the request that a call named `step`, which is MPI's, has returned."""
    if isinstance(request, MPI.Prequest):
        return LeftPrequest(request, health, step)
    return LeftRequest(request, health, step)


class LeftRequest(MPI.Request):
    """A request of MPI's whose ``Wait`` is no dead end.

    While it waits, han's own requests go on, and errors of other ranks are heard of: the calls of
    a rank that raised, or that gave the communicator up, will not complete. Lists of requests: see
    :class:`han.Request`.
    """

    _health: Health
    _step: str
    _own: MPI.Prequest  # where it is persistent
    persistent = False

    def __new__(cls, request: MPI.Request, health: Health, step: str) -> Self:
        """Take the place of `request`."""
        self = super().__new__(cls, request)
        self._health, self._step = health, step
        return self

    def __repr__(self) -> str:
        return f"<han.LeftRequest {self._step}, the MPI library's own>"

    def look(self) -> None:
        """Raise what other ranks report; RevokedError if the communicator was given up before."""
        try:
            self._health.live()
            self._health.listen(0, self._step)
        except BaseException:
            abandon(self)  # and the buffers that it holds
            raise

    def Wait(self, status: MPI.Status | None = None) -> Literal[True]:
        """Wait until complete; raises PeerError when another rank's error is heard of."""
        patience = Patience()
        try:
            while not self.Get_status():
                _native.progress()
                if patience.pause():
                    self.look()
        except KeyboardInterrupt:
            abandon(self)
            raise
        return super().Wait(status)

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Make progress, of han's requests too; return whether it is complete."""
        if super().Test(status):
            return True
        _native.progress()
        self.look()
        return False

    def wait(self, status: MPI.Status | None = None) -> None:
        """Wait until complete."""
        self.Wait(status)

    def test(self, status: MPI.Status | None = None) -> tuple[bool, None]:
        """Make progress; return whether it is complete."""
        return self.Test(status), None

    def Cancel(self) -> None:
        """Refuse: MPI lets no collective be cancelled."""
        raise HanError("Cancel: a collective cannot be cancelled; call Wait")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.Free()


class LeftPrequest(LeftRequest):
    """One that can be started again and again."""

    persistent = True

    def __new__(cls, request: MPI.Prequest, health: Health, step: str) -> Self:
        """Take the place of `request`, which goes on to start it."""
        self = super().__new__(cls, request, health, step)
        self._own = request
        return self

    def Start(self) -> None:
        """Start it, unless it was freed, or the communicator given up."""
        if self == MPI.REQUEST_NULL:
            raise HanError("Start: the request has been freed")
        self.look()
        self._own.Start()
