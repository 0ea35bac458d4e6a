"""Run the programs of all ranks in one process, in random interleavings, without MPI or C.

Memory is NumPy bytes, filled with rubbish before a run. A message is delivered at a random time. A
send completes at once (eager) or when the message is received (rendezvous), at random. So a program
that relies on one order of events fails here.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from han.model.channel_layout import EPOCH_SHIFT, SMALL_BANKS
from han.model.program import (
    EPOCH_TAGS,
    MAX_STREAMS,
    PEER,
    Area,
    Base,
    Code,
    Coll,
    PeerBase,
    Program,
)
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.verify.places import Ring

Bytes = np.ndarray
Combine = Callable[[Bytes, Bytes], Bytes]
MASK = (1 << 64) - 1


class Deadlock(AssertionError):
    """No rank can execute its next operation."""


class Op(NamedTuple):
    """An operation of a program, as Python's numbers."""

    code: Code
    stream: int
    peer: int
    refs: list[tuple[int, int]]
    n: int
    slot: int
    task: int


def decoded(program: Program) -> list[Op]:
    """Return the operations of a program."""
    return [
        Op(Code(code), stream, peer, list(zip(base, off, strict=True)), n, slot, task)
        for code, stream, peer, base, off, n, slot, task in program.code.tolist()
    ]


@dataclass
class Run:
    """One collective: the plan, each rank's buffers, and the function that combines operands.

    `like` is another run of the same plan, whose programs it takes.
    """

    plan: Plan
    send: list[Bytes]
    recv: list[Bytes]
    combine: Combine | None = None
    like: Run | None = None
    programs: list[Program] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.like is None:
            self.programs = [lower(self.plan, r) for r in range(self.plan.topology.size)]
        else:
            self.programs = self.like.programs


@dataclass
class Transfer:
    """The sender's or the receiver's side of a message."""

    memory: Bytes
    rank: int
    slot: int
    data: Bytes | None = None  # of an eager send: a copy of the data


@dataclass
class Shared:
    """The channel of one domain."""

    small: Bytes
    cells: Bytes
    flags: Bytes
    ranks: tuple[int, ...]


class Interpreter:
    """Runs a list of collectives back to back on all ranks."""

    def __init__(self, runs: Sequence[Run], seed: int = 0) -> None:
        self.runs, self.random = runs, random.Random(seed)
        programs = {id(program): program for run in runs for program in run.programs}
        self.code = {key: decoded(program) for key, program in programs.items()}
        self.topology = runs[0].plan.topology
        self.size = self.topology.size
        self.turn = [0] * self.size  # the number of each rank's current run
        self.pc: list[list[int]] = [[] for _ in range(self.size)]
        self.done: list[set[int]] = [set() for _ in range(self.size)]  # complete requests
        self.sends: dict[tuple[int, int, int], deque[Transfer]] = defaultdict(deque)
        self.receives: dict[tuple[int, int, int], deque[Transfer]] = defaultdict(deque)
        self.calls: dict[tuple[object, ...], dict[int, tuple[object, ...]]] = defaultdict(dict)
        self.called: dict[tuple[int, object], int] = defaultdict(int)
        self.inside: set[tuple[int, int]] = set()  # (rank, stream) in a blocking collective
        self.channels = self._channels()
        self.rings = [[Ring(g.ring) for g in self.geometries] for _ in range(self.size)]
        self.scratch: list[Bytes] = [np.empty(0, np.uint8)] * self.size
        for rank in range(self.size):
            self._enter(rank)

    # ---- memory -----------------------------------------------------------------------------

    def _channels(self) -> dict[int, list[Shared]]:
        """Return the channels of every rank, in the order in which programs number them."""
        made: dict[tuple[int, int], Shared] = {}
        found: dict[int, list[Shared]] = {r: [] for r in range(self.size)}
        for level, geometry in enumerate(self.runs[0].plan.geometries):
            if geometry is None:
                continue
            for rank in range(self.size):
                key = level, self.topology.homes[level][rank]
                if key not in made:
                    made[key] = Shared(
                        rubbish(SMALL_BANKS * geometry.small_bank),
                        rubbish(len(self.topology.home(level, rank)) * geometry.ring),
                        np.zeros(geometry.small - geometry.flags, np.uint8),
                        self.topology.home(level, rank),
                    )
                    made[key].small.view(np.uint64)[::8] = 0  # each line begins with a flag
                found[rank].append(made[key])
        self.geometries = [g for g in self.runs[0].plan.geometries if g]
        return found

    def at(self, rank: int, base: int, offset: int, nbytes: int) -> Bytes:
        """Return `nbytes` bytes of memory at an address, which must lie inside the memory.

        Memory of a peer is read-only, and the peer must be in the same run.
        """
        if base >= PEER:
            buffer, channel, slot = PeerBase.of(base)
            peer = self.channels[rank][channel].ranks[slot]
            assert self.turn[peer] == self.turn[rank], "the peer is in another run"
            assert self.runs[self.turn[rank]].plan.signature.mapped, "the memory is not mapped"
            view = self.at(peer, buffer, offset, nbytes).view()
            view.flags.writeable = False
            return view
        memory, start, stop = self._memory(rank, base)
        assert start + offset + nbytes <= stop, f"rank {rank}: {nbytes} bytes beyond base {base}"
        return memory[start + offset : start + offset + nbytes]

    def _memory(self, rank: int, base: int) -> tuple[Bytes, int, int]:
        run = self.runs[self.turn[rank]]
        own = {Base.SEND: run.send[rank], Base.RECV: run.recv[rank]}.get(base)
        if base == Base.SCRATCH:
            own = self.scratch[rank]
        if own is not None:
            return own, 0, own.size
        channel, area = divmod(base - Base.CHANNEL, len(Area))
        shared, geometry = self.channels[rank][channel], self.geometries[channel]
        if area == Area.FLAGS:
            return shared.flags, 0, shared.flags.size
        if area == Area.CELLS:
            return shared.cells, self.rings[rank][channel].start, shared.cells.size
        start = self.turn[rank] % SMALL_BANKS * geometry.small_bank
        return shared.small, start, start + geometry.small_bank

    # ---- scheduling -------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end; raises Deadlock where no rank can move."""
        ready = self._movable()
        while ready:
            k = self.random.randrange(len(ready))
            ready[k], ready[-1] = ready[-1], ready[k]
            what = ready.pop()
            moved = self._deliver(*what) if len(what) == 3 else self._burst(*what)
            if moved:
                ready = self._movable()
        if any(turn < len(self.runs) for turn in self.turn):
            raise Deadlock("\n".join(self._stuck()))
        left = [*self.sends.values(), *self.receives.values()]
        assert not any(left), "messages are left over"

    def _movable(self) -> list[tuple[int, ...]]:
        streams = [(r, s) for r in range(self.size) for s in range(len(self.pc[r]))]
        return [*streams, *(k for k, q in self.sends.items() if q and self.receives[k])]

    def _burst(self, rank: int, stream: int) -> bool:
        """Execute some operations of a stream; return whether there was any."""
        moved = False
        for _ in range(self.random.randrange(1, 8)):
            program = self.runs[self.turn[rank]].programs[rank]
            if not self._room_free(rank, program):
                return moved
            if self.pc[rank][stream] < program.streams[stream].stop:
                op = self.code[id(program)][self.pc[rank][stream]]
                if not self._execute(rank, stream, program, op):
                    return moved
                self.pc[rank][stream] += 1
                moved = True
            if all(p == s.stop for p, s in zip(self.pc[rank], program.streams, strict=True)):
                self.turn[rank] += 1
                self._enter(rank)
                return True
        return moved

    def _enter(self, rank: int) -> None:
        """Begin the rank's next run that has operations."""
        self.done[rank] = set()
        self.pc[rank] = []
        while self.turn[rank] < len(self.runs):
            program = self.runs[self.turn[rank]].programs[rank]
            self.scratch[rank] = rubbish(program.scratch)
            for ring, nbytes in zip(self.rings[rank], program.footprint, strict=True):
                ring.take(self.turn[rank], nbytes)
            self.pc[rank] = [s.start for s in program.streams]
            if len(program.code):
                return
            self.pc[rank] = []
            self.turn[rank] += 1

    def _room_free(self, rank: int, program: Program) -> bool:
        """Return whether all ranks have finished the last run in this memory (engine/runs.h)."""
        for writes, ring, shared in zip(
            program.writes, self.rings[rank], self.channels[rank], strict=True
        ):
            small = self.turn[rank] + 1 - SMALL_BANKS if writes & 1 << Area.SMALL else 0
            cells = ring.needed if writes & 1 << Area.CELLS else 0
            if min(self.turn[r] for r in shared.ranks) < max(small, cells):
                return False
        return True

    def _stuck(self) -> Iterator[str]:
        for rank in range(self.size):
            for stream, pc in enumerate(self.pc[rank]):
                program = self.runs[self.turn[rank]].programs[rank]
                info = program.streams[stream]
                if pc < info.stop:
                    op = self.code[id(program)][pc]
                    task = program.tasks[op.task] if program.tasks else ""
                    yield (
                        f"rank {rank} run {self.turn[rank]} {info.name} {task}: "
                        f"{op.code.name} n={op.n} peer={op.peer}"
                    )

    # ---- operations -------------------------------------------------------------------------

    def _execute(self, rank: int, stream: int, program: Program, op: Op) -> bool:
        code, n, slot, refs = op.code, op.n, op.slot, op.refs
        run = self.runs[self.turn[rank]]
        element = run.plan.signature.element
        match code:
            case Code.COPY:
                target, source = (self.at(rank, *ref, n) for ref in refs[:2])
                assert same(target, source) or apart(target, source), "a copy overlaps its source"
                target[:] = source.copy()
            case Code.PULL:
                peer = op.peer
                assert self.turn[peer] == self.turn[rank], "the peer is in another run"
                self.at(rank, *refs[0], n)[:] = self.at(peer, *refs[1], n)
            case Code.PUSH:
                peer = op.peer
                assert self.turn[peer] == self.turn[rank], "the peer is in another run"
                self.at(peer, *refs[0], n)[:] = self.at(rank, *refs[1], n)
            case Code.REDUCE | Code.ACCUMULATE | Code.REDUCE2:
                a, b = (self.at(rank, *ref, n * element) for ref in refs[1:3])
                assert run.combine is not None
                twice = code == Code.REDUCE2
                targets = [
                    self.at(rank, *ref, n * element) for ref in refs[: 4 if twice else 1 : 3]
                ]
                check_overlap(a, b, *targets)
                result = run.combine(a, b)
                for target in targets:
                    target[:] = result
            case Code.POST:
                value = (self.turn[rank] << EPOCH_SHIFT) + n
                flag = self.at(rank, *refs[0], 8).view(np.uint64)
                assert flag[0] < value, f"a flag does not grow: {flag[0]:x} {value:x}"
                flag[0] = value
            case Code.WAIT:
                flag = self.at(rank, *refs[0], 8).view(np.uint64)
                return bool(flag[0] >= (self.turn[rank] << EPOCH_SHIFT) + n)
            case Code.TEST:
                return slot in self.done[rank]
            case Code.AWAIT:
                return self.pc[rank][op.peer] >= n
            case Code.ISEND | Code.IRECV:
                self._post(code, rank, op.peer, op.stream, slot,
                           self.at(rank, *refs[code == Code.ISEND], n))  # fmt: skip
            case Code.COLL:
                return self._collective(rank, stream, program, op, refs, n)
        return True

    def _post(
        self, code: Code, rank: int, peer: int, stream: int, slot: int, memory: Bytes
    ) -> None:
        self.done[rank].discard(slot)
        tag = self.turn[rank] % EPOCH_TAGS * MAX_STREAMS + stream
        transfer = Transfer(memory, rank, slot)
        if code == Code.IRECV:
            self.receives[peer, rank, tag].append(transfer)
            return
        if self.random.random() < 0.5:  # eager
            transfer.data = memory.copy()
            self.done[rank].add(slot)
        self.sends[rank, peer, tag].append(transfer)

    def _deliver(self, source: int, target: int, tag: int) -> bool:
        send = self.sends[source, target, tag].popleft()
        receive = self.receives[source, target, tag].popleft()
        data = send.memory if send.data is None else send.data
        assert data.size == receive.memory.size, "a message and its receive differ in size"
        receive.memory[:] = data
        if send.data is None:
            self.done[source].add(send.slot)
        self.done[target].add(receive.slot)
        return True

    def _collective(
        self, rank: int, stream: int, program: Program, op: Op,
        refs: list[tuple[int, int]], n: int,
    ) -> bool:  # fmt: skip
        """Enter a collective of MPI; the last member to enter completes it on all.

        Return False while a member waits in a blocking one.
        """
        slot, kind, blocking = op.slot, refs[2][1] % 16, refs[2][1] >= Coll.BLOCKING
        if (rank, stream) in self.inside:
            if slot in self.done[rank]:
                self.inside.discard((rank, stream))
                return True
            return False
        comm = program.comms[refs[3][1]]
        members = comm[1]
        nbytes = n if kind == Coll.BCAST else n * self.runs[self.turn[rank]].plan.signature.element
        index = self.called[rank, comm]
        self.called[rank, comm] += 1
        memory = [None if b == Base.NONE else self.at(rank, b, o, nbytes) for b, o in refs[:2]]
        self.done[rank].discard(slot)
        here = self.calls[comm, index]
        here[rank] = (kind, op.peer, nbytes, slot, *memory)
        if len(here) == len(members):
            self._complete(members, here, self.runs[self.turn[rank]])
        if blocking:
            self.inside.add((rank, stream))
            return self._collective(rank, stream, program, op, refs, n)
        return True

    def _complete(
        self, members: tuple[int, ...], here: dict[int, tuple[object, ...]], run: Run
    ) -> None:
        assert len({call[:3] for call in here.values()}) == 1, "members make different calls"
        kind, root = here[members[0]][:2]
        targets = [here[r][4] for r in members]
        if kind == Coll.BCAST:
            for target in targets:
                target[:] = targets[root]
        elif kind != Coll.BARRIER:
            operands = [here[r][4] if here[r][5] is None else here[r][5] for r in members]
            total = operands[0].copy()
            for operand in operands[1:]:
                total = run.combine(total, operand)
            for k, target in enumerate(targets):
                if kind == Coll.ALLREDUCE or k == root:
                    target[:] = total
        for r in members:
            self.done[r].add(here[r][3])


def same(x: Bytes, y: Bytes) -> bool:
    """Return whether two operands of the same size are the same memory."""
    return x.__array_interface__["data"][0] == y.__array_interface__["data"][0]


def apart(x: Bytes, y: Bytes) -> bool:
    """Return whether two operands share no byte."""
    return not np.may_share_memory(x, y)


def check_overlap(a: Bytes, b: Bytes, dst: Bytes, dst2: Bytes | None = None) -> None:
    """Assert what the kernels require of their operands (native/reductions.h)."""
    for operand in (a, b):
        assert same(dst, operand) or apart(dst, operand), "dst overlaps a part of an operand"
    if dst2 is not None:
        assert all(apart(dst2, other) for other in (dst, a, b)), "dst2 overlaps dst or an operand"


def rubbish(nbytes: int) -> Bytes:
    """Return memory as it is before the first write."""
    return np.full(nbytes, 0xA5, np.uint8)
