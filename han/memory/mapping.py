"""Mappings of the arenas of the node's ranks.

A rank maps the arenas of its peers for reading only. The ranks tell each other whether this
succeeded, so that all of them make the same choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from han.common.errors import ArgumentError, SetupError
from han.memory.arena import ArenaHandle, Mapped, map_arena, process_arena
from han.memory.channel import Channel
from han.ranks.meeting import Meeting
from han.ranks.quota import addresses_limited

if TYPE_CHECKING:
    import numpy.typing as npt

STEP = "the mapping of shared arrays"
BUFFERS = 2  # buffers of a rank: send and receive buffer


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
    windows: tuple[Any, ...] = ()
    own: ArenaHandle | None = None

    def part(self, ranks: Sequence[int], own: ArenaHandle) -> Mapping:
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


def map_arenas(meeting: Meeting, channels: Sequence[Channel]) -> Mapping:
    """Map the arenas of all ranks that share a channel with this rank; collective."""
    places = ask_places(meeting, lambda: False)
    return Mapping(places) if isinstance(places, str) else map_places(meeting, channels, places)


def ask_places(
    meeting: Meeting, limited: Callable[[], bool] = addresses_limited
) -> list[ArenaHandle] | str:
    """Return where the arenas of all ranks are, or why they cannot be mapped; collective.

    The reason is "" if addresses are `limited` on any rank (ulimit -v): then arenas are mapped only
    if shared arrays are used.
    """
    try:
        places = meeting.share(lambda: None if limited() else ArenaHandle.of(process_arena()), STEP)
    except SetupError as error:
        return str(error)
    found = [place for place in places if place is not None]
    return found if len(found) == len(places) else ""


def map_known(rank: int, places: Sequence[ArenaHandle]) -> Mapping:
    """Map the arenas of all ranks; not collective. Raises OSError."""
    peers = (r for r in range(len(places)) if r != rank)
    return _mapping(rank, places, {r: map_arena(places[r]) for r in peers})


def _mapping(rank: int, places: Sequence[ArenaHandle], mapped: dict[int, Mapped]) -> Mapping:
    shifts = np.zeros((len(places), BUFFERS), np.uint64)
    for r, found in mapped.items():
        shifts[r] = (found.address - places[r].base) % (1 << 64)
    return Mapping("", shifts, tuple(mapped.values()), own=places[rank])


def map_places(
    meeting: Meeting, channels: Sequence[Channel], places: Sequence[ArenaHandle]
) -> Mapping:
    """Map the arenas of all ranks that share a channel with this rank; collective."""
    rank = meeting.rank
    peers = sorted({r for channel in channels for r in channel.ranks} - {rank})
    mapped: dict[int, Mapped] = {}
    reasons = meeting.share(lambda: _map_all(rank, peers, places, mapped), STEP)
    refused = next(filter(None, reasons), "")
    if refused:
        return Mapping(refused)
    return _mapping(rank, places, mapped)


def _map_all(
    rank: int, peers: Sequence[int], places: Sequence[ArenaHandle], mapped: dict[int, Mapped]
) -> str:
    """Map the arenas of all peers; return why one cannot be mapped, or ""."""
    r = rank
    try:
        for r in peers:
            mapped[r] = map_arena(places[r])
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"rank {rank} cannot map the shared arrays of rank {r}: {reason}"
    return ""
