"""Programs: what one rank does, as streams of primitive operations.

The records are those of ``han/native/program.h``. A :class:`Program` is plain data: the executor
runs it unchanged, and other code examines it without MPI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from han._native import Ref as Ref
from han.common.kept import kept
from han.model.opcodes import COMBINATIONS, COPIES, MESSAGES, STARTS
from han.model.opcodes import Code as Code

if TYPE_CHECKING:
    import numpy.typing as npt


class Coll(IntEnum):
    """Kinds of the MPI library's collectives (``enum han_coll``)."""

    BCAST = 0
    REDUCE = 1
    ALLREDUCE = 2
    BARRIER = 3
    GATHER = 4  # from here on only for names of calls
    SCATTER = 5
    ALLGATHER = 6
    ALLTOALL = 7
    REDUCE_SCATTER = 8
    GATHERV = 9
    SCATTERV = 10
    ALLTOALLV = 11
    SCAN = 12
    EXSCAN = 13
    BLOCKING = 16


class Base(IntEnum):
    """The memory that an address is relative to. From CHANNEL on, each channel has three bases.

    TABLE holds the blocks of the run, of a program for own sizes: OWN_BLOCK.
    """

    NONE = 0
    SEND = 1
    RECV = 2
    SCRATCH = 3
    TABLE = 4
    CHANNEL = 5


# Bits of Program.writes: the rank shows the addresses of its buffers; peers may write to them.
SHOWN, GIVEN = 8, 16

AT_MOST_BIT = 63  # of a receiver's own size: the most that may come
AT_MOST = 1 << AT_MOST_BIT
RATE_BITS = 32  # of the fraction of grains in a message per grain of the largest one


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


# For each instruction of a program for many sizes: the grains of the message that it moves, from
# `start` to `stop`; for each operand a constant offset, how many blocks lie before it, and which
# grain is there; the bytes of what `n` counts (`each`; 0: `n` is constant). Where blocks differ in
# size, it moves grains of block `block`. With a `count`, it moves so many whole blocks,
# from `block` on, and `start`, `stop` and origins are 0.
#
# In a program for own sizes it moves all of block `block` if this has more than `start` and at most
# `stop` bytes, else nothing. `stop` 0: whatever the size; ALL: of any larger size. Where an operand
# is, behind a constant offset, is told by the block `blocks` of the run. Block 0 is empty.
TERMS = np.dtype(
    [
        ("offset", "u8", 4),
        ("start", "u4"),
        ("stop", "u4"),
        ("origin", "u4", 4),
        ("blocks", "u2", 4),
        ("each", "u4"),
        ("block", "u2"),
        ("count", "u2"),
    ]
)


ALL = (1 << 32) - 1
OWN_BLOCK = np.dtype([("nbytes", "u8"), ("start", "u8"), ("rate", "u8")])  # of Base.TABLE


# The code of a mark at the end of a loop, which is no operation: see han.model.loops.
LOOP = 0x100


def channel_ref(channel: int, area: Area, offset: int = 0) -> Ref:
    """Address `offset` in an area of a level's channel."""
    return Ref(CHANNELS + AREAS * channel + area, offset)


class PeerBase(NamedTuple):
    """The fields of a base with the bit `PEER`: a peer's buffer.

    The peer shows the buffer's address in `channel`, where `slot` is the peer's place.
    """

    buffer: int
    channel: int
    slot: int

    @classmethod
    def of(cls, base: int) -> PeerBase:
        """Return the fields of a base (``native/program.h``)."""
        buffer = base >> PEER_BUFFER_SHIFT
        channel = base >> PEER_CHANNEL_SHIFT
        return cls(buffer % PEER_BUFFERS, channel % PEER_CHANNELS, base % PEER_SLOTS)

    @property
    def number(self) -> int:
        """The base with these fields."""
        buffer, channel = self.buffer << PEER_BUFFER_SHIFT, self.channel << PEER_CHANNEL_SHIFT
        return PEER | buffer | channel | self.slot


def positions(
    numbers: npt.NDArray[np.uint64],
    grains: int,
    grain: int,
    nbytes: int | npt.NDArray[np.uint64],
) -> npt.NDArray[np.uint64]:
    """Return where grains of a message begin, by their numbers.

    A message of `nbytes` bytes, at most `grains` times `grain`, is cut in proportion, at multiples
    of `grain` bytes. So memory for some grains of the largest message holds these of any message.
    Each number may be of a message of its own size.
    """
    sizes, bits = np.asarray(nbytes, "u8"), np.uint64(RATE_BITS)
    whole = (sizes + np.uint64(grain - 1)) // np.uint64(grain)
    rate = (whole << bits) // np.uint64(grains)
    units = numbers * rate + np.uint64((1 << RATE_BITS) - 1) >> bits
    found: npt.NDArray[np.uint64] = np.minimum(units * np.uint64(grain), sizes)
    return found


def bytes_moved(
    code: npt.NDArray[np.void], element: int | npt.NDArray[np.int64], most: int = 1 << 62
) -> npt.NDArray[np.int64]:
    """Return the bytes that each operation moves or combines; 0 for those that move none.

    Elements have `element` bytes, those of each operation if they are several. Counts above `most`
    are cut to it.
    """
    codes, n = code["code"], np.minimum(code["n"], np.uint64(most)).astype(np.int64)
    calls = codes == Code.COLL
    of_bytes = calls & (code["off"][:, 2] % Coll.BLOCKING == Coll.BCAST)
    combines = np.isin(codes, COMBINATIONS) | (calls & ~of_bytes)
    moves = combines | of_bytes | np.isin(codes, (*COPIES, *MESSAGES))
    found: npt.NDArray[np.int64] = np.where(moves, n, 0) * np.where(combines, element, 1)
    return found


_TALKS = np.isin(np.arange(LOOP + 1), STARTS)  # by code


class OwnBlocks(NamedTuple):
    """The blocks that a rank sends and receives in a run, by number, the empty block 0 first.

    `starts` say where they begin in its buffers, and `far` where in those of the peers.
    """

    sizes: Sequence[int]
    starts: Sequence[int]
    far: Sequence[int]


@dataclass(frozen=True)
class StreamInfo:
    """A stream: kind and level of its tasks, and the range of its operations in the code."""

    name: str
    kind: str
    level: int
    start: int
    stop: int


@dataclass(frozen=True)
class Program:
    """What one rank does.

    A run needs `requests` requests, `scratch` bytes of private memory, and `operand` bytes for an
    operand of ``MPI_Reduce_local``.
    ``footprint[c]`` is the number of bytes that a run takes of each rank's ring in channel c, the
    same on all ranks. ``writes[c]`` are bits for what this rank writes in channel c: 1 small slots,
    2 cells, 8 the addresses of its buffers (SHOWN), 16 the same if peers may write to them (GIVEN).
    `sync` is true if a rank that finishes knows that every rank has entered. `comms` lists the tags
    and members of the communicators that ``COLL`` operations use. Each stream has its own, because
    all ranks must start the collectives of a communicator in the same order.

    A program for many sizes has `terms` (TERMS), in `grains` grains of `grain` bytes. Its code is
    that of the largest message, and all other numbers serve every size. If its `blocks` blocks
    differ in size, each run brings their sizes; 0: they are alike. With `own` it is one for own
    sizes: each run brings those of the blocks that this rank sends or receives, and their places.

    A program that runs may have loops: then it has `strides` (:mod:`han.model.loops`). Everything
    else reads programs without.
    """

    rank: int
    code: npt.NDArray[np.void]
    streams: tuple[StreamInfo, ...]
    tasks: Sequence[str]
    requests: int
    scratch: int
    operand: int
    footprint: tuple[int, ...]
    writes: tuple[int, ...]
    sync: bool
    comms: tuple[tuple[int, tuple[int, ...]], ...]
    grains: int = 0
    grain: int = 0
    terms: npt.NDArray[np.void] | None = None
    blocks: int = 0
    own: bool = False
    strides: npt.NDArray[np.void] | None = None

    def reaching(self, footprint: tuple[int, ...]) -> Program:
        """Return the program, of which a run takes at least `footprint` bytes of the rings.

        All plans of a call take the same part of them.
        """
        return replace(self, footprint=tuple(map(max, self.footprint, footprint)))

    def at(self, nbytes: int, lengths: Sequence[int] = ()) -> Program:
        """Return the program of a message of `nbytes` bytes, as the executor computes it.

        `lengths` are the bytes of each block, if these differ.
        """
        assert self.strides is None, "loops are part of programs that run"
        if self.terms is None:
            return self
        terms, code = self.terms, self.code.copy()
        sizes = np.array(lengths or [nbytes] * max(self.blocks, 1), "u8")
        block, count = terms["block"], terms["count"]
        own = sizes[block]  # of the block that an operation moves
        start, stop = (
            positions(terms[name].astype("u8"), self.grains, self.grain, own)
            for name in ("start", "stop")
        )
        origin = positions(terms["origin"].astype("u8"), self.grains, self.grain, own[:, None])
        code["off"] = terms["offset"] + self._before(sizes, nbytes, terms["blocks"])
        code["off"] += start[:, None] - origin
        sized = terms["each"] != 0
        whole = self._before(sizes, nbytes, block + count) - self._before(sizes, nbytes, block)
        moved = np.where(count, whole, stop - start)
        code["n"][sized] = moved[sized] // terms["each"][sized]
        return replace(self, code=code, grains=0, grain=0, terms=None, blocks=0)

    def of_own(self, given: OwnBlocks) -> Program:
        """Return the program of a call with these blocks, as the executor computes it.

        Nothing is left of what ranks tell each other about the sizes and places of their blocks.
        """
        assert self.own, "a program for own sizes"
        assert self.terms is not None
        terms, code = self.terms, self.code.copy()
        sizes, starts, far = (np.array(one, "i8") for one in given)
        own, sized = sizes[terms["block"]], terms["each"] != 0
        code["n"][sized] = own[sized]
        placed = terms["offset"][:, :2] + starts[terms["blocks"][:, :2]].astype("u8")
        code["off"][:, :2] = np.where(sized[:, None], placed, code["off"][:, :2])
        for kind, operand in ((Code.PULL, 1), (Code.PUSH, 0)):
            away = code["code"] == kind
            code["off"][away, operand] += far[terms["block"][away]].astype("u8")
            code["base"][away, 2], code["slot"][away] = Base.NONE, 0
        meant = (own > terms["start"]) & ((own <= terms["stop"]) | (terms["stop"] == ALL))
        told = np.isin(code["code"], (Code.EXPECT, Code.TALLY))
        told |= code["base"][:, 1] == Base.TABLE
        _empty(code, told | (terms["stop"] != 0) & ~meant)
        return replace(self, code=code, grains=0, grain=0, terms=None, blocks=0, own=False)

    def _before(
        self, sizes: npt.NDArray[np.uint64], nbytes: int, blocks: npt.NDArray[np.uint16]
    ) -> npt.NDArray[np.uint64]:
        """Return the bytes of all blocks before those with these numbers."""
        if not self.blocks:
            return np.asarray(blocks * np.uint64(nbytes), "u8")
        starts = np.concatenate([np.zeros(1, "u8"), np.cumsum(sizes, dtype="u8")])
        return np.asarray(starts[blocks], "u8")

    @kept
    def talks_mpi(self) -> bool:
        """Whether any operation calls the MPI library for more than a reduction."""
        return bool(_TALKS[self.code["code"]].any())

    @kept
    def times(self) -> npt.NDArray[np.uint64]:
        """How often each record is carried out; 0: it is the mark at the end of a loop."""
        times = np.ones(len(self.code), "u8")
        for end in np.flatnonzero(self.code["code"] == LOOP):
            times[end - int(self.code["n"][end]) : end] = self.code["off"][end, 0]
            times[end] = 0
        return times

    @property
    def nbytes(self) -> int:
        """The bytes of its records."""
        return sum(a.nbytes for a in (self.code, self.terms, self.strides) if a is not None)

    @kept
    def records(self) -> dict[str, Any]:
        """The arguments of ``_native.Engine.plan`` that every plan of this program has alike."""
        return {
            "code": np.ascontiguousarray(self.code),
            "streams": tuple((s.start, s.stop) for s in self.streams),
            "requests": self.requests,
            "writes": bytes(self.writes),
            "sync": self.sync,
            "terms": None if self.terms is None else np.ascontiguousarray(self.terms),
            "grains": self.grains,
            "grain": self.grain,
            "blocks": self.blocks,
            "own": self.own,
            "strides": None if self.strides is None else np.ascontiguousarray(self.strides),
        }


def _empty(code: npt.NDArray[np.void], where: npt.NDArray[np.bool_]) -> None:
    """Turn records into copies of no bytes."""
    for name in ("code", "base", "off", "n", "slot", "peer"):
        code[name][where] = 0
