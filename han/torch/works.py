"""Calls under way as torch.distributed sees them: ``wait``, ``is_completed``, ``get_future``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any

import torch.distributed as dist
from mpi4py import MPI
from torch import Tensor
from torch.futures import Future

from han.common.errors import CollectiveTimeoutError

NO_LIMIT = timedelta(0)  # torch's word for a wait without a time limit
NAP = 50e-6  # seconds between two looks at a request that a time limit holds for


def nothing() -> None:
    """Deliver nothing: the result is where it belongs."""


class Work(dist.Work):  # type: ignore[misc]  # without torch's types it is Any
    """A call of which the result is in `outputs` after `deliver`.

    `request` is None if the call is over. The rank waits in the thread that calls `wait`; if the
    program asks for a future, a thread of the `watcher` waits, too.
    """

    def __init__(
        self, step: str, outputs: Sequence[Tensor], request: Any = None,
        deliver: Callable[[], None] = nothing, watcher: Watcher | None = None,
        status: MPI.Status | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._step, self._outputs, self._request = step, outputs, request
        self._deliver, self._watcher, self._status = deliver, watcher, status
        self._over: Any = None  # a future, and the one that the program has
        self._future: Any = None
        self._error: BaseException | None = None
        self._told = False  # the program has the error
        self._lock = Lock()  # held by the thread that waits

    def wait(self, timeout: timedelta = NO_LIMIT) -> bool:
        """Wait until the call is complete; raises what the call raised.

        Raises CollectiveTimeoutError if it takes longer than `timeout`; the call goes on.
        """
        if timeout > NO_LIMIT:
            self._wait_until(time.monotonic() + timeout.total_seconds(), timeout)
        else:
            self.finish()
        if self._error is not None:
            self._told = True
            raise self._error
        return True

    def finish(self) -> None:
        """Wait until the call is over; an error stays for who asks."""
        if self._request is not None:
            with self._lock:
                self._finish("Wait")

    def is_completed(self) -> bool:
        """Make progress; return whether the call is over, with its result or with an error."""
        if self._request is not None and self._lock.acquire(blocking=False):
            try:
                self._finish("Test")
            finally:
                self._lock.release()
        return self._request is None

    def is_success(self) -> bool:
        """Return whether the call is over, without an error."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Return the error of the call, or None."""
        self._told = True
        return self._error

    @property
    def untold(self) -> BaseException | None:
        """The error of the call if the program has not been given it."""
        return None if self._told else self._error

    def result(self) -> list[Tensor]:
        """Wait until the call is complete; return the tensors that hold the result."""
        self.wait()
        return [*self._outputs]

    def synchronize(self) -> None:
        """Wait until the call is complete."""
        self.wait()

    def source_rank(self) -> int:
        """Return the rank that has sent the tensor of a receive."""
        return MPI.ANY_SOURCE if self._status is None else self._status.Get_source()

    _source_rank = source_rank

    def get_future(self) -> Any:
        """Return a future of the tensors that hold the result, or of the call's error."""
        if self._future is None:
            self._over = Future()
            self._future = self._over.then(lambda _: self.result())
            if self._request is None:
                self.settle()
            else:
                (self._watcher or Watcher(once=True)).watch(self)
        return self._future

    def settle(self) -> None:
        """Wait until the call is complete, and tell the future."""
        with contextlib.suppress(BaseException):  # the future has the error
            self.wait()
        self._over.set_result(None)

    def _wait_until(self, end: float, timeout: timedelta) -> None:
        while not self.is_completed():
            if time.monotonic() > end:
                raise CollectiveTimeoutError(
                    f"{self._step}: not complete after {timeout.total_seconds():g} s; it goes on"
                )
            time.sleep(NAP)

    def _finish(self, ask: str) -> None:
        """Wait for the request or test it; if it is complete, deliver the result."""
        if self._request is None:  # another thread has waited
            return
        try:
            if not getattr(self._request, ask)(self._status):
                return
            self._deliver()
        except BaseException as error:
            self._error = error
        self._request, self._deliver = None, nothing


class Several(Work):
    """The works of one call, which are complete when all are."""

    def __init__(self, step: str, works: Sequence[Work]) -> None:
        super().__init__(step, [tensor for work in works for tensor in work._outputs])
        self._request = self  # one of its own: it waits and tests as MPI's requests do
        self._works = works

    def Wait(self, status: None) -> bool:
        """Wait until all are complete."""
        return all(work.wait() for work in self._works)

    def Test(self, status: None) -> bool:
        """Make progress; return whether all are complete; raises what one of them raised."""
        return all(work.is_completed() for work in self._works) and self.Wait(status)


class Watcher:
    """A thread that waits for works in the order in which they are given, and sets their futures.

    The thread exists from the first work on. With `once` it ends after this work.
    """

    def __init__(self, once: bool = False) -> None:
        self._once = once
        self._thread: Thread | None = None
        self._works: SimpleQueue[Work | None] = SimpleQueue()

    def watch(self, work: Work) -> None:
        """Set the future of `work` when it is complete."""
        if self._thread is current_thread():  # a callback, which may wait for this work
            Watcher(once=True).watch(work)
            return
        self._works.put(work)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="han-torch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Wait for the works that were given, and end the thread."""
        if self._thread is not None:
            self._works.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            work.settle()
            if self._once:
                return
