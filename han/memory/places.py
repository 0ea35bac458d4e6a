"""Where arenas are, and this process's mappings of those of other processes.

A rank opens a peer's arena through ``/proc/PID/fd``, which the system allows between processes of
one user.
"""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple
from weakref import WeakValueDictionary

from han import _native
from han.memory.arena import Arena


@cache
def identity(pid: int) -> tuple[int, int, int]:
    """Return what identifies this process, number `pid`: also its start and namespace."""
    with open("/proc/self/stat") as stat:
        start = int(stat.read().rpartition(")")[2].split()[19])
    return pid, start, os.stat("/proc/self/ns/pid").st_ino


class Place(NamedTuple):
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
    def of(cls, arena: Arena) -> Place:
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

    def __init__(self, place: Place, writes: bool = False) -> None:
        rights = os.O_RDWR if writes else os.O_RDONLY
        fd = os.open(f"/proc/{place.pid}/fd/{place.fd}", rights | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) != (place.device, place.inode):
                raise OSError(0, "its process number belongs to another process here")
            self.memory, self.address = _native.map_file(fd, place.size, writes)
        finally:
            os.close(fd)


_known: WeakValueDictionary[tuple[Place, bool], Mapped] = WeakValueDictionary()


def map_place(place: Place, writes: bool = False) -> Mapped:
    """Map an arena, or return its mapping if there is one; raises OSError."""
    found = _known.get((place, writes))
    if found is None:
        found = _known[place, writes] = Mapped(place, writes)
    return found
