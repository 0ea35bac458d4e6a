"""Loans: the memory of a channel in the arena of its first rank, which lends it to the others.

The lender takes a block of its arena for everything but the rings, and tells the other ranks where
it is. They access it through a mapping of the arena. The rings get memory when runs first need it
(``native/engine/rings.h``). A rank that closes the channel says so in its control record. When all
ranks have closed it, the lender takes the memory back.
"""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass

from han import _native
from han.common.errors import SharedMemoryError
from han.common.units import format_size
from han.memory.arena import VARIABLE, Arena, process_arena
from han.memory.measured import PART
from han.model.channel_layout import CELLS, CLOSED, CONTROL, ROOM, Geometry


@dataclass(eq=False)
class Loan:
    """The block of a channel of `ranks` ranks, at an offset in the lender's arena.

    `base` is where this process finds the arena; `owner` keeps it mapped. `arena` is that of this
    process, if it is the lender.
    """

    base: int
    offset: int
    ranks: int
    owner: object
    arena: Arena | None = None
    _rings: int = 0  # their offset; 0: there are none yet
    _room: int = 0  # bytes of each ring that have memory
    _closed: bool = False

    @property
    def address(self) -> int:
        """The address of the block in this process."""
        return self.base + self.offset

    @property
    def room(self) -> int:
        """The bytes of each ring that have memory."""
        return _native.load_word(self.address + ROOM)

    def memory(self, nbytes: int) -> memoryview:
        """Return the block."""
        whole = (ctypes.c_ubyte * nbytes).from_address(self.address)
        return memoryview(whole).cast("B")

    def make_room(self, geometry: Geometry, nbytes: int) -> None:
        """Add memory to the rings for runs that take `nbytes` of each; only the lender does.

        Raises SharedMemoryError.
        """
        room = geometry.ring_for(nbytes)
        if self.arena is None or room <= self._room:
            return
        try:
            self._fill(self.arena, geometry.ring, room)
        except OSError as error:
            raise _no_room(self.arena, room * self.ranks, error) from None
        self._room = room
        _native.store_word(self.address + CELLS, self._rings)
        _native.store_word(self.address + ROOM, room)

    def _fill(self, arena: Arena, ring: int, room: int) -> None:
        if not self._rings:
            self._rings = arena.take(self.ranks * ring, bare=True) - self.base
        first = self.base + self._rings + self._room
        for rank in range(self.ranks):
            arena.fill(first + rank * ring, room - self._room)

    def close(self, me: int) -> None:
        """Say that this rank, number `me` of the channel, accesses the memory no more."""
        if self._closed:
            return
        self._closed = True
        _native.store_word(self.address + me * CONTROL + CLOSED, 1)
        if self.arena is not None:
            with _lock:
                _ending.append(self)
            take_back()

    def over(self) -> bool:
        """Return whether no rank accesses the memory any more."""
        first = self.address + CLOSED
        return all(_native.load_word(first + rank * CONTROL) for rank in range(self.ranks))

    def end(self) -> None:
        """Take the memory back into the arena."""
        assert self.arena is not None
        self.arena.give(self.address)
        if self._rings:
            self.arena.give(self.base + self._rings)


_lock = threading.RLock()  # a signal handler may free a communicator too
_ending: list[Loan] = []  # closed by this process, their lender


def take_back() -> None:
    """End the loans that all ranks have closed."""
    with _lock:
        for loan in [loan for loan in _ending if loan.over()]:
            if loan in _ending:  # a signal handler may have ended it
                _ending.remove(loan)  # first: another end would give back memory of a later loan
                loan.end()


def lend(geometry: Geometry, more: int = 0) -> Loan | None:
    """Lend the memory of a channel, with some `more` bytes in place of cells.

    None if this process has no arena with room for it.
    """
    take_back()
    try:
        arena = process_arena()
        base, size, *_ = arena.usage()
        if geometry.ranks * geometry.ring > size // PART:
            return None
        address = arena.take(geometry.cells + more)
    except OSError:  # also SharedMemoryError
        return None
    return Loan(base, address - base, geometry.ranks, arena, arena)


def _no_room(arena: Arena, nbytes: int, error: OSError) -> SharedMemoryError:
    taken = format_size(arena.usage().taken)
    failure = SharedMemoryError(
        f"no room for {format_size(nbytes)} of shared memory for a channel: "
        f"{os.strerror(error.errno or 0)}; {taken} are in use by shared arrays and channels of "
        f"this process; let some go, ask for less with HAN_MEMORY or memory: in the configuration, "
        f"or allow more with {VARIABLE}"
    )
    failure.errno = error.errno
    failure.alone = True
    return failure
