"""The segments of MPI's shared windows: in which files they are, and mapped once more.

Source: MPI 4.1, section 12.2.3 (windows that allocate shared memory).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mpi4py import MPI

from han import _native
from han.common.errors import ArgumentError, ArgumentTypeError
from han.message.unlocked import free, translated

MAPS = Path("/proc/self/maps")
File = tuple[str, int]  # device and inode
NO_FILE: File = ("", 0)  # of a lone rank's: nobody else reads it


class Segment(NamedTuple):
    """Bytes of a window: where MPI has them in this process, and in which file they are."""

    address: int
    nbytes: int
    file: File
    offset: int

    @property
    def place(self) -> tuple[int, File, int]:
        """What is the same in all processes."""
        return self.nbytes, self.file, self.offset

    def continues(self, before: Segment) -> bool:
        """Whether it follows another one, in memory and in the file."""
        return (self.address, self.file, self.offset) == (
            before.address + before.nbytes, before.file, before.offset + before.nbytes,
        )  # fmt: skip


class Copy(NamedTuple):
    """A mapping of our own of a segment's memory: who unmaps it at his end, and where it is."""

    owner: object
    address: int


def segments_of(win: Any, comm: MPI.Comm, peers: Sequence[int]) -> tuple[Segment, ...]:
    """Return the segments of a window that have bytes.

    Raises ArgumentError for what is no shared window of all of `peers`, ranks of `comm`.
    """
    if not isinstance(win, MPI.Win):
        raise ArgumentTypeError(f"win: {type(win).__name__} is no MPI.Win")
    if win == MPI.WIN_NULL:
        raise ArgumentError("win is MPI.WIN_NULL: it was freed, or never made")
    if win.flavor != MPI.WIN_FLAVOR_SHARED or win.model != MPI.WIN_UNIFIED:
        raise ArgumentError(
            "win is not in memory that its ranks share; make it with MPI.Win.Allocate_shared"
        )
    size, areas = _members(win, comm, peers), _shared_areas()
    found = [win.Shared_query(r)[0] for r in range(size)]
    return tuple(_segment(m.address, m.nbytes, areas, bool(peers)) for m in found if m.nbytes)


def _members(win: MPI.Win, comm: MPI.Comm, peers: Sequence[int]) -> int:
    """Return how many ranks a window has; refuse one that lacks some of `peers`."""
    group, own = win.Get_group(), comm.Get_group()
    places, size = translated(peers, own, group), group.Get_size()
    free(group)
    free(own)
    missing = [str(r) for r, place in zip(peers, places, strict=True) if place == MPI.UNDEFINED]
    if missing:
        raise ArgumentError(
            f"win is of {size} ranks, and of those that share memory here it lacks "
            f"{', '.join(missing)}; allocate it on this communicator, or on all of a node's ranks "
            "(Split_type)"
        )
    return size


def joined(everyone: Sequence[Sequence[Segment]], mine: Sequence[Segment]) -> tuple[Segment, ...]:
    """Join segments that continue each other on all ranks: an array may lie across them."""
    parts: list[Segment] = []
    for k, segment in enumerate(mine):
        if k and all(segments[k].continues(segments[k - 1]) for segments in everyone):
            parts[-1] = parts[-1]._replace(nbytes=parts[-1].nbytes + segment.nbytes)
        else:
            parts.append(segment)
    return tuple(parts)


def map_again(segment: Segment) -> Copy:
    """Map a segment once more, and see that it is the same memory; raises OSError."""
    if segment.file == NO_FILE:
        return Copy(None, segment.address)
    copy = Copy(*_native.map_again(segment.address, segment.nbytes))
    found = _segment(copy.address, segment.nbytes, _shared_areas(), False)
    if found.place != segment.place:
        raise OSError(0, "the system maps other memory than the window's")
    return copy


# ---- what this process has mapped ---------------------------------------------------------------


class _Area(NamedTuple):
    """Memory of this process that it shares by a file."""

    start: int
    stop: int
    file: File
    offset: int

    def follows(self, before: _Area) -> bool:
        """Whether it follows another one, in memory and in the file."""
        length = before.stop - before.start
        return (self.start, self.file, self.offset) == (
            before.stop, before.file, before.offset + length,
        )  # fmt: skip


def _segment(address: int, nbytes: int, areas: Sequence[_Area], required: bool) -> Segment:
    for area in areas:
        if area.start <= address and address + nbytes <= area.stop:
            return Segment(address, nbytes, area.file, area.offset + address - area.start)
    if required:
        raise ArgumentError(
            f"a segment of win of {nbytes} bytes is in no file that processes share, so that "
            "only the MPI library knows how to map it"
        )
    return Segment(address, nbytes, NO_FILE, 0)


def _shared_areas() -> list[_Area]:
    """List what is shared and may be written; parts that follow each other are one."""
    areas: list[_Area] = []
    for line in MAPS.read_text().splitlines():
        addresses, rights, offset, device, inode, *_ = line.split(maxsplit=5)
        if rights[:2] + rights[3] != "rws":
            continue
        start, stop = (int(text, 16) for text in addresses.split("-"))
        area = _Area(start, stop, (device, int(inode)), int(offset, 16))
        if areas and area.follows(areas[-1]):
            area = areas.pop()._replace(stop=stop)
        areas.append(area)
    return areas
