"""``HAN_STATS``: calls, bytes and seconds of collectives, printed or written when a program ends.

The methods of ``han.Comm`` and its subclasses are replaced by methods that count, when the first
``han.Comm`` is made with statistics. Without statistics nothing is replaced, so that calls cost
what they cost.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from mpi4py import MPI

from han.collectives import Collectives
from han.counted_calls import DEVICE, NARROW, OBJECTS, UNFIT, Method, methods
from han.model.statistics import CountedCalls, Counts, size_range
from han.neighbours import NeighbourCollectives
from han.objects import Objects
from han.runtime.left import LeftPrequest, LeftRequest
from han.runtime.request import Request
from han.runtime.state import Served
from han.statistics_report import Report

Call = Callable[..., Any]


class _Here(threading.local):
    """The counted call that this thread is in."""

    inside = False
    why = ""


class Counting:
    """Counts the calls of this rank, until `stop`."""

    def __init__(self) -> None:
        self.record: dict[CountedCalls, Counts] = {}
        self._lock = threading.Lock()
        self._here = _Here()
        self._replaced: list[tuple[type, str, Any]] = []  # None: the class had no such attribute

    def start(self) -> None:
        """Replace the methods of communicators and requests."""
        for cls in _family(Collectives):
            for method in methods():
                self._replace(cls, method.name, functools.partial(self._call, method))
        self._replace(Collectives, "_mpis", functools.partial(self._leaving, _why_mpis))
        pickled = functools.partial(self._leaving, lambda *_: OBJECTS)
        self._replace(Objects, "_mpi4pys", pickled)
        narrow = functools.partial(self._leaving, lambda *_: NARROW)
        self._replace(NeighbourCollectives, "_librarys", narrow)
        for cls in (Request, LeftRequest):
            self._replace(cls, "Wait", functools.partial(self._step, 0))
        for cls in (Request, LeftPrequest):
            self._replace(cls, "Start", functools.partial(self._step, 1))

    def stop(self) -> None:
        """Put the methods back."""
        for cls, name, before in reversed(self._replaced):
            if before is None:
                delattr(cls, name)
            else:
                setattr(cls, name, before)
        self._replaced.clear()

    def _replace(self, cls: type, name: str, make: Callable[[Call], Call]) -> None:
        found = getattr(cls, name, None)
        if found is not None and not hasattr(found, "__han_counts__"):
            self._replaced.append((cls, name, cls.__dict__.get(name)))
            counts = make(found)
            counts.__han_counts__ = True  # type: ignore[attr-defined]
            setattr(cls, name, counts)

    def _add(self, key: CountedCalls, calls: int, nbytes: int, seconds: float) -> None:
        with self._lock:
            counts = self.record.setdefault(key, Counts())
            counts.calls += calls
            counts.nbytes += nbytes
            counts.seconds += seconds

    @contextlib.contextmanager
    def _timed(self) -> Iterator[Callable[[], float]]:
        """Yield a function that returns the seconds so far; calls inside are not counted."""
        here = self._here
        here.inside, here.why = True, ""
        begun = perf_counter()
        try:
            yield lambda: perf_counter() - begun
        finally:
            here.inside = False

    # ---- what replaces the methods ------------------------------------------------------------

    def _call(self, method: Method, original: Call) -> Call:
        """Return a method of a communicator that counts."""
        here, why = self._here, method.why

        @functools.wraps(original)
        def call(comm: Any, *args: Any, **more: Any) -> Any:
            if here.inside:
                return original(comm, *args, **more)
            result = None
            with self._timed() as seconds:
                try:
                    result = original(comm, *args, **more)
                finally:
                    taken = seconds()
                    nbytes = method.nbytes(comm, args, more)
                    ranks = comm.Get_size() if comm else 1
                    said = why or here.why
                    key = CountedCalls(method.name, size_range(nbytes), ranks, said)
                    self._add(key, 1, nbytes or 0, taken)
            if isinstance(result, Request | LeftRequest):
                _mark(result, method, key, nbytes)
            return result

        return call

    def _leaving(self, why: Callable[..., str], original: Call) -> Call:
        """Return a method that leaves a call to mpi4py or MPI; it notes why."""

        @functools.wraps(original)
        def leave(comm: Any, *arguments: object) -> Any:
            self._here.why = why(comm, *arguments)
            return original(comm, *arguments)

        return leave

    def _step(self, calls: int, original: Call) -> Call:
        """Return a method of requests that adds `calls` and its seconds to those of the request."""

        @functools.wraps(original)
        def step(request: Any, *args: Any, **more: Any) -> Any:
            marked = getattr(request, "_counted", None)
            if marked is None or self._here.inside:
                return original(request, *args, **more)
            key, nbytes = marked
            with self._timed() as seconds:
                try:
                    return original(request, *args, **more)
                finally:
                    self._add(key, calls, calls * nbytes, seconds())

        return step


def _why_mpis(comm: Any, served: Served, *_: object) -> str:
    """Return why a method that hands calls to the MPI library is called."""
    return DEVICE if served is Served.ON_DEVICE else UNFIT


def _mark(request: Any, method: Method, key: CountedCalls, nbytes: int | None) -> None:
    """Remember what a request's ``Start`` and ``Wait`` count as."""
    if method.persistent:
        key = key._replace(call=f"{key.call}: Start")
    with contextlib.suppress(AttributeError):
        request._counted = key, nbytes or 0


def _family(cls: type) -> Iterator[type]:
    yield cls
    children: list[type] = cls.__subclasses__()
    for child in children:
        yield from _family(child)


# ---- of the process -----------------------------------------------------------------------------

_running: list[tuple[Counting, Report]] = []


def count_calls(comm: MPI.Intracomm, output: str) -> None:
    """Count the calls of all communicators from now on, and report at exit; collective.

    `output` is PRINTED or the path of a JSON file. The ranks of `comm` report together where
    :class:`~han.ranks.last_words.Reporters` connects them.
    """
    if not _running:
        counting = Counting()
        counting.start()
        _running.append((counting, Report(counting.record, output)))
    _running[0][1].join(comm)
