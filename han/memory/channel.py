"""Channels: shared memory of the ranks of one domain.

The channels of a communicator whose parent knows its ranks are in arenas: ``han/memory/loans.py``.
Elsewhere the ranks of a domain make its channel together. The file is under ``/dev/shm`` (or
``HAN_SHM_DIR``) with mode 0600. It is unlinked as soon as all ranks have mapped it. Its memory is
reserved before any rank writes to it. So a full file system raises an error here, and no signal
later.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from han.common.errors import SetupError, SharedMemoryError
from han.common.units import format_size
from han.memory.arena import ArenaHandle, directory, identity
from han.memory.loans import Loan
from han.memory.measured import SPARE
from han.model.channel_layout import CONTROL, EPOCH_SHIFT, REASON, RING_MIN, SMALL_BANKS, Geometry
from han.model.topology import Topology
from han.ranks.meeting import Meeting
from han.ranks.notices import Departure
from han.ranks.quota import room

# The first line of a control record (native/channel.h: han_control). The bits of `entered` below
# EPOCH_SHIFT hold choices of recent runs.
FIELDS = {
    "done": "Q", "entered": "Q", "signature": "Q", "calls": "Q", "pid": "q", "pid_start": "Q",
    "pid_namespace": "Q", "nbytes": "Q",
}  # fmt: skip
RECORD = struct.Struct("".join(FIELDS.values()))
# Offsets on the record's second line.
ERRED, GONE, DEPARTURES, RANK = 64, 80, 84, 88
LEFT = struct.Struct("QQQ")  # steps, calls, bytes of the text that follows: why a rank left


class Peer(NamedTuple):
    """The fields of a control record that describe what a rank is doing."""

    rank: int
    entered: int
    call: tuple[int, int]  # the number of its plan, and the size of the message


ChannelSpec = tuple[
    "memoryview[int]", int, int, int, int, int, int, int, int, int, int, int, bool
]  # of native/python/py_engine.c


@dataclass
class Channel:
    """The mapped memory of one domain. `me` is this rank's place in `ranks`.

    `naps`: ranks may sleep in the kernel while they wait, so peers must wake them. `loan`: the
    memory is in the arena of the first rank.
    """

    ranks: tuple[int, ...]
    me: int
    geometry: Geometry
    memory: memoryview
    naps: bool = False
    loan: Loan | None = None

    def spec(self) -> ChannelSpec:
        """Return the description of the channel that ``_native.Engine`` takes."""
        g, lender = self.geometry, self.loan.base if self.loan else 0
        return (
            self.memory, len(self.ranks), self.me, 0, g.flags, g.small, g.small_bank, g.banks,
            g.cells, g.ring, g.least, lender, self.naps,
        )  # fmt: skip

    def introduce(self) -> None:
        """Write this rank's identity to its control record."""
        at = self.me * CONTROL
        RECORD.pack_into(self.memory, at, 0, 0, 0, 0, *identity(os.getpid()), 0)
        struct.pack_into("Q", self.memory, at + RANK, self.ranks[self.me])

    def mark_error(self, call: int) -> None:
        """Store in this rank's control record that `call` raised here before data moved."""
        struct.pack_into("Q", self.memory, self.me * CONTROL + ERRED, call + 1)

    def tell_departure(self, why: Departure) -> None:
        """Store why this rank leaves; the engine tells afterwards that it has left."""
        text, at = why.text.encode()[: REASON - LEFT.size], self.geometry.reason_at(self.me)
        LEFT.pack_into(self.memory, at, why.steps, why.calls, len(text))
        at += LEFT.size
        self.memory[at : at + len(text)] = text

    def departures(self) -> list[Departure]:
        """Read which other ranks have left, and why."""
        if not struct.unpack_from("I", self.memory, DEPARTURES)[0]:
            return []
        return [
            self._departure(k, rank)
            for k, rank in enumerate(self.ranks)
            if k != self.me and struct.unpack_from("I", self.memory, k * CONTROL + GONE)[0]
        ]

    def _departure(self, slot: int, rank: int) -> Departure:
        at = self.geometry.reason_at(slot)
        steps, calls, length = LEFT.unpack_from(self.memory, at)
        at += LEFT.size
        text = bytes(self.memory[at : at + length])
        return Departure(rank, text.decode(errors="ignore"), steps, calls)

    def peers(self) -> list[Peer]:
        """Read the control records of all ranks."""
        peers = []
        for k, rank in enumerate(self.ranks):
            fields = RECORD.unpack_from(self.memory, k * CONTROL)
            _, entered, signature, *_, nbytes = fields
            peers.append(Peer(rank, entered >> EPOCH_SHIFT, (signature, nbytes)))
        return peers

    @property
    def room(self) -> int:
        """The bytes of each ring that have memory."""
        return self.geometry.ring if self.loan is None else self.loan.room

    def make_room(self, nbytes: int) -> None:
        """Let a run take `nbytes` of each ring; if the memory is lent, its lender adds some.

        Raises SharedMemoryError.
        """
        if nbytes and self.loan is not None:
            self.loan.make_room(self.geometry, nbytes)

    def close(self) -> None:
        """Unmap the memory; if an object still uses it, it is unmapped with that object."""
        with contextlib.suppress(BufferError):
            self.memory.release()  # the last view of a file unmaps it
            if self.loan is not None:
                self.loan.close(self.me)


def introduce_all(memory: memoryview, ranks: Sequence[int], places: Sequence[ArenaHandle]) -> None:
    """Write the identities of all ranks to their control records, also of ranks that never come."""
    for slot, rank in enumerate(ranks):
        RECORD.pack_into(memory, slot * CONTROL, 0, 0, 0, 0, *places[rank][:3], 0)
        struct.pack_into("Q", memory, slot * CONTROL + RANK, rank)


class Wanted(NamedTuple):
    """A channel that is to be made."""

    level: int
    ranks: tuple[int, ...]
    geometry: Geometry

    @classmethod
    def all_of(
        cls,
        topology: Topology,
        rank: int,
        memory: int,
        banks: int = SMALL_BANKS,
        whole: bool = False,
    ) -> list[Wanted]:
        """List the channels of `rank`, one for each level that has channels.

        `whole`: rings that are lent get all of their memory at once.
        """
        from han.tasks.outline import geometries

        wanted = []
        for level, geometry in enumerate(geometries(topology, memory)):
            if geometry is not None:
                ranks = topology.home(level, rank)
                least = geometry.ring if whole else RING_MIN
                fit = Geometry(len(ranks), geometry.ring * len(ranks), banks, least)
                wanted.append(cls(level, ranks, fit))
        return wanted


def open_channels(
    meeting: Meeting,
    topology: Topology,
    memory: int,
    number: int,
    step: str,
    naps: bool = False,
    banks: int = SMALL_BANKS,
) -> list[list[Channel]]:
    """Make several times the channels of all levels that share memory; collective.

    All channels of one level are in one file. `step` names what they are made for. `memory` is the
    number of bytes for cells, `banks` that of banks of small slots. `naps`: this rank sleeps in the
    kernel while it waits, so peers must wake it. Raises SharedMemoryError on all ranks if any rank
    cannot make or map a channel.
    """
    rank = meeting.rank
    wanted = Wanted.all_of(topology, rank, memory, banks)
    made: dict[int, str] = {}
    sets: list[list[Channel]] = [[] for _ in range(number)]

    def create() -> dict[int, str]:
        for w in wanted:
            if w.ranks[0] == rank:
                made[w.level] = _create(number * w.geometry.size)
        return made

    def attach() -> None:
        for w in wanted:
            size = w.geometry.size
            mapped = memoryview(_map(paths[w.ranks[0]][w.level], number * size))
            for k, channels in enumerate(sets):
                part = mapped[k * size : (k + 1) * size]
                channels.append(Channel(w.ranks, w.ranks.index(rank), w.geometry, part, naps))
                channels[-1].introduce()

    try:
        paths = meeting.share(create, step)
        meeting.share(attach, step)
    except SetupError as error:
        for channel in (one for channels in sets for one in channels):
            channel.close()
        failure = SharedMemoryError(str(error))
        failure.errno = error.problems[0][1]
        raise failure from None
    finally:
        for path in made.values():
            os.unlink(path)
    return sets


# ---- files --------------------------------------------------------------------------------------


def memory_of(meeting: Meeting, ranks: Sequence[int], nbytes: int, step: str) -> memoryview:
    """Return zeros that some ranks share, as long as they need it; collective.

    All ranks call this, each with the ranks of its own group. Raises SetupError on all ranks.
    """
    made, mapped = list[str](), list[mmap.mmap]()

    def create() -> str:
        if ranks[0] == meeting.rank:
            made.append(_create(nbytes))
        return made[0] if made else ""

    try:
        paths = meeting.share(create, step)
        meeting.share(lambda: mapped.append(_map(paths[ranks[0]], nbytes)), step)
    finally:
        for path in made:
            os.unlink(path)
    return memoryview(mapped[0])


def _create(size: int) -> str:
    path = os.path.join(directory(), f"han-{os.getuid()}-{os.urandom(8).hex()}")
    left = room()
    if size + SPARE > left:
        raise OSError(
            errno.EDQUOT,
            f"no room for {format_size(size)} of shared memory: a memory limit of a control group "
            f"(a container's, a batch job's) leaves {format_size(int(left))}, of which "
            f"{format_size(SPARE)} are kept for other things; raise it, or ask for less with "
            f"HAN_MEMORY or memory: in the configuration",
        )
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, _explain(error, size)) from None
    return path


def _map(path: str, size: int) -> mmap.mmap:
    """Map a file. To populate all its pages is cheaper than a page fault for each page."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
    finally:
        os.close(fd)


def _explain(error: OSError, size: int) -> str:
    place = directory()
    if error.errno != errno.ENOSPC:
        return f"cannot make shared memory in {place}: {error.strerror}"
    stat = os.statvfs(place)
    free = format_size(stat.f_bavail * stat.f_frsize)
    return (
        f"no room for {format_size(size)} of shared memory in {place} ({free} free); enlarge it "
        f"(mount -o remount,size=1G {place}; docker run --shm-size=1g), or ask for less with "
        "HAN_MEMORY or memory: in the configuration"
    )
