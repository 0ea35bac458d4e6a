"""The arena of a process: memory for shared arrays, which the other ranks of the node can map.

The arena is a sparse file without a name. Its size is the limit of what it may hold. Memory of the
file is reserved when an array is made, and given back when the array is freed. The file lives as
long as the process or the last array in it. Making an array involves no other rank. Peers map the
file when a collective first reads from it (``han/memory/mapping.py``): a rank opens a peer's arena
through ``/proc/PID/fd``, which the system allows between processes of one user.

Source: NEP 49 (NumPy's data allocators).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from han import _native
from han.common.errors import ConfigError, SharedMemoryError
from han.common.units import format_size, parse_size
from han.memory.measured import KEPT
from han.memory.pages import WHEN_TOUCHED, policy
from han.ranks.quota import memory, memory_groups

if TYPE_CHECKING:
    import numpy.typing as npt


def directory() -> str:
    """Return the folder in which files of shared memory are made."""
    return os.environ.get("HAN_SHM_DIR", "/dev/shm")


VARIABLE = "HAN_ARENA"
MOST = 1 << 44  # bytes at most: a process maps the arenas of many ranks
LEAST = 1 << 20


class Usage(NamedTuple):
    """The use of an arena, in bytes.

    `refusals` counts allocations that failed. `refused` is the size of the last of them and
    `error` its errno.
    """

    base: int
    size: int
    taken: int
    kept: int
    refusals: int
    refused: int
    error: int


@dataclass(frozen=True)
class Arena:
    """The arena of a process: NumPy's handle of it and the file's descriptor."""

    handle: object
    fd: int
    kind: str = "memfd"  # or the folder that contains the file
    pid: int = field(default_factory=os.getpid)

    def holds(self, address: int, nbytes: int) -> bool:
        """Return whether these bytes are in the arena."""
        return _native.arena_holds(self.handle, address, nbytes)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Make NumPy allocate the data of new arrays in the arena, in this thread and context.

        Raises MemoryError with the numbers and a remedy if the arena refuses an allocation.
        """
        before, refusals = _native.arena_use(self.handle), self.usage().refusals
        try:
            yield
        except MemoryError as error:
            if self.usage().refusals == refusals:
                raise
            raise MemoryError(self._explain()) from error
        finally:
            _native.arena_use(before)

    def usage(self) -> Usage:
        """Return how much of the arena is in use."""
        return Usage(*_native.arena_tell(self.handle))

    def take(self, nbytes: int, bare: bool = False) -> int:
        """Return the address of so many bytes: zeros, or without memory if `bare`.

        Raises OSError.
        """
        return _native.arena_take(self.handle, nbytes, bare)

    def fill(self, address: int, nbytes: int) -> None:
        """Reserve memory for bytes that were taken bare; raises OSError."""
        _native.arena_fill(self.handle, address, nbytes)

    def give(self, address: int) -> None:
        """Give back what was taken."""
        _native.arena_give(self.handle, address)

    def _explain(self) -> str:
        """Return the message for the last refusal."""
        usage = self.usage()
        text = f"no room for a shared array of {format_size(usage.refused)}: "
        taken = format_size(usage.taken)
        if usage.error == errno.EDQUOT:
            return (
                f"{text}a memory limit of a control group (a container's, a batch job's) leaves "
                f"too little; {taken} are in use by this process's shared arrays; let some go, or "
                "raise the limit"
            )
        if usage.error != errno.ENOMEM:
            return f"{text}the system says {os.strerror(usage.error)!r}; {taken} are in use"
        return (
            f"{text}{taken} of {format_size(usage.size)} are in use by this process's shared "
            f"arrays; let some go, or allow more with {VARIABLE}"
        )


def limit(environ: Any = os.environ) -> int:
    """Return how many bytes of shared arrays a process may have.

    HAN_ARENA sets it. Otherwise it is half of the machine's memory, or half of the memory limit of
    the container: beyond that limit the kernel would kill a process. Raises ConfigError.
    """
    text = environ.get(VARIABLE)
    if not text:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return min(MOST, max(LEAST, int(min(machine, memory())) // 2 >> 21 << 21))
    try:
        size = parse_size(text)
    except ValueError as error:
        raise ConfigError(f"environment variable {VARIABLE}: {error}") from None
    if not LEAST <= size <= MOST:
        raise ConfigError(
            f"environment variable {VARIABLE}: {text} is not in {format_size(LEAST)} to "
            f"{format_size(MOST)}"
        )
    return size


def open_arena(size: int, keep: int = KEPT) -> Arena:
    """Make an arena of at most `size` bytes, of which none are reserved yet.

    At most `keep` bytes of free memory stay reserved. Raises SharedMemoryError if the system
    cannot make or map such a file.
    """
    try:
        fd, kind = _nameless_file()
        return _arena_in(fd, kind, size, keep)
    except OSError as error:
        failure = SharedMemoryError(
            f"cannot make an arena of {format_size(size)} for shared arrays: {error.strerror}; "
            f"a limit on addresses (ulimit -v) may be the reason: allow less with {VARIABLE}"
        )
        failure.errno = error.errno
        raise failure from None


def _nameless_file() -> tuple[int, str]:
    """Open a memfd, or a nameless file in the folder of shared memory where there are no memfds."""
    try:
        return os.memfd_create("han", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "memfd"
    except (AttributeError, OSError):  # a Python or kernel without memfd_create
        place = directory()
        return os.open(place, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600), place


def _arena_in(fd: int, kind: str, size: int, keep: int) -> Arena:
    try:
        os.ftruncate(fd, size)
        # A peer that accesses a page beyond the end of the file would get SIGBUS: forbid shrinking.
        with contextlib.suppress(OSError):
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        touch = kind == "memfd" and policy() == WHEN_TOUCHED
        handle = _native.arena_open(fd, size, keep, touch, memory_groups())
    except BaseException:
        os.close(fd)
        raise
    return Arena(handle, fd, kind)


_lock = threading.Lock()
_made: list[Arena] = []  # the arena of this process, if it has one


def process_arena() -> Arena:
    """Return the arena of this process; make it at the first call. A forked child gets its own."""
    with _lock:
        if not _made or _made[-1].pid != os.getpid():
            _made.append(open_arena(limit()))
        return _made[-1]


def holds(address: int, nbytes: int) -> bool:
    """Return whether these bytes are in the arena of this process."""
    arena = _made[-1] if _made else None
    return arena is not None and arena.pid == os.getpid() and arena.holds(address, nbytes)


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Make every NumPy array that is created inside a shared array.

    This applies to the thread and context that enter it, and to arrays that own their data. Not
    collective. Raises MemoryError when there is no room.
    """
    with process_arena().used():
        yield


def as_shared(a: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """Return `a` if it is a contiguous shared array of type `dtype`, else such a copy of it."""
    array = np.asarray(a, dtype)
    if array.flags.forc and holds(array.ctypes.data, array.nbytes):
        return array
    with process_arena().used():
        return np.array(array, copy=True, order="A", subok=False)  # contiguous in any order


@cache
def identity(pid: int) -> tuple[int, int, int]:
    """Return what identifies this process, number `pid`: also its start and namespace."""
    with open("/proc/self/stat") as stat:
        start = int(stat.read().rpartition(")")[2].split()[19])
    return pid, start, os.stat("/proc/self/ns/pid").st_ino


class ArenaHandle(NamedTuple):
    """The location of an arena: process, descriptor and address, and the file behind them.

    `start` and `namespace` tell the process from later ones with its number.
    """

    pid: int
    start: int
    namespace: int
    fd: int
    device: int
    inode: int
    base: int
    size: int

    @classmethod
    def of(cls, arena: Arena) -> ArenaHandle:
        """Return the location of an arena of this process."""
        stat, usage = os.fstat(arena.fd), arena.usage()
        process = identity(arena.pid)
        return cls(*process, arena.fd, stat.st_dev, stat.st_ino, usage.base, usage.size)

    def holds(self, address: int) -> bool:
        """Return whether an address of that process is in the arena."""
        return self.base <= address < self.base + self.size


class Mapped:
    """A peer's arena, mapped by this process; it is unmapped with the last reference to this.

    It is mapped for reading only, unless the peer lends memory for channels (`writes`).
    """

    def __init__(self, place: ArenaHandle, writes: bool = False) -> None:
        rights = os.O_RDWR if writes else os.O_RDONLY
        fd = os.open(f"/proc/{place.pid}/fd/{place.fd}", rights | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) != (place.device, place.inode):
                raise OSError(0, "its process number belongs to another process here")
            self.memory, self.address = _native.map_file(fd, place.size, writes)
        finally:
            os.close(fd)


_known: WeakValueDictionary[tuple[ArenaHandle, bool], Mapped] = WeakValueDictionary()


def map_arena(place: ArenaHandle, writes: bool = False) -> Mapped:
    """Map an arena, or return its mapping if there is one; raises OSError."""
    found = _known.get((place, writes))
    if found is None:
        found = _known[place, writes] = Mapped(place, writes)
    return found
