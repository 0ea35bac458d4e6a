"""The streams of one rank's Program under construction, and the builder that joins them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from han.model.channel_layout import Geometry
from han.model.collectives import FLAT, ROWS, TREE
from han.model.program import (
    AREAS,
    CHANNELS,
    GIVEN,
    INSTRUCTION,
    PEER,
    SHOWN,
    TERMS,
    Area,
    Base,
    Code,
    Coll,
    Program,
    Ref,
    StreamInfo,
    channel_ref,
)
from han.model.topology import MAX_LEVELS
from han.tasks.graph import Task
from han.tasks.outline import Outline

NOWHERE = Ref(Base.NONE)
_Row = tuple[int, int, int, tuple[int, ...], tuple[int, ...], int, int, int]
_Term = tuple[tuple[int, ...], int, int, tuple[int, ...], tuple[int, ...], int]


class Peer(NamedTuple):
    """A peer whose memory is accessed, and the channel and slot where it shows its buffers."""

    rank: int
    channel: int
    slot: int


@lru_cache
def _tag(kind: str, level: int, rows: int) -> int:
    """Return the tag of a stream; `rows` is the number of collectives, which programs may add."""
    if kind in TREE:
        return level * len(TREE) + TREE.index(kind)
    return MAX_LEVELS * len(TREE) + FLAT.index(kind)  # on one level only


def _check_operand(ref: Ref, at: int) -> None:
    """Raise ValueError unless an operand addresses the message's byte `at`, for any size."""
    if ref.at != at:
        raise ValueError(f"operands address bytes {ref.at} and {at} of the message: see Ref.to")
    if ref.offset and (ref.base in (Base.SEND, Base.RECV) or ref.base >= PEER):
        raise ValueError(f"an offset of {ref.offset} bytes in a user's buffer: use Ref.to")


@dataclass
class Stream:
    """The operations of one (task kind, level) on this rank, as they are emitted."""

    index: int
    kind: str
    level: int
    name: str
    builder: Builder
    rows: list[_Row] = field(default_factory=list)
    terms: list[_Term] = field(default_factory=list)  # of a program for many sizes
    task: int = 0
    done: dict[Task, int] = field(default_factory=dict)
    awaited: dict[int, int] = field(default_factory=dict)
    received: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # by request
    sequence: int = 0  # pieces so far: flags keep counting over the tasks of a stream

    @cached_property
    def tag(self) -> int:
        """The stream's part of a message tag, the same on all ranks."""
        return _tag(self.kind, self.level, len(ROWS))

    def _emit(
        self,
        code: Code,
        refs: Sequence[Ref] = (),
        n: int = 0,
        peer: int = 0,
        slot: int = 0,
        each: int = 0,
        at: int = 0,
    ) -> None:
        """Append an operation; what it moves begins at the message's byte `at`.

        `n` counts things of `each` bytes of the message; 0: `n` does not depend on its size.
        """
        bases, offsets, size = [0, 0, 0, 0], [0, 0, 0, 0], self.builder.signature.nbytes
        for k, ref in enumerate(refs):
            bases[k], offsets[k] = ref.base, ref.start(size)
        row = code, self.tag, peer, tuple(bases), tuple(offsets), n, slot, self.task
        self.rows.append(row)
        if self.builder.signature.grains:
            self.terms.append(self._term(refs, at, n * each, each))

    def _term(self, refs: Sequence[Ref], at: int, nbytes: int, each: int) -> _Term:
        """Return what the operation moves in a message of any size; raises ValueError."""
        grain = self.builder.signature.grain
        if each and (at % grain or nbytes % grain):
            raise ValueError(f"bytes {at} to {at + nbytes}: not whole grains of {grain} bytes")
        start, offsets = at // grain, [0, 0, 0, 0]
        origins, blocks = [start, start, start, start], [0, 0, 0, 0]
        for k, ref in enumerate(refs):
            offsets[k] = ref.offset
            if each and ref.base != Base.NONE:
                _check_operand(ref, at)
                origins[k], blocks[k] = ref.origin // grain, ref.blocks
        return tuple(offsets), start, (at + nbytes) // grain, tuple(origins), tuple(blocks), each

    def copy(self, dst: Ref, src: Ref, nbytes: int) -> None:
        """Copy, unless there are no bytes or both addresses are the same."""
        if nbytes and dst != src:
            self._emit(Code.COPY, (dst, src), nbytes, each=1, at=dst.at)
            self.builder.wrote(dst)

    def reduce(self, dst: Ref, a: Ref, b: Ref, nbytes: int, also: Ref | None = None) -> None:
        """Combine ``dst = a op b``; write the result to `also` too, if given."""
        if not nbytes:
            return
        code = Code.REDUCE if also is None else Code.REDUCE2
        refs = (dst, a, b) if also is None else (dst, a, b, also)
        element = self.builder.signature.element
        self._emit(code, refs, nbytes // element, each=element, at=dst.at)
        for ref in (dst, *refs[3:]):
            self.builder.wrote(ref)
        self.builder.operand = max(self.builder.operand, nbytes)

    def pull(self, dst: Ref, src: Ref, nbytes: int, peer: Peer) -> None:
        """Copy from `src` in the memory of a peer, which has shown its buffers."""
        if nbytes:
            refs = (dst, src, Ref(0, peer.channel), Ref(0, peer.slot))
            self._emit(Code.PULL, refs, nbytes, peer.rank, each=1, at=dst.at)
            self.builder.wrote(dst)

    def push(self, dst: Ref, src: Ref, nbytes: int, peer: Peer) -> None:
        """Copy to `dst` in the memory of a peer, which has allowed its peers to write."""
        if nbytes:
            refs = (dst, src, Ref(0, peer.channel), Ref(0, peer.slot))
            self._emit(Code.PUSH, refs, nbytes, peer.rank, each=1, at=dst.at)

    def post(self, flag: Ref, k: int) -> None:
        """Store-release ``epoch + k`` to a flag of this rank."""
        self._emit(Code.POST, (flag,), k)
        self.builder.wrote(flag)

    def wait(self, flag: Ref, k: int, rank: int) -> None:
        """Load-acquire `rank`'s flag until it reaches ``epoch + k``."""
        self._emit(Code.WAIT, (flag,), k, rank)

    def isend(self, src: Ref, nbytes: int, rank: int, request: int) -> None:
        """Start sending to `rank`."""
        self._emit(Code.ISEND, (NOWHERE, src), nbytes, rank, request, each=1, at=src.at)
        self.received.pop(request, None)

    def irecv(self, dst: Ref, nbytes: int, rank: int, request: int) -> None:
        """Start receiving from `rank`."""
        self._emit(Code.IRECV, (dst,), nbytes, rank, request, each=1, at=dst.at)
        self.received[request] = nbytes, rank, dst.at

    def test(self, request: int) -> None:
        """Wait until a request is complete; the message of a receive must have its size."""
        nbytes, rank, at = self.received.get(request, (0, 0, 0))
        self._emit(Code.TEST, n=nbytes, peer=rank, slot=request, each=1, at=at)

    def coll(
        self, kind: int, dst: Ref, src: Ref, n: int, root: int, comm: int, request: int
    ) -> None:
        """Start a collective of the MPI library, of `n` elements, on communicator number `comm`.

        Elements of a broadcast are bytes.
        """
        each = 1 if kind & ~Coll.BLOCKING == Coll.BCAST else self.builder.signature.element
        at = (dst if dst.base else src).at
        refs = dst, src, Ref(0, kind), Ref(0, comm)
        self._emit(Code.COLL, refs, n, root, request, each=each, at=at)
        self.received.pop(request, None)

    def label(self, task: Task) -> None:
        """Attribute the operations that follow to `task`, in traces and reports."""
        self.task = self.builder.task_index(task)

    def begin(self, task: Task) -> None:
        """Begin `task`: wait for its prerequisites."""
        self.label(task)
        for source in self.builder.prerequisites(task):
            self.after(source)

    def after(self, task: Task) -> None:
        """Wait until another stream of this rank has done `task`."""
        stream = self.builder.streams.get(task.stream)
        position = None if stream is None or stream is self else stream.done.get(task)
        if stream is None or not position or self.awaited.get(stream.index, 0) >= position:
            return
        self.awaited[stream.index] = position
        self._emit(Code.AWAIT, n=position, peer=stream.index)

    def end(self, task: Task) -> None:
        """Mark `task` as done on this rank."""
        self.done[task] = len(self.rows)


class Builder:
    """Collects the streams of one rank, and allocates what their operations use."""

    def __init__(self, plan: Outline, rank: int) -> None:
        self.plan = plan
        self.signature = plan.signature
        self.rank = rank
        self.streams: dict[tuple[str, int], Stream] = {}
        self.operand = 0
        self.acc = Ref(Base.SEND)  # where this rank combines; SEND: nothing combined yet
        self._tasks: dict[Task, int] = {}
        self._writes = [0] * plan.topology.depth
        self._comms: list[tuple[int, tuple[int, ...]]] = []
        self._channels = [0, *accumulate(g is not None for g in plan.geometries)]
        self._refs: dict[tuple[int, Area, int], Ref] = {}
        self._requests = 0
        self._scratch = 0

    # ---- memory, flags, requests and communicators ----------------------------------------

    def geometry(self, level: int) -> Geometry:
        """Return the layout of a level's channel."""
        geometry = self.plan.geometries[level]
        assert geometry is not None, "supports() lets only levels with shared memory pass"
        return geometry

    def channel(self, level: int) -> int:
        """Return the number of a level's channel; levels without one do not count."""
        return self._channels[level]

    def flag(self, level: int, slot: int, flag: int) -> Ref:
        """Return the address of a member's flag."""
        return self._ref(level, Area.FLAGS, self.geometry(level).flag_at(slot, flag))

    def small(self, level: int, slot: int) -> Ref:
        """Return the address of a member's small slot: a flag and a page of data."""
        return self._ref(level, Area.SMALL, self.geometry(level).small_at(slot))

    def cells(self, level: int, slot: int) -> Ref:
        """Return the address of a member's cells."""
        return self._ref(level, Area.CELLS, self.geometry(level).area_at(slot))

    def _ref(self, level: int, area: Area, offset: int) -> Ref:
        """Return an address in a level's channel; cached, since every piece uses the same few."""
        key = level, area, offset
        found = self._refs.get(key)
        if found is None:
            found = self._refs[key] = channel_ref(self._channels[level], area, offset)
        return found

    def show(self, level: int, given: bool = False) -> None:
        """Show this rank's buffers to the ranks of a channel; `given`: peers may write to them."""
        self._writes[self._channels[level]] |= SHOWN | (GIVEN if given else 0)

    def request(self) -> int:
        """Return the number of a new request."""
        self._requests += 1
        return self._requests - 1

    def scratch(self, nbytes: int) -> Ref:
        """Return the address of private memory that lasts for a run."""
        ref = Ref(Base.SCRATCH, self._scratch)
        self._scratch += -(-nbytes // 64) * 64
        return ref

    def accumulator(self) -> Ref:
        """Return where this rank combines partial results: never in the user's send buffer."""
        if self.acc.base == Base.SEND:
            self.acc = self._room_to_combine()
        return self.acc

    def _room_to_combine(self) -> Ref:
        """Return the receive buffer where this rank has one (Jain, section III-E), else scratch."""
        signature = self.signature
        if signature.collective != "reduce" or signature.root == self.rank:
            return Ref(Base.RECV)
        return self.scratch(signature.nbytes)

    def comm(self, stream: Stream, ranks: tuple[int, ...]) -> int:
        """Return the number of the communicator of `ranks` for the collectives of one stream."""
        key = stream.tag, ranks
        if key not in self._comms:
            self._comms.append(key)
        return self._comms.index(key)

    # ---- writes, tasks and their order ----------------------------------------------------

    def wrote(self, ref: Ref) -> None:
        """Record which area of a channel this rank writes: a run waits until it is free."""
        if CHANNELS <= ref.base < PEER:
            channel, area = divmod(ref.base - CHANNELS, AREAS)
            self._writes[channel] |= (1 << area) & ~(1 << Area.FLAGS)

    def task_index(self, task: Task) -> int:
        """Return the number of a task, for traces and reports."""
        return self._tasks.setdefault(task, len(self._tasks))

    def tasks_of(self, stream: Stream) -> tuple[Task, ...]:
        """Return all tasks of a stream, also while only some of them are lowered."""
        return self.plan.streams[stream.kind, stream.level]

    def prerequisites(self, task: Task) -> list[Task]:
        """Return the tasks that this rank must finish before `task`.

        They are the sources of its data, or in lockstep the tasks of all earlier stages. A source
        in which this rank has no part is replaced by the prerequisites of that source.
        """
        if self.plan.lockstep:
            return self._earlier(task)
        found: list[Task] = []
        for source in self.plan.tasks.sources[task]:
            stream = self.streams.get(source.stream)
            here = stream is not None and source in stream.done
            found += [source] if here else self.prerequisites(source)
        return found

    def _earlier(self, task: Task) -> list[Task]:
        """Return the last task of every other stream in the stages before that of `task`."""
        stage = self.plan.stages[task]
        others = (s.done for s in self.streams.values() if (s.kind, s.level) != task.stream)
        last = (next((t for t in reversed(d) if self.plan.stages[t] < stage), None) for d in others)
        return [t for t in last if t is not None]

    # ---- the result -----------------------------------------------------------------------

    def stream(self, kind: str, level: int) -> Stream:
        """Return the stream of a task kind on a level; it is made at the first request."""
        if (kind, level) not in self.streams:
            name = f"{kind}@{self.plan.topology.names[level]}"
            self.streams[kind, level] = Stream(len(self.streams), kind, level, name, self)
        return self.streams[kind, level]

    def program(self, footprint: tuple[int, ...]) -> Program:
        """Join the streams; `footprint` is the bytes that they take of each ring, by channel."""
        infos, rows, terms, start = [], [], [], 0
        starts = []
        for s in self.streams.values():
            starts.append(start)
            infos.append(StreamInfo(s.name, s.kind, s.level, start, start + len(s.rows)))
            rows.extend(s.rows)
            terms.extend(s.terms)
            start += len(s.rows)
        code = np.array(rows, dtype=INSTRUCTION)
        awaits = code["code"] == Code.AWAIT  # positions in a stream become indices into the code
        if awaits.any():
            code["n"][awaits] += np.array(starts, dtype="u8")[code["peer"][awaits]]
        return Program(
            rank=self.rank,
            code=code,
            streams=tuple(infos),
            tasks=tuple(str(t) for t in self._tasks),
            requests=self._requests,
            scratch=self._scratch,
            operand=self.operand,
            footprint=footprint,
            writes=tuple(self._writes[: len(footprint)]),
            sync=ROWS[self.signature.collective].synchronises,
            comms=tuple(self._comms),
            grains=self.signature.grains,
            grain=self.signature.grain if self.signature.grains else 0,
            terms=np.array(terms, dtype=TERMS) if self.signature.grains else None,
        )
