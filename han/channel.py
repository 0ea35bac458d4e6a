"""Shared memory of the ranks that talk on one level: made together, unlinked at once.

The file lives under ``/dev/shm`` (or ``HAN_SHM_DIR``) only while the ranks open it, has mode
0600, and is reserved before anybody touches it, so that a full file system is an error here
and never a signal later.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import secrets
import struct
from dataclasses import dataclass

from mpi4py import MPI

from han._units import format_size
from han.errors import SharedMemoryError
from han.geometry import CONTROL, Geometry
from han.topology import Topology

RECORD = struct.Struct("QQQqQQQ")  # native/engine.h: han_control
ERRED = 64  # offset of that field: a line that is seldom written
TAG_OPEN = 1  # of the setup messages, on han's own communicator


@dataclass(frozen=True)
class Peer:
    """What a rank says of itself in its control record."""

    rank: int
    done: int
    entered: int
    signature: int
    pid: int


@dataclass
class Channel:
    """The mapped memory of one level's domain; `me` is this rank's place in it."""

    ranks: tuple[int, ...]
    me: int
    geometry: Geometry
    memory: mmap.mmap

    def spec(self) -> tuple[mmap.mmap, int, int, int, int, int, int, int, int]:
        """Return what ``_native.Engine`` takes."""
        g = self.geometry
        return (
            self.memory, len(self.ranks), self.me, 0, g.flags, g.small, g.cells, g.small_bank,
            g.ring,
        )  # fmt: skip

    def introduce(self) -> None:
        """Write this rank's identity into its control record."""
        start, namespace = _process_start(), os.stat("/proc/self/ns/pid").st_ino
        record = (0, 0, 0, os.getpid(), start, namespace, self.ranks[self.me])
        RECORD.pack_into(self.memory, self.me * CONTROL, *record)

    def mark_error(self, call: int) -> None:
        """Tell the ranks that share this memory that `call` raised here before anything moved."""
        struct.pack_into("Q", self.memory, self.me * CONTROL + ERRED, call + 1)

    def peers(self) -> list[Peer]:
        """Read the control records of all ranks."""
        peers = []
        for k, rank in enumerate(self.ranks):
            done, entered, signature, pid, *_ = RECORD.unpack_from(self.memory, k * CONTROL)
            peers.append(Peer(rank, done, entered, signature, pid))
        return peers

    def close(self) -> None:
        """Unmap; memory that something still looks at goes with it."""
        with contextlib.suppress(BufferError):
            self.memory.close()


def _process_start() -> int:
    with open("/proc/self/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[19])


def open_channels(comm: MPI.Intracomm, topology: Topology, memory: int) -> list[Channel]:
    """Make the channels of all levels that share memory; collective.

    Raises SharedMemoryError on all ranks alike when any of them cannot.
    """
    from han.tasks.plan import geometries

    rank, channels, problem = comm.Get_rank(), [], None
    for level, geometry in enumerate(geometries(topology, memory)):
        if geometry is None:
            continue
        ranks = topology.home(level, rank)
        geometry = Geometry(len(ranks), geometry.ring * len(ranks))
        try:
            mapped = _join(comm, ranks, geometry.size)
        except OSError as error:
            text = f"rank {rank} ({MPI.Get_processor_name()}): {error.strerror}"
            problem = problem or (error.errno, text)
            continue
        channel = Channel(ranks, ranks.index(rank), geometry, mapped)
        channel.introduce()
        channels.append(channel)
    problems = [p for p in comm.allgather(problem) if p]
    if problems:
        for channel in channels:
            channel.close()
        failure = SharedMemoryError("; ".join(text for _, text in problems))
        failure.errno = problems[0][0]
        raise failure
    return channels


def directory() -> str:
    """Where channels are made."""
    return os.environ.get("HAN_SHM_DIR", "/dev/shm")


def _join(comm: MPI.Intracomm, ranks: tuple[int, ...], size: int) -> mmap.mmap:
    """Create (the first rank) or open (the others) one file and map it."""
    if comm.Get_rank() != ranks[0]:
        return _open(comm, ranks[0])
    path, problem, fd = "", None, -1
    try:
        path, fd = _create(size)
    except OSError as error:
        problem = (error.errno, _explain(error, size))
    for r in ranks[1:]:
        comm.send((path, size, problem), r, TAG_OPEN)
    if problem:
        raise OSError(*problem)
    try:
        return mmap.mmap(fd, size)
    finally:
        for r in ranks[1:]:
            comm.recv(source=r, tag=TAG_OPEN)
        os.close(fd)
        os.unlink(path)


def _create(size: int) -> tuple[str, int]:
    path = os.path.join(directory(), f"han-{os.getuid()}-{secrets.token_hex(8)}")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError:
        os.close(fd)
        os.unlink(path)
        raise
    return path, fd


def _open(comm: MPI.Intracomm, creator: int) -> mmap.mmap:
    path, size, problem = comm.recv(source=creator, tag=TAG_OPEN)
    if problem:
        raise OSError(*problem)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return mmap.mmap(fd, size)
        finally:
            os.close(fd)
    finally:
        comm.send(None, creator, TAG_OPEN)


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
