"""Free the communicators that a test leaves in a rank, and report anything else that it leaves."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from mpi4py import MPI

import han
from han import attached
from han.model.collectives import ROWS
from han.runtime.roots import ROOTS
from han.runtime.state import State
from han.submodules import registry
from pool import RENEW

MOST_KEPT = 200
LOOKS = 10  # probes for messages, as the first one may not find them
SPARE = 4  # descriptors that an MPI library may open when it first needs them
PERMANENT = (MPI.COMM_WORLD, MPI.COMM_SELF)
OF_PYTEST = "PYTEST_CURRENT_TEST"


class Made:
    """The communicators that got a han.Comm in this process, in order of creation."""

    def __init__(self) -> None:
        self._made: list[tuple[MPI.Intracomm, weakref.ref[State]]] = []
        self.kept = 0  # communicators that stay until the job ends
        self.newly_kept = 0  # of the last test
        self.spoilt = False  # whether one of these is on MPI.COMM_WORLD or MPI.COMM_SELF
        make, ROOTS.room = State.__init__, 0  # each test makes all that it uses

        def watched(state: State, comm: MPI.Intracomm, *args: Any, **more: Any) -> None:
            make(state, comm, *args, **more)
            self._made.append((MPI.Intracomm(comm), weakref.ref(state)))

        State.__init__ = watched  # type: ignore[assignment, method-assign]

    def some_failed(self) -> bool:
        """Return whether a communicator that is left has failed on this rank.

        Such a communicator is not freed: its pending messages could be received on the next
        communicator, which may get its context.
        """
        self._made = [(comm, state) for comm, state in self._made if _is_open(state())]
        return any(_has_failed(state()) for _, state in self._made)

    def free(self) -> None:
        """Free all communicators that are left, in order of creation, the same on all ranks."""
        made, self._made, self.newly_kept = self._made, [], 0
        for comm, state in made:
            left = state()
            if _is_open(left):
                _free(comm, left)
        self._free_roots(True)

    def keep(self) -> None:
        """Keep all communicators that are left, until the job ends."""
        self.newly_kept = len(self._made)
        self.spoilt = any(comm in PERMANENT for comm, _ in self._made)
        self.kept += self.newly_kept
        self._made = []
        self._free_roots(False)

    def _free_roots(self, free: bool) -> None:
        """Let each test begin without roots; `free` also their mail, which takes all ranks."""
        for root in ROOTS.kept:
            root.nest.close()
            root.mail.close(free)
        ROOTS.kept, ROOTS.room = [], 0


def _has_failed(state: State | None) -> bool:
    """Return whether a communicator has failed."""
    return state is not None and bool(state.parts.health.failed)


def _is_open(state: State | None) -> TypeGuard[State]:
    return state is not None and not state.closed


def _free(comm: MPI.Intracomm, state: State) -> None:
    """Free a communicator; of one that MPI owns, free only han's part."""
    if comm in PERMANENT:
        state.close()
        attached.drop(comm)
    else:
        comm.Free()


class Seen(NamedTuple):
    """The state of the process and of shared memory that a test must not change."""

    environment: dict[str, str]
    settings: dict[str, Any]
    tables: tuple[str, ...]  # collectives, and submodules that are not han's
    folder: str
    interrupt: Any
    threads: int
    descriptors: frozenset[str]  # number and file
    files: frozenset[str]
    mapped: int

    @classmethod
    def now(cls) -> Seen:
        """Return the present state of this process and of the files in shared memory."""
        return cls(
            {name: value for name, value in os.environ.items() if name != OF_PYTEST},
            {name: getattr(han.rc, name) for name in type(han.rc).__slots__},
            (*ROWS, *(name for name in registry._imported if not registry.is_own(name))),
            os.getcwd(),
            signal.getsignal(signal.SIGINT),
            threading.active_count(),
            _descriptors(),
            _files(),
            _mapped_channels(),
        )


def left_since(before: Seen, made: Made) -> list[str]:
    """Return what a test has left behind, other than communicators that are kept."""
    gc.collect()
    after = Seen.now()
    found = list(_found(before, after))
    if not made.newly_kept:
        found += _memory(before, after)
    if made.spoilt:
        found.append("a communicator that failed, on COMM_WORLD or COMM_SELF")
    if made.kept > MOST_KEPT:
        found.append(f"{RENEW}{made.kept} communicators of tests in which one had failed")
    return found


def _found(before: Seen, after: Seen) -> Iterator[str]:
    changed = before.environment.items() ^ after.environment.items()
    if changed:
        yield f"environment variables changed: {', '.join(sorted({name for name, _ in changed}))}"
    for name in ("settings", "tables", "folder", "interrupt"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{name} changed: {old} -> {new}"
    if after.threads > before.threads:
        yield f"{after.threads - before.threads} thread(s) more"
    files = after.files - before.files
    if files:
        time.sleep(0.2)  # time for other programs to remove theirs
        files &= _files()
    if files:
        yield f"files in /dev/shm: {', '.join(sorted(files))}"
    status = MPI.Status()
    if _a_message_is_there(status):
        yield f"a message of rank {status.source} on COMM_WORLD, with tag {status.tag}"


def _memory(before: Seen, after: Seen) -> Iterator[str]:
    if len(after.descriptors) > len(before.descriptors) + SPARE:
        new = sorted(after.descriptors - before.descriptors)
        yield f"open descriptors: {', '.join(new)}"
    if after.mapped > before.mapped:
        yield f"{after.mapped - before.mapped} mapping(s) more of communicators' shared memory"


def _a_message_is_there(status: MPI.Status) -> bool:
    """Return whether a message has not been received; probing lets MPI make progress."""
    for _ in range(LOOKS):
        if MPI.COMM_WORLD.Iprobe(status=status):
            return True
        time.sleep(0.0005)
    return False


def _descriptors() -> frozenset[str]:
    """Return number and file of the open descriptors; matplotlib keeps those of fonts."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
    return frozenset(text for text in found if not text.endswith(".ttf"))


def _files() -> frozenset[str]:
    """Return han's files in shared memory; a communicator unlinks its own when all ranks map it."""
    return frozenset(path.name for path in Path("/dev/shm").glob("han-*"))


def _mapped_channels() -> int:
    """Return the number of mapped channels, by their unlinked files."""
    return sum("/han-" in line for line in Path("/proc/self/maps").read_text().splitlines())
