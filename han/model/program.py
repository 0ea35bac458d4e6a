"""Programs: what one rank does, as streams of primitive operations.

The records are those of ``han/native/program.h``; a :class:`Program` is plain data that
the C executor runs as it is, and that can be examined without MPI.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from han.model.opcodes import STARTS
from han.model.opcodes import Code as Code

if TYPE_CHECKING:
    import numpy.typing as npt


class Coll(IntEnum):
    """Kinds of the MPI library's collectives (``enum han_coll``)."""

    BCAST = 0
    REDUCE = 1
    ALLREDUCE = 2
    BARRIER = 3
    GATHER = 4  # these only name calls
    SCATTER = 5
    ALLGATHER = 6
    ALLTOALL = 7
    REDUCE_SCATTER = 8
    BLOCKING = 16


class Base(IntEnum):
    """What an address is relative to; channels follow, three bases each."""

    NONE = 0
    SEND = 1
    RECV = 2
    SCRATCH = 3
    CHANNEL = 4


# Bits of Program.writes: buffers' addresses, for peers that pull; and for those that push to them.
SHOWN, GIVEN = 8, 16


class Area(IntEnum):
    """The bases of one channel."""

    SMALL = 0
    CELLS = 1
    FLAGS = 2


AREAS = len(Area)
CHANNELS = int(Base.CHANNEL)
MAX_STREAMS = 32  # of a program; a run has as many message tags
EPOCH_TAGS = 8  # consecutive runs whose messages have different tags
PEER = 1 << 15  # a bit of a base: a peer's buffer, in memory that this rank maps too
PEER_BUFFER_SHIFT, PEER_CHANNEL_SHIFT = 13, 10  # the other fields of such a base
PEER_BUFFERS = PEER >> PEER_BUFFER_SHIFT
PEER_CHANNELS = 1 << PEER_BUFFER_SHIFT - PEER_CHANNEL_SHIFT
PEER_SLOTS = 1 << PEER_CHANNEL_SHIFT

INSTRUCTION = np.dtype(
    [
        ("code", "u2"),
        ("stream", "u2"),
        ("peer", "i4"),
        ("base", "u2", 4),
        ("off", "u8", 4),
        ("n", "u8"),
        ("slot", "u4"),
        ("task", "u4"),
    ]
)


@dataclass(frozen=True)
class Ref:
    """An address: a base and a byte offset."""

    base: int
    offset: int = 0

    def __add__(self, nbytes: int) -> Ref:
        return Ref(self.base, self.offset + nbytes)


def channel_ref(channel: int, area: Area, offset: int = 0) -> Ref:
    """Address `offset` in an area of a level's channel."""
    return Ref(CHANNELS + AREAS * channel + area, offset)


class PeerBase(NamedTuple):
    """Whose buffer a base with the bit `PEER` is: its place in the channel where it shows it."""

    buffer: int
    channel: int
    slot: int

    @classmethod
    def of(cls, base: int) -> PeerBase:
        """Take a base apart (``native/program.h``)."""
        buffer = base >> PEER_BUFFER_SHIFT
        channel = base >> PEER_CHANNEL_SHIFT
        return cls(buffer % PEER_BUFFERS, channel % PEER_CHANNELS, base % PEER_SLOTS)

    def ref(self, offset: int = 0) -> Ref:
        """Address `offset` in it."""
        buffer, channel = self.buffer << PEER_BUFFER_SHIFT, self.channel << PEER_CHANNEL_SHIFT
        return Ref(PEER | buffer | channel | self.slot, offset)


@dataclass(frozen=True)
class StreamInfo:
    """Where a stream's operations stand in the code, and what it carries."""

    name: str
    kind: str
    level: int
    start: int
    stop: int


@dataclass(frozen=True)
class Program:
    """What one rank does.

    ``footprint[c]`` is what the run takes of every rank's ring in channel c, the same on all
    ranks; ``writes[c]`` which areas of it this rank writes (1: small slots, 2: cells, 8: where its
    buffers are, for peers that pull from them, 16: that push to them); ``sync``
    says that finishing implies that every rank has entered; ``comms`` lists the tags and members
    of the communicators that ``COLL`` operations use, one a stream: MPI wants the collectives of
    a communicator in the same order on all of its ranks.
    """

    rank: int
    code: npt.NDArray[np.void]
    streams: tuple[StreamInfo, ...]
    tasks: tuple[str, ...]
    requests: int
    scratch: int
    operand: int
    footprint: tuple[int, ...]
    writes: tuple[int, ...]
    sync: bool
    comms: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def talks_mpi(self) -> bool:
        """Whether any operation calls the MPI library (other than for a reduction)."""
        return bool(np.isin(self.code["code"], STARTS).any())
