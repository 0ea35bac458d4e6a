"""Mappings of the arenas of the node's ranks.

A rank opens a peer's arena through ``/proc/PID/fd``, which the system allows between processes of
one user. It maps the arena for reading only. The ranks tell each other whether this succeeded, so
that all of them make the same choices.
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
BUFFERS = 2  # buffers of a rank: send and receive buffer


class Freeable(Protocol):
    """A window that its owner may free."""

    @property
    def freed(self) -> bool:
        """Whether it has been freed."""


class Place(NamedTuple):
    """The location of an arena: process, descriptor and address, and the file behind them."""

    pid: int
    fd: int
    device: int
    inode: int
    base: int
    size: int

    @classmethod
    def of(cls, arena: Arena) -> Place:
        """Return the location of an arena of this process."""
        stat, usage = os.fstat(arena.fd), arena.usage()
        return cls(arena.pid, arena.fd, stat.st_dev, stat.st_ino, usage.base, usage.size)

    def holds(self, address: int) -> bool:
        """Return whether an address of that process is in the arena."""
        return self.base <= address < self.base + self.size


class Mapped:
    """A peer's arena, mapped by this process; it is unmapped with the last reference to this."""

    def __init__(self, place: Place) -> None:
        fd = os.open(f"/proc/{place.pid}/fd/{place.fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) != (place.device, place.inode):
                raise OSError(0, "its process number belongs to another process here")
            self.memory, self.address = _native.map_file(fd, place.size)
        finally:
            os.close(fd)


@dataclass(frozen=True)
class Mapping:
    """Where this rank finds buffers of its peers.

    `refused` is why it cannot read them, the same on all ranks; "" if it can. ``shifts[r]`` holds
    what to add to an address of rank r to get the address in this process, for its send and its
    receive buffer. `held` owns the mapped memory. `windows` are the windows in it. `own` is the
    location of this rank's arena.
    """

    refused: str = ""
    shifts: npt.NDArray[np.uint64] | None = None
    held: tuple[object, ...] = ()
    windows: tuple[Freeable, ...] = ()
    own: Place | None = None

    def part(self, ranks: Sequence[int], own: Place) -> Mapping:
        """Return the mapping of a communicator with these ranks; `own` is this rank's arena."""
        assert self.shifts is not None
        return Mapping("", self.shifts[[*ranks]], self.held, own=own)

    def check(self) -> None:
        """Raise ArgumentError if a window has been freed.

        Freeing a window is collective, so all ranks raise.
        """
        if any(window.freed for window in self.windows):
            raise ArgumentError(
                "Start: the shared window of a buffer has been freed; make a new request with "
                "other buffers"
            )


_known: WeakValueDictionary[Place, Mapped] = WeakValueDictionary()


def _map(place: Place) -> Mapped:
    found = _known.get(place)
    if found is None:
        found = _known[place] = Mapped(place)
    return found


def map_arenas(meeting: Meeting, channels: Sequence[Channel]) -> Mapping:
    """Map the arenas of all ranks that share a channel with this rank; collective."""
    try:
        places = meeting.share(lambda: Place.of(process_arena()), STEP)
    except SetupError as error:
        return Mapping(str(error))
    return _map_places(meeting, channels, places)


def map_unasked(meeting: Meeting, channels: Sequence[Channel]) -> Mapping | None:
    """Map the arenas before shared arrays are known to be used; collective.

    Returns None if any rank has a limit on its address space (ulimit -v).
    """
    try:
        places = meeting.share(lambda: None if _limited() else Place.of(process_arena()), STEP)
    except SetupError as error:
        return Mapping(str(error))
    found = [place for place in places if place is not None]
    return _map_places(meeting, channels, found) if len(found) == len(places) else None


def _limited() -> bool:
    """Return whether addresses are limited (ulimit -v): mapped arenas need many addresses."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _map_places(meeting: Meeting, channels: Sequence[Channel], places: Sequence[Place]) -> Mapping:
    rank = meeting.rank
    peers = sorted({r for channel in channels for r in channel.ranks} - {rank})
    mapped: dict[int, Mapped] = {}
    reasons = meeting.share(lambda: _map_all(rank, peers, places, mapped), STEP)
    refused = next(filter(None, reasons), "")
    if refused:
        return Mapping(refused)
    shifts = np.zeros((meeting.size, BUFFERS), np.uint64)
    for r, found in mapped.items():
        shifts[r] = (found.address - places[r].base) % (1 << 64)
    return Mapping("", shifts, tuple(mapped.values()), own=places[rank])


def _map_all(
    rank: int, peers: Sequence[int], places: Sequence[Place], mapped: dict[int, Mapped]
) -> str:
    """Map the arenas of all peers; return why one cannot be mapped, or ""."""
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
