"""MPI's shared windows, attached so that collectives read arrays in them without a copy.

A rank maps an attached window a second time, and collectives use only that mapping. When the
window is freed, MPI unmaps its own mapping. The second one stays until the last request that uses
it is freed. The ranks compare the files behind the segments, so that all of them attach the same
window.

Source: HAN, section III (SOLO).
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentError
from han.memory.arena import holds
from han.memory.mapping import BUFFERS, Mapping
from han.memory.segments import Copy, Segment, joined, map_again, segments_of
from han.ranks.meeting import Meeting
from han.tasks.signature import Signature

T = TypeVar("T")
# Values in place of a window's number: memory that peers cannot map; no buffer; a shared array.
ELSEWHERE, NOWHERE, ARENA = -2, -1, 0


class Spot(NamedTuple):
    """The location of a buffer: the number of a window, and the index of a part of it."""

    window: int
    part: int = 0


Spots = tuple[Spot, Spot]  # the send and the receive buffer of a rank


@dataclass(eq=False)
class Attached:
    """An attached window.

    `parts` are its segments in MPI's mapping. `copies` are han's own mappings of them.
    """

    number: int  # unique in the communicator, the same on all ranks
    handle: int
    parts: tuple[Segment, ...]
    copies: tuple[Copy, ...]
    homes: Sequence[tuple[int, ...]]  # by rank: the addresses of its `copies`
    freed: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all ranks."""
        return sum(part.nbytes for part in self.parts)

    def find(self, address: int, nbytes: int) -> Spot | None:
        """Return the location of these bytes, or None if they are not in this window."""
        for k, part in enumerate(self.parts):
            if part.address <= address <= part.address + part.nbytes - nbytes:
                return Spot(self.number, k)
        return None

    def ours(self, address: int, part: int) -> int:
        """Return the address in han's own mapping for an address in MPI's mapping of a part."""
        return address - self.parts[part].address + self.copies[part].address

    def shift(self, rank: int, part: int) -> int:
        """Return what to add to an address of `rank` to get the address in this process."""
        return (self.copies[part].address - self.homes[rank][part]) % (1 << 64)

    def end(self, freed: bool = False) -> None:
        """Release the mappings; requests that use them keep them alive."""
        self.freed, self.copies = self.freed or freed, ()


class Windows:
    """The windows that are attached to a communicator.

    `nodes` holds for each rank the lowest rank that shares memory with it.
    """

    def __init__(self, meeting: Meeting, nodes: Sequence[int]) -> None:
        self.meeting, self.nodes = meeting, nodes
        self._numbers = itertools.count(1)
        self._attached: dict[int, Attached] = {}

    def __iter__(self) -> Iterator[Attached]:
        self._attached = {n: a for n, a in self._attached.items() if not a.freed}
        return iter(self._attached.values())

    def __bool__(self) -> bool:
        """Whether any window is attached."""
        return bool(self._attached) and any(True for _ in self)

    @property
    def node(self) -> list[int]:
        """The ranks that share memory with this one, itself included."""
        return [r for r, first in enumerate(self.nodes) if first == self.nodes[self.meeting.rank]]

    # ---- attaching --------------------------------------------------------------------------

    def attach(self, win: Any) -> str:
        """Attach a window; collective. Returns why it cannot be, the same on all ranks, or ""."""
        step = "attach_window"
        peers = [r for r in self.node if r != self.meeting.rank]
        segments, problem = _tried(lambda: segments_of(win, self.meeting.comm, peers))
        known = 0 if problem else self._number(win)
        gathered = self.meeting.allgather((segments, problem, known), step)
        wrong = _first([text for _, text, _ in gathered]) or self._differing(gathered)
        if wrong or known:
            return wrong
        parts = joined([gathered[r][0] for r in self.node], segments)
        number = next(self._numbers)
        copies, problem = _tried(lambda: tuple(map(map_again, parts)))
        mapped = self.meeting.allgather((tuple(c.address for c in copies), problem), step)
        wrong = _first([text for _, text in mapped])
        if not wrong:
            homes = [addresses for addresses, _ in mapped]
            attached = Attached(number, win.handle, parts, copies, homes)
            self._attached[number] = attached
            _watch(win, attached)
        return wrong

    def _number(self, win: MPI.Win) -> int:
        handle = win.handle
        return next((a.number for a in self if a.handle == handle), 0)

    def _differing(self, gathered: Sequence[tuple[Sequence[Segment], str, int]]) -> str:
        """Return a message that names two ranks that passed different windows, or ""."""
        for r, (segments, _, known) in enumerate(gathered):
            first, _, _ = gathered[self.nodes[r]]
            if [s.place for s in segments] != [s.place for s in first]:
                return f"ranks {self.nodes[r]} and {r} have passed different windows"
            if known != gathered[0][2]:
                return f"ranks 0 and {r} have passed different windows: one is attached already"
        return ""

    def detach(self, win: Any) -> str:
        """Detach a window; collective. Returns why it cannot be, the same on all ranks, or ""."""
        known = self._number(win) if isinstance(win, MPI.Win) and win else 0
        numbers = self.meeting.allgather(known, "detach_window")
        if 0 in numbers:
            return f"rank {numbers.index(0)}: win is not attached to this communicator"
        if len(set(numbers)) > 1:
            return "the ranks have passed different windows"
        self._attached.pop(known).end()
        return ""

    def clear(self) -> None:
        """Forget all windows."""
        self._attached.clear()

    # ---- buffers ----------------------------------------------------------------------------

    def spots(self, send: int, recv: int, signature: Signature) -> tuple[Spots, tuple[int, ...]]:
        """Return where the buffers at these addresses are, and the numbers of attached windows."""
        first = self._spot(send, signature.shown(len(self.nodes)))
        return (first, self._spot(recv, signature.nbytes)), tuple(a.number for a in self)

    def _spot(self, address: int, nbytes: int) -> Spot:
        if not nbytes:
            return Spot(ELSEWHERE)
        if not address:
            return Spot(NOWHERE)
        if holds(address, nbytes):
            return Spot(ARENA)
        return next(filter(None, (a.find(address, nbytes) for a in self)), Spot(ELSEWHERE))

    def moved(self, address: int, spot: Spot) -> int:
        """Return the address that collectives use for a buffer at this location."""
        if spot.window <= ARENA:
            return address
        return self._attached[spot.window].ours(address, spot.part)

    def held(self, spots: Sequence[Spots]) -> Mapping:
        """Return a Mapping that only keeps alive the windows that buffers of any rank are in."""
        used = {
            s.window: self._attached[s.window] for pair in spots for s in pair if s.window > ARENA
        }
        copies = tuple(copy for attached in used.values() for copy in attached.copies)
        return Mapping("a buffer is in private memory of its rank", None, copies, (*used.values(),))

    def mapping(self, spots: Sequence[Spots], arenas: Mapping | None) -> Mapping:
        """Return where this rank finds the buffers of its node; `arenas` maps the shared arrays."""
        shifts = np.zeros((len(spots), BUFFERS), np.uint64)
        for r in self.node:
            for k, spot in enumerate(spots[r]):
                if spot.window > ARENA:
                    shifts[r, k] = self._attached[spot.window].shift(r, spot.part)
                elif spot.window == ARENA and arenas is not None and arenas.shifts is not None:
                    shifts[r, k] = arenas.shifts[r, k]
        held = self.held(spots)
        return Mapping("", shifts, (*(arenas.held if arenas else ()), *held.held), held.windows)


def agreed_spots(gathered: Sequence[tuple[Spots, tuple[int, ...]] | None]) -> tuple[Spots, ...]:
    """Return the buffers' locations by rank; () if the ranks have attached different windows."""
    pairs = [one for one in gathered if one is not None]
    alike = len(pairs) == len(gathered) and len({attached for _, attached in pairs}) == 1
    return tuple(spots for spots, _ in pairs) if alike else ()


def _tried(make: Callable[[], tuple[T, ...]]) -> tuple[tuple[T, ...], str]:
    """Return what `make` returns and "", or () and the reason why it raised."""
    try:
        return make(), ""
    except (ArgumentError, OSError, MPI.Exception) as error:
        return (), str(getattr(error, "strerror", None) or error)


def _first(texts: Sequence[str]) -> str:
    return next((f"rank {r}: {text}" for r, text in enumerate(texts) if text), "")


# ---- windows that are freed ---------------------------------------------------------------------

_keyval: list[int] = []  # key of the window attribute below, created at first use


def _watch(win: MPI.Win, attached: Attached) -> None:
    """Set an attribute on the window, so that `_end` is called when the window is freed."""
    if not _keyval:
        _keyval.append(MPI.Win.Create_keyval(delete_fn=_end))
    users: weakref.WeakSet[Attached] | None = win.Get_attr(_keyval[0])  # type: ignore[assignment]
    if users is None:
        win.Set_attr(_keyval[0], weakref.WeakSet([attached]))
    else:
        users.add(attached)


def _end(win: MPI.Win, keyval: int, users: weakref.WeakSet[Attached]) -> None:
    for attached in list(users):
        attached.end(freed=True)
