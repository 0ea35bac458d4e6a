"""The requests of nonblocking and persistent calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from mpi4py import MPI

from han import _native
from han.ranks.meeting import Patience
from han.runtime.base_request import BaseRequest
from han.runtime.left import CollectiveRequest, LeftRequest

Statuses = list[MPI.Status] | None


class Request(CollectiveRequest, BaseRequest):
    """A collective under way.

    It is an ``MPI.Request`` too: ``MPI.Request.Waitall`` and its kin accept lists of han's and
    MPI's requests, as the methods of this class do. ``Start``, ``Wait`` and ``Test`` of any request
    make progress on all of the process's requests.
    """

    def __repr__(self) -> str:
        kind = "persistent" if self.persistent else "nonblocking"
        state = "freed" if self._engine is None else "active" if self.active else "inactive"
        return f"<han.Request {kind}, {state}>"

    def _rests(self) -> bool:
        """Whether this is a persistent request that is inactive: MPI's handle is a null one."""
        return self.persistent and not self.active and self._engine is not None

    def __bool__(self) -> bool:
        return self._rests() or super().__bool__()

    def __eq__(self, other: object) -> bool:
        return self is other if self._rests() else super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def Free(self) -> None:
        """Complete the collective if it is under way, and release everything."""
        self._free()

    def Get_status(self, status: MPI.Status | None = None) -> bool:
        """Make progress; return whether it is complete. The request stays active."""
        done = self._peek()
        if done and status is not None:
            self._empty(status)
        return done

    def free(self) -> None:
        """Free the request, unless it was freed or completed before."""
        if self:
            self.Free()

    def get_status(self, status: MPI.Status | None = None) -> bool:
        """Make progress; return whether it is complete. The request stays active."""
        return self.Get_status(status)

    @staticmethod
    def _empty(status: MPI.Status) -> None:
        """Fill in the empty status of the MPI standard."""
        status.Set_source(MPI.ANY_SOURCE)
        status.Set_tag(MPI.ANY_TAG)
        status.Set_error(MPI.SUCCESS)
        status.Set_elements(MPI.BYTE, 0)
        status.Set_cancelled(False)

    @staticmethod
    def _error_code(error: BaseException) -> int:
        """Return a code by which MPI's functions report an error; its text is the error's."""
        code = MPI.Add_error_code(MPI.ERR_OTHER)
        text = f"{type(error).__name__}: {error}".encode()[: MPI.MAX_ERROR_STRING - 1]
        MPI.Add_error_string(code, text.decode(errors="ignore"))
        return code

    # ---- lists ------------------------------------------------------------------------------

    @classmethod
    def Startall(cls, requests: Iterable[Any]) -> None:
        """Start every request of a list."""
        for request in requests:
            request.Start()

    @classmethod
    def Waitall(cls, requests: Sequence[Any], statuses: Statuses = None) -> Literal[True]:
        """Wait for all requests; they may finish in any order."""
        _wait_for_all(requests)
        cls.Testall(requests, statuses)
        return True

    @classmethod
    def Testall(cls, requests: Sequence[Any], statuses: Statuses = None) -> bool:
        """Make progress on all requests; if all are complete, deactivate them and return True."""
        if not _all_complete(requests):
            return False
        for request, status in zip(requests, _enough(statuses, requests), strict=False):
            request.Wait(status)
        return True

    @classmethod
    def Waitany(cls, requests: Sequence[Any], status: MPI.Status | None = None) -> int:
        """Wait for any active request and return its index; MPI.UNDEFINED if none is active."""
        for _ in _rounds(requests):
            index, flag = cls.Testany(requests, status)
            if flag:
                break
        return index

    @classmethod
    def Testany(cls, requests: Sequence[Any], status: MPI.Status | None = None) -> tuple[int, bool]:
        """Make progress; return the index of a request that is complete, and True.

        The index is MPI.UNDEFINED with True if no request is active, and with False if none is
        complete.
        """
        index, flag, _ = _test_any(requests, status, MPI.Request.Testany)
        return index, flag

    @classmethod
    def Waitsome(cls, requests: Sequence[Any], statuses: Statuses = None) -> list[int] | None:
        """Wait for at least one active request; return the indices of complete ones.

        Returns None if no request is active.
        """
        for _ in _rounds(requests):
            indices = cls.Testsome(requests, statuses)
            if indices != []:
                break
        return indices

    @classmethod
    def Testsome(cls, requests: Sequence[Any], statuses: Statuses = None) -> list[int] | None:
        """Make progress; return the indices of complete requests; None if no request is active.

        `statuses` receives their statuses in the order of the indices.
        """
        found, _ = _test_some(requests, statuses, lambda *a: (MPI.Request.Testsome(*a), None))
        return found

    # ---- mpi4py's lower-case forms; the message of a han.Request is None ----------------------

    @classmethod
    def waitall(cls, requests: Sequence[Any], statuses: Statuses = None) -> list[Any]:
        """Wait for all requests; return their messages."""
        _wait_for_all(requests)
        pairs = zip(requests, _enough(statuses, requests), strict=False)
        return [request.wait(status) for request, status in pairs]

    @classmethod
    def testall(
        cls, requests: Sequence[Any], statuses: Statuses = None
    ) -> tuple[bool, list[Any] | None]:
        """Make progress on all requests; return whether all are complete, and the messages."""
        if not _all_complete(requests):
            return False, None
        return True, cls.waitall(requests, statuses)

    @classmethod
    def waitany(cls, requests: Sequence[Any], status: MPI.Status | None = None) -> tuple[int, Any]:
        """Wait for any active request; return its index and message."""
        for _ in _rounds(requests):
            index, flag, message = cls.testany(requests, status)
            if flag:
                break
        return index, message

    @classmethod
    def testany(
        cls, requests: Sequence[Any], status: MPI.Status | None = None
    ) -> tuple[int, bool, Any]:
        """Make progress; return the index of a complete request, True and its message."""
        return _test_any(requests, status, MPI.Request.testany)

    @classmethod
    def waitsome(
        cls, requests: Sequence[Any], statuses: Statuses = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Wait for at least one active request; return indices and messages."""
        for _ in _rounds(requests):
            indices, messages = cls.testsome(requests, statuses)
            if indices != []:
                break
        return indices, messages

    @classmethod
    def testsome(
        cls, requests: Sequence[Any], statuses: Statuses = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Make progress; return indices and messages of complete requests."""
        return _test_some(requests, statuses, MPI.Request.testsome)


class Prequest(Request, MPI.Prequest):
    """A persistent collective: an ``MPI.Prequest`` too, which ``Start`` starts again and again.

    ``MPI.Prequest.Startall`` raises for it, as MPI cannot start it;
    :meth:`Request.Startall` starts it.
    """

    def __bool__(self) -> bool:
        self._synchronise()
        return super().__bool__()

    def __eq__(self, other: object) -> bool:
        self._synchronise()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        self._synchronise()
        return super().__ne__(other)

    __hash__ = None  # type: ignore[assignment]  # as mpi4py's requests


def _rounds(requests: Sequence[Any]) -> Iterator[None]:
    """Yield for ever, with pauses; raise if han's requests make no progress for too long.

    Requests of the MPI library raise on notices of other ranks only.
    """
    patience = Patience()
    left = [r for r in requests if isinstance(r, LeftRequest)]
    mine = [r for r in requests if isinstance(r, Request)]
    before: object = None
    while True:
        yield
        _native.progress()  # also of engines whose requests are not in the list
        if not patience.pause():
            continue
        for request in left:
            if not request.Get_status():
                request.look()
        engines = [r._engine for r in mine if r.active and r._engine is not None]
        now = [(e.epoch, e.blocked()) for e in engines]
        if now != before:
            before, patience.begun = now, time.monotonic()
        for engine in engines:
            engine.look(patience.waited)


def _wait_for_all(requests: Sequence[Any]) -> None:
    """Wait until all are complete, han's first: waiting for these also progresses MPI's."""
    for request in requests:
        if isinstance(request, Request):
            request.Wait()
    others = [r for r in requests if not isinstance(r, Request)]
    for _ in _rounds(others):
        if _all_complete(requests):
            return


def _all_complete(requests: Sequence[Any]) -> bool:
    done = [request.Get_status() for request in requests]  # each request makes progress
    return all(done)


def _enough(statuses: Statuses, requests: Sequence[Any]) -> Sequence[MPI.Status | None]:
    """Extend the caller's list of statuses to the number of requests."""
    if statuses is None:
        return [None] * len(requests)
    statuses += [MPI.Status() for _ in range(len(requests) - len(statuses))]
    return statuses


def _apart(requests: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Return the indices of han's active requests, and of all other requests."""
    mine = [k for k, r in enumerate(requests) if isinstance(r, Request) and r.active]
    return mine, [k for k, r in enumerate(requests) if not isinstance(r, Request)]


def _test_any(
    requests: Sequence[Any], status: MPI.Status | None, ask: Callable[..., Any]
) -> tuple[int, bool, Any]:
    mine, others = _apart(requests)
    for k in mine:
        if requests[k].Test(status):
            return k, True, None
    index, flag, *message = ask([requests[k] for k in others], status)
    if index != MPI.UNDEFINED:
        return others[index], True, message[0] if message else None
    if flag and status is not None:  # some MPI libraries do not set it for an empty list
        Request._empty(status)
    return MPI.UNDEFINED, flag and not mine, None


def _test_some(
    requests: Sequence[Any], statuses: Statuses, ask: Callable[..., Any]
) -> tuple[list[int] | None, list[Any] | None]:
    mine, others = _apart(requests)
    found, messages = ask([requests[k] for k in others], statuses)
    if found is None and not mine:
        return None, None
    indices = [others[k] for k in found or ()]
    messages = list(messages or [None] * len(indices))
    for k in mine:
        status = _enough(statuses, range(len(indices) + 1))[len(indices)]
        if requests[k].Test(status):
            indices.append(k)
            messages.append(None)
    return indices, messages
