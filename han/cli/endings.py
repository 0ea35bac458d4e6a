"""The end of a command: a mistake is printed once, and all ranks exit with the same status."""

from __future__ import annotations

import sys
import time
import traceback
from typing import TYPE_CHECKING, NoReturn

from han.common import launcher
from han.common.errors import (
    ArgumentError,
    ConfigError,
    HanError,
    MissingLibraryError,
    WrongResultError,
)

if TYPE_CHECKING:
    from mpi4py import MPI

TAG = 31415  # of the messages below, in MPI.COMM_WORLD
PATIENCE = 10.0  # seconds that a rank with a mistake waits for the other ranks
NAP = 0.002
INTERRUPTED = 130  # the status of a command that the user interrupts
GRACE = 1.0  # seconds: a launcher drops what it has not forwarded when a rank fails or aborts


def world() -> MPI.Intracomm | None:
    """Return MPI.COMM_WORLD if MPI runs in this process and there are several ranks."""
    if sys.modules.get("mpi4py.MPI") is None:
        return None
    from mpi4py import MPI

    running = MPI.Is_initialized() and not MPI.Is_finalized()
    return MPI.COMM_WORLD if running and MPI.COMM_WORLD.size > 1 else None


def is_first() -> bool:
    """Whether this is rank 0, which prints: by MPI, or by the launcher if MPI is not loaded."""
    comm = world()
    if comm is not None:
        return comm.rank == 0
    return launcher.is_first()


def is_mistake(error: HanError) -> bool:
    """Whether the user can correct the cause, and probably all ranks raise the same error."""
    if isinstance(error, ArgumentError | ConfigError | MissingLibraryError):
        return True
    from han.model.timeline import TimelineError
    from han.tasks.files.store import PlanFileError

    return isinstance(error, PlanFileError | TimelineError | WrongResultError)


def show(text: str) -> None:
    """Print an error."""
    print(f"Error: {text}", file=sys.stderr, flush=True)


def leave(mistake: str = "", status: int = 0) -> NoReturn:
    """Exit on all ranks, and print the mistake of the lowest rank that made one.

    Each rank passes its own mistake, or an empty text. Maybe only this rank was interrupted.
    """
    comm = world()
    waits = not mistake and status != INTERRUPTED
    first = mistake if comm is None else _first(comm, mistake, waits)
    if first is None:
        abort(mistake or "interrupted")
    if first and is_first():
        show(first)
    if (first or status) and not is_first():
        time.sleep(GRACE)  # rank 0 prints meanwhile
    raise SystemExit(1 if first else status)


def abort(text: str = "") -> NoReturn:
    """Print `text`, or the traceback of the present exception, and end all ranks."""
    if text:
        show(text)
    else:
        traceback.print_exc()
    comm = world()
    if comm is not None:
        time.sleep(GRACE)  # the launcher forwards the text meanwhile
        comm.Abort(1)
    raise SystemExit(1)


def _first(comm: MPI.Intracomm, mistake: str, waits: bool) -> str | None:
    """Return the mistake of the lowest rank that made one, on all ranks.

    A rank that `waits` does so until all ranks have ended. Returns None on another one if the other
    ranks do not answer in time, because they still run the command.
    """
    limit = float("inf") if waits else time.monotonic() + PATIENCE
    if comm.rank:
        comm.isend(mistake, 0, TAG)
        return _heard(comm, 0, limit)
    texts = [mistake]
    for peer in range(1, comm.size):
        text = _heard(comm, peer, limit)
        if text is None:
            return None
        texts.append(text)
    first = next((text for text in texts if text), "")
    for peer in range(1, comm.size):
        comm.send(first, peer, TAG)
    return first


def _heard(comm: MPI.Intracomm, peer: int, limit: float) -> str | None:
    while not comm.iprobe(peer, TAG):
        if time.monotonic() > limit:
            return None
        time.sleep(NAP)
    text: str = comm.recv(source=peer, tag=TAG)
    return text
