"""Segments of MPI's shared windows: the files behind them, and new mappings of these files.

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
NO_FILE: File = ("", 0)  # for a rank without peers: no other rank reads the segment


class Segment(NamedTuple):
    """Bytes of a window, or of a shared mapping: their address here, and their file and offset."""

    address: int
    nbytes: int
    file: File
    offset: int

    @property
    def place(self) -> tuple[int, File, int]:
        """The fields that are the same in all processes."""
        return self.nbytes, self.file, self.offset

    def continues(self, before: Segment) -> bool:
        """Return whether this follows `before`, both in memory and in the file."""
        return (self.address, self.file, self.offset) == (
            before.address + before.nbytes, before.file, before.offset + before.nbytes,
        )  # fmt: skip


class Copy(NamedTuple):
    """han's own mapping of a segment; it is unmapped with `owner`."""

    owner: object
    address: int


def segments_of(win: Any, comm: MPI.Comm, peers: Sequence[int]) -> tuple[Segment, ...]:
    """Return the non-empty segments of a window.

    `peers` are ranks of `comm`. Raises ArgumentError if `win` is not a shared window of all of
    them, or if a segment is in no shared file.
    """
    if not isinstance(win, MPI.Win):
        raise ArgumentTypeError(f"win: {type(win).__name__} is no MPI.Win")
    if win == MPI.WIN_NULL:
        raise ArgumentError("win is MPI.WIN_NULL: it was freed, or never made")
    if win.flavor != MPI.WIN_FLAVOR_SHARED or win.model != MPI.WIN_UNIFIED:
        raise ArgumentError(
            "win is not a window of shared memory; make it with MPI.Win.Allocate_shared"
        )
    size, areas = _members(win, comm, peers), _shared_areas()
    found = [win.Shared_query(r)[0] for r in range(size)]
    return tuple(_segment(m.address, m.nbytes, areas, bool(peers)) for m in found if m.nbytes)


def _members(win: MPI.Win, comm: MPI.Comm, peers: Sequence[int]) -> int:
    """Return the number of ranks of a window; raise ArgumentError if it lacks any of `peers`."""
    group, own = win.Get_group(), comm.Get_group()
    places, size = translated(peers, own, group), group.Get_size()
    free(group)
    free(own)
    missing = [str(r) for r, place in zip(peers, places, strict=True) if place == MPI.UNDEFINED]
    if missing:
        raise ArgumentError(
            f"win has {size} ranks and lacks some that share memory with this one: "
            f"{', '.join(missing)}; allocate it on this communicator, or on all of a node's ranks "
            "(Split_type)"
        )
    return size


def joined(everyone: Sequence[Sequence[Segment]], mine: Sequence[Segment]) -> tuple[Segment, ...]:
    """Join segments that follow each other on all ranks: an array may span several of them."""
    parts: list[Segment] = []
    for k, segment in enumerate(mine):
        if k and all(segments[k].continues(segments[k - 1]) for segments in everyone):
            parts[-1] = parts[-1]._replace(nbytes=parts[-1].nbytes + segment.nbytes)
        else:
            parts.append(segment)
    return tuple(parts)


def map_again(segment: Segment) -> Copy:
    """Map a segment once more, and check that it is the same memory; raises OSError."""
    if segment.file == NO_FILE:
        return Copy(None, segment.address)
    copy = Copy(*_native.map_again(segment.address, segment.nbytes))
    found = _segment(copy.address, segment.nbytes, _shared_areas(), False)
    if found.place != segment.place:
        raise OSError(0, "the system maps other memory than the window's")
    return copy


# ---- what this process has mapped ---------------------------------------------------------------


def _segment(address: int, nbytes: int, areas: Sequence[Segment], required: bool) -> Segment:
    for area in areas:
        start = address - area.address
        if start >= 0 and start + nbytes <= area.nbytes:
            return Segment(address, nbytes, area.file, area.offset + start)
    if required:
        raise ArgumentError(
            f"a segment of win ({nbytes} bytes) is in no file that processes share, so han cannot "
            "map it"
        )
    return Segment(address, nbytes, NO_FILE, 0)


def _shared_areas() -> list[Segment]:
    """List the writable shared mappings of this process; adjacent ones are joined."""
    areas: list[Segment] = []
    for line in MAPS.read_text().splitlines():
        addresses, rights, offset, device, inode, *_ = line.split(maxsplit=5)
        if rights[:2] + rights[3] != "rws":
            continue
        start, stop = (int(text, 16) for text in addresses.split("-"))
        area = Segment(start, stop - start, (device, int(inode)), int(offset, 16))
        if areas and area.continues(areas[-1]):
            before = areas.pop()
            area = before._replace(nbytes=before.nbytes + area.nbytes)
        areas.append(area)
    return areas
