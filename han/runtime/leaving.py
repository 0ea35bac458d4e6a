"""The end of a process: the other ranks of its communicators hear that it leaves, and why.

Python calls `leave` at the end of the program, after an uncaught error too; MPI is finalized later.
If the program finalizes MPI itself, MPI deletes the attribute of MPI.COMM_SELF first, which calls
`leave` as well.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from mpi4py import MPI

from han import _native
from han.common.uncaught import uncaught, watch_exit
from han.config.environment import aborts
from han.ranks.notices import ENDED, Departure
from han.runtime.measured import LAST_MESSAGES, MOST_TOLD, SETTLE
from han.runtime.parts import Parts
from han.runtime.reports import reporter

if aborts(os.environ):
    watch_exit()
_process = os.getpid()  # a child made by fork ends without a word
_living: weakref.WeakSet[Parts] = weakref.WeakSet()
_last_acts: list[Callable[[], object]] = []  # when the others know that this process ends
_attribute: list[int] = []  # MPI's key of the attribute of MPI.COMM_SELF


def at_end(parts: Parts) -> None:
    """Let the ranks of a communicator hear when this process ends, unless its parts end before."""
    _living.add(parts)
    _watch()


def do_at_end(act: Callable[[], object]) -> None:
    """Call `act` when this process ends, after the other ranks have heard of it."""
    _last_acts.append(act)
    _watch()


def _watch() -> None:
    """Hear when MPI is finalised, unless the process uses sessions only."""
    if not _attribute and MPI.Is_initialized():
        _attribute.append(MPI.Comm.Create_keyval(delete_fn=_finalizing))
        MPI.COMM_SELF.Set_attr(_attribute[0], True)


def _finalizing(comm: MPI.Comm, key: int, value: Any) -> None:
    leave()


@atexit.register
def leave() -> None:
    """Tell the other ranks that this one leaves; with HAN_ABORT, end them after an error."""
    if os.getpid() != _process:
        return
    _native.stop_helper()  # before MPI and Python are finalised
    if MPI.Is_finalized() or not MPI.Is_initialized():
        return  # a process that uses sessions only may have finalized them
    try:
        _tell_all()
    finally:
        while _last_acts:
            _last_acts.pop()()


def _tell_all() -> None:
    """Tell the other ranks that this one leaves, and why."""
    error = uncaught()
    if error is not None and aborts(os.environ):
        from mpi4py.run import set_abort_status

        set_abort_status(error)  # mpi4py aborts in place of finalizing
        return
    every = [s for s in _living if s.health.failed is None and s.health.size > 1]
    _living.clear()
    late = _settle(every, SETTLE if error is None else 0.0)
    text = ENDED if error is None else f"it raised {_text(error)}"
    awaited = {}
    for parts in every:
        with contextlib.suppress(MPI.Exception):
            awaited[parts] = _leave(parts, text, error is not None)
    warned = [_warning(parts, engines) for parts, engines in late.items() if error is None]
    for engine in (one for engines in late.values() for one in engines):
        engine.fail()  # cancels receives: their buffers may be freed before MPI is finalized
    with contextlib.suppress(MPI.Exception):
        _hear(awaited)
    _native.close_requests()
    for text in warned:
        warnings.warn(text, RuntimeWarning, stacklevel=1)


def _text(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}".removesuffix(": ")
    except Exception:  # its own __str__ raises
        return name


def _settle(every: Iterable[Parts], seconds: float) -> dict[Parts, list[_native.Engine]]:
    """Let requests complete for a moment; return the engines whose requests do not."""
    until = time.monotonic() + seconds
    while late := {s: engines for s in every if (engines := s.engines.outstanding())}:
        if time.monotonic() > until:
            break
        _native.progress()
        time.sleep(1e-4)
    return late


def _leave(parts: Parts, text: str, failed: bool) -> set[int]:
    """Tell all ranks of a communicator that this one leaves; return whose last message to await.

    The ranks of this node read it in shared memory, the others get a message each. At a normal end
    of a large job only the ranks before and after this one get a message: programs without a
    mistake should send few.
    """
    engines, health = parts.engines, parts.health
    rank, size = health.rank, health.size
    notices = health.notices
    why = Departure(rank, text, health.meeting.steps, notices.left, engines.finished())
    engines.leave(why)
    whole = range(size)
    few = whole if size <= MOST_TOLD else [(rank + k) % size for k in (1, -1)]
    near = engines.near() | {rank}
    told = {*(whole if failed else few)} - near
    notices.depart(why, told)
    if not failed:
        return told
    notices.withdraw(told)
    return set()


def _hear(awaited: dict[Parts, set[int]]) -> None:
    """Receive the last messages of other ranks: MPI libraries complain of what nobody received.

    All ranks come here, as they all come to MPI.Finalize, which waits for them too. A rank that
    comes after LAST_MESSAGES finds that this one waits no longer, and sends nothing.
    """
    until = time.monotonic() + LAST_MESSAGES
    while late := {s: ranks for s, r in awaited.items() if (ranks := s.health.notices.unheard(r))}:
        if time.monotonic() > until:
            for parts, ranks in late.items():
                parts.health.notices.withdraw(ranks)
            return
        time.sleep(1e-4)


def _warning(parts: Parts, engines: list[_native.Engine]) -> str:
    """Return a warning of requests that were not complete when the program ended."""
    health, number = parts.health, sum(engine.issued - engine.epoch for engine in engines)
    first = reporter(engines[0]).doing()
    return (
        f"rank {health.rank} of {health.size} ended with {number} request(s) under way, the first "
        f"in {first}; the other ranks cannot complete them; call Wait before the program ends"
    )
