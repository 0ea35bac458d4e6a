"""Mapping the arenas of the ranks of the node: tried, and agreed by all.

A rank opens a peer's arena through ``/proc``, which the system allows to processes of one user, and
maps it for reading only. Whether all could is known to all, so that all choose alike.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from han import _native
from han.common.errors import ArgumentError, SetupError
from han.memory.arena import Arena, process_arena
from han.memory.channel import Channel
from han.ranks.meeting import Meeting

if TYPE_CHECKING:
    import numpy.typing as npt

STEP = "the mapping of shared arrays"
BUFFERS = 2  # of a rank: send and receive


class Freeable(Protocol):
    """A window of MPI's that its owner may free."""

    @property
    def freed(self) -> bool:
        """Whether it has been freed."""


class Place(NamedTuple):
    """Where an arena is: the process and its descriptor, and the file that is to be found there."""

    pid: int
    fd: int
    device: int
    inode: int
    base: int
    size: int

    @classmethod
    def of(cls, arena: Arena) -> Place:
        """Describe this process's."""
        stat, usage = os.fstat(arena.fd), arena.usage()
        return cls(arena.pid, arena.fd, stat.st_dev, stat.st_ino, usage.base, usage.size)

    def holds(self, address: int) -> bool:
        """Whether an address of that process is in it."""
        return self.base <= address < self.base + self.size


class Mapped:
    """A peer's arena in this process's memory, until nobody holds it any more."""

    def __init__(self, place: Place) -> None:
        fd = os.open(f"/proc/{place.pid}/fd/{place.fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) != (place.device, place.inode):
                raise OSError(0, "another file is there: process numbers differ")
            self.memory, self.address = _native.map_file(fd, place.size)
        finally:
            os.close(fd)


@dataclass(frozen=True)
class Mapping:
    """The memory that this rank can read; `refused` says why it is none, the same on all ranks.

    ``shifts[r]`` is what is to be added to an address of rank r's to find it in this process, for
    its send and its receive buffer. `held` owns the memory; `windows` are those that are in it;
    `own` is where the others find this rank's.
    """

    refused: str = ""
    shifts: npt.NDArray[np.uint64] | None = None
    held: tuple[object, ...] = ()
    windows: tuple[Freeable, ...] = ()
    own: Place | None = None

    def check(self) -> None:
        """Raise ArgumentError where a window has been freed: its ranks have done so together."""
        if any(window.freed for window in self.windows):
            raise ArgumentError(
                "Start: the shared window that a buffer is in has been freed; make the request "
                "anew with buffers that there are"
            )


_known: WeakValueDictionary[Place, Mapped] = WeakValueDictionary()


def _map(place: Place) -> Mapped:
    found = _known.get(place)
    if found is None:
        found = _known[place] = Mapped(place)
    return found


def map_arenas(meeting: Meeting, channels: Sequence[Channel]) -> Mapping:
    """Map the arenas of all ranks that share a channel with this one; collective."""
    try:
        places = meeting.share(lambda: Place.of(process_arena()), STEP)
    except SetupError as error:
        return Mapping(str(error))
    return _map_places(meeting, channels, places)


def map_unasked(meeting: Meeting, channels: Sequence[Channel]) -> Mapping | None:
    """Map them in case that shared arrays are used; collective. None where addresses are short."""
    try:
        places = meeting.share(lambda: None if _limited() else Place.of(process_arena()), STEP)
    except SetupError as error:
        return Mapping(str(error))
    found = [place for place in places if place is not None]
    return _map_places(meeting, channels, found) if len(found) == len(places) else None


def _limited() -> bool:
    """Whether addresses are limited (ulimit -v): arenas take many, which others may need."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _map_places(meeting: Meeting, channels: Sequence[Channel], places: Sequence[Place]) -> Mapping:
    rank = meeting.rank
    peers = sorted({r for channel in channels for r in channel.ranks} - {rank})
    mapped: dict[int, Mapped] = {}
    said = meeting.share(lambda: _map_all(rank, peers, places, mapped), STEP)
    refused = next(filter(None, said), "")
    if refused:
        return Mapping(refused)
    shifts = np.zeros((meeting.size, BUFFERS), np.uint64)
    for r, found in mapped.items():
        shifts[r] = (found.address - places[r].base) % (1 << 64)
    return Mapping("", shifts, tuple(mapped.values()), own=places[rank])


def _map_all(
    rank: int, peers: Sequence[int], places: Sequence[Place], mapped: dict[int, Mapped]
) -> str:
    """Map them all; return the reason why one cannot be."""
    for r in peers:
        reason = _try(r, places[r], mapped)
        if reason:
            return f"rank {rank} cannot map the shared arrays of rank {r}: {reason}"
    return ""


def _try(rank: int, place: Place, mapped: dict[int, Mapped]) -> str:
    try:
        mapped[rank] = _map(place)
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""
