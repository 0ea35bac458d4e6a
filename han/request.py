"""What nonblocking and persistent calls return."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from han import _native


class Request(_native.Request):
    """A collective under way, or one that can be started again and again.

    Progress is made inside ``Start``, ``Wait`` and ``Test`` of any of the process's requests.
    Use :meth:`Waitall` and its kin for lists, in which han's and MPI's requests may be mixed.
    """

    persistent = False
    closing: Any = None

    def wait(self) -> None:
        """Wait until complete."""
        self.Wait()

    def test(self) -> tuple[bool, None]:
        """Make progress; return whether it is complete, in mpi4py's lower-case form."""
        return self.Test(), None

    def Free(self) -> None:
        """Complete it and release everything; it cannot be used any more."""
        self._free()
        if self.closing is not None:
            self.closing()
            self.closing = None

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *exc: object) -> None:
        self.Free()

    @classmethod
    def Startall(cls, requests: Iterable[Any]) -> None:
        """Start every request of a list."""
        for request in requests:
            request.Start()

    @classmethod
    def Waitall(cls, requests: Sequence[Any]) -> bool:
        """Wait for all requests, han's and MPI's, whatever order they finish in."""
        while not cls.Testall(requests):
            pass
        return True

    @classmethod
    def Testall(cls, requests: Sequence[Any]) -> bool:
        """Make progress on all requests; return whether all are complete."""
        done = [request.Test() for request in requests]  # each gets its step
        return all(done)

    @classmethod
    def Waitany(cls, requests: Sequence[Any]) -> int:
        """Wait for any active request and return its index."""
        while True:
            for index, request in enumerate(requests):
                if getattr(request, "active", True) and request.Test():
                    return index
            if not any(getattr(request, "active", True) for request in requests):
                return -1
