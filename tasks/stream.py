"""The streams of one rank's Program under construction, and the builder that joins them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from han._native import Operations, joined
from han.model.collectives import ROWS
from han.model.opcodes import Code
from han.model.program import INSTRUCTION, MAX_STREAMS, TERMS, Base, Program, Ref, StreamInfo
from han.model.task_names import TaskNames
from han.tasks.addresses import Addresses
from han.tasks.graph import Task, stream_tag
from han.tasks.outline import Outline
from han.tasks.ring import Span

NOWHERE = Ref(Base.NONE)
Awaits = tuple[tuple[int, int], ...]  # streams, and positions in them
Turn = tuple[int, int, int, Awaits]  # the number of a task, where it starts and stops


class Peer(NamedTuple):
    """A peer whose memory is accessed, and the channel and slot where it shows its buffers."""

    rank: int
    channel: int
    slot: int


class Stream(Operations):
    """The operations of one (task kind, level) on this rank, as they are emitted.

    Methods of `Operations` emit them: ``copy``, ``reduce``, ``accumulate``, ``pull``, ``push``,
    ``post``, ``wait``, ``isend``, ``irecv``, ``test`` and ``coll``. ``wait_each``,
    ``fold_each``, ``show_each``, ``take_each`` and ``again`` emit many at once, and rows those of
    all pieces (:mod:`han.submodules.parts.series`).
    """

    def __init__(self, index: int, kind: str, level: int, name: str, builder: Builder) -> None:
        signature, tag = builder.signature, stream_tag(kind, level, len(ROWS))
        super().__init__(
            tag,
            signature.nbytes,
            signature.element,
            signature.grain,
            signature.grains,
            signature.varied,
            signature.own,
        )
        self.index, self.kind, self.level, self.name = index, kind, level, name
        self.builder = builder
        self.tag = tag  # the stream's part of a message tag, the same on all ranks
        self.done: dict[Task, int] = {}
        self.parts: dict[Task, dict[Span, int]] = {}  # where parts of a task are done
        self._ordered: dict[Task, list[Span]] = {}  # the same parts in their order
        self._rooms: dict[object, tuple[int, Ref]] = {}
        self._labelled: Task | None = None
        self._whole: Task | None = None  # the task of the graph that the labelled one stands for
        self._begun: Task | None = None
        self._needs: list[tuple[Stream, Task]] = []  # what the task begun last waits for
        self.sequence = 0  # pieces so far: flags keep counting over the tasks of a stream

    def room(self, nbytes: int, key: object = "") -> Ref:
        """Return private memory for a task's partial results, which later tasks here use again.

        `key` tells apart what a task uses at the same time.
        """
        size, found = self._rooms.get(key, (-1, NOWHERE))
        if size < nbytes:
            found = self.builder.scratch(nbytes)
            self._rooms[key] = nbytes, found
        return found

    def label(self, task: Task) -> None:
        """Attribute the operations that follow to `task`, in traces and reports."""
        if task is self._labelled:
            return
        wholes, self._labelled = self.builder.wholes, task
        whole = wholes.get(task, task) if wholes else task
        if whole is not self._whole:
            self._whole, self.task = whole, self.builder.task_index(whole)

    def begin(self, task: Task) -> None:
        """Begin `task`: wait for its prerequisites."""
        self._turn_to(task)
        for stream, position in self._needed(task.start, task.stop):
            self.await_stream(stream, position)

    def begin_parts(self, task: Task, spans: Iterable[Span]) -> Iterator[Awaits]:
        """Begin parts of `task`: yield for each the streams and positions that it awaits."""
        self._turn_to(task)
        first, last = 0, 0  # any part of these bytes awaits nothing more
        for start, stop in spans:
            if first <= start and stop <= last:
                yield ()
            else:
                yield self._needed(start, stop)
                around = [one.around(source, start, stop) for one, source in self._needs]
                first = max((span[0] for span in around), default=0)
                last = min((span[1] for span in around), default=self.builder.signature.nbytes)

    def begin_blocks(self, task: Task, blocks: Iterable[int], stop: int) -> None:
        """Begin the part of `task` that moves some blocks up to byte `stop`; in lockstep all of it.

        It waits for what other streams of this rank have brought.
        """
        if self.builder.lockstep:
            self.begin(task)
            return
        self.label(task)
        for block in blocks:
            earlier = self.builder.brought.get((task.segment, block), ())
            for brought in [one for one in earlier if one.stream is not self][-1:]:
                self.await_stream(brought.stream.index, brought.until(stop))

    def begin_in_place(self, task: Task) -> None:
        """Begin to receive where the operands of a call in place were, which have been copied."""
        self.label(task)
        if self.builder.staged is not None:
            stream, position = self.builder.staged
            if stream is not self:
                self.await_stream(stream.index, position)

    def end_blocks(self, task: Task, blocks: Iterable[int], stop: int) -> None:
        """Let other streams of this rank have some blocks up to byte `stop` from here on."""
        for block in blocks:
            brought = self.builder.brought.setdefault((task.segment, block), [])
            last = brought[-1] if brought else None
            if last is None or last.stream is not self or last.stops[-1] >= stop:  # elsewhere
                brought.append(Brought(self, [], []))
            brought[-1].stops.append(stop)
            brought[-1].positions.append(len(self))

    def _turn_to(self, task: Task) -> None:
        """Find what `task` waits for; parts of a task have the same prerequisites."""
        self.label(task)
        if self._whole is not None and self._whole is not self._begun:
            self._begun, self._needs = self._whole, self.builder.prerequisites(self._whole, self)

    def _needed(self, start: int, stop: int) -> Awaits:
        """Return what [start, stop) of the task begun last awaits in other streams of this rank."""
        found: Awaits = ()
        for stream, task in self._needs:
            position = stream.position(task, start, stop)
            if position:
                found += ((stream.index, position),)
        return found

    def follow(self, other: Stream) -> None:
        """Wait until another stream of this rank has done what it has been given so far."""
        if other is not self:
            self.await_stream(other.index, len(other))

    def position(self, task: Task, start: int, stop: int) -> int | None:
        """Return where this stream has done [start, stop) of a task; all of it in lockstep."""
        parts = self.parts.get(task) if self.parts else None
        if not parts or self.builder.lockstep:
            return self.done.get(task)
        over = parts.get((start, stop)) or self._over(task, start, stop)
        return self.done.get(task) if over is None else over

    def _over(self, task: Task, start: int, stop: int) -> int | None:
        """Return where parts with bytes of [start, stop) are done; parts are disjoint."""
        ordered, parts = self._in_order(task), self.parts[task]
        found, number = None, bisect_left(ordered, (stop,))
        while number and ordered[number - 1][1] > start:
            number -= 1
            found = max(found or 0, parts[ordered[number]])
        return found

    def around(self, task: Task, start: int, stop: int) -> Span:
        """Return the part of a task that holds [start, stop); the same bytes if there is none."""
        ordered = self._in_order(task)
        number = bisect_left(ordered, (stop,))
        first, last = ordered[number - 1] if number else (stop, start)
        return (first, last) if first <= start and stop <= last else (start, stop)

    def _in_order(self, task: Task) -> list[Span]:
        """Return the parts of a task in the order of their bytes."""
        ordered, parts = self._ordered.get(task, []), self.parts.get(task, {})
        if len(ordered) < len(parts):
            ordered = self._ordered[task] = sorted(parts)
        return ordered

    def end(self, task: Task, position: int | None = None) -> None:
        """Mark `task` as done on this rank: here, or where the stream had so many operations."""
        wholes, position = self.builder.wholes, len(self) if position is None else position
        whole = wholes.get(task, task) if wholes else task
        self.done[whole] = position
        if task is not whole:
            self.parts.setdefault(whole, {})[task.start, task.stop] = position

    def turns(self, tasks: Iterable[Task]) -> tuple[Turn, ...]:
        """Return the numbers of tasks, where they start and stop, and what each awaits to begin."""
        builder, found = self.builder, list[Turn]()
        wholes, numbers = builder.wholes, builder.numbers
        self._labelled = self._whole = None  # whoever carries out the turns labels operations
        for task in tasks:
            whole = wholes.get(task, task) if wholes else task
            if whole is not self._begun:
                self._begun, self._needs = whole, builder.prerequisites(whole, self)
            start, stop = task.start, task.stop
            awaits = self._needed(start, stop) if self._needs else ()
            found.append((numbers.setdefault(whole, len(numbers)), start, stop, awaits))
        return tuple(found)

    def end_parts(self, task: Task, spans: Sequence[Span], positions: Sequence[int]) -> None:
        """Mark parts of `task` as done in turn, each where the stream had so many operations."""
        whole = self.builder.whole(task)
        self.done[whole] = positions[-1]
        self.parts.setdefault(whole, {}).update(zip(spans, positions, strict=True))


class Brought(NamedTuple):
    """A stream that has brought a block: up to which bytes, and at which positions."""

    stream: Stream
    stops: list[int]
    positions: list[int]

    def until(self, stop: int) -> int:
        """Return where the stream has brought the block up to byte `stop`."""
        return self.positions[min(bisect_left(self.stops, stop), len(self.stops) - 1)]


class Builder(Addresses):
    """Collects the streams of one rank, and allocates what their operations use."""

    def __init__(self, plan: Outline, rank: int) -> None:
        super().__init__(plan)
        self.signature = plan.signature
        self.rank, self.lockstep = rank, plan.lockstep
        self.streams: dict[tuple[str, int], Stream] = {}
        self._branches: dict[tuple[str, int, int], Stream] = {}
        self.made: list[Stream] = []  # all streams, in the order of their numbers
        self.acc = Ref(Base.SEND)  # where this rank combines; SEND: nothing combined yet
        self.numbers: dict[Task, int] = {}  # of tasks, for traces and reports
        self.wholes: dict[Task, Task] = {}  # of parts
        self.brought: dict[tuple[int, int], list[Brought]] = {}  # by segment and block
        self.staged: tuple[Stream, int] | None = None  # where operands in place have been copied
        self._comms: list[tuple[int, tuple[int, ...]]] = []

    # ---- operands and communicators -------------------------------------------------------

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

    # ---- tasks and their order -----------------------------------------------------------

    def part(self, task: Task, start: int, stop: int) -> Task:
        """Return the part [start, stop) of a task, which stands for the task on this rank."""
        part = Task(*task[:4], start, stop, task.step)
        self.wholes[part] = task
        return part

    def whole(self, task: Task) -> Task:
        """Return the task of the graph that a part stands for."""
        return self.wholes.get(task, task) if self.wholes else task

    def task_index(self, task: Task) -> int:
        """Return the number of a task, for traces and reports."""
        return self.numbers.setdefault(task, len(self.numbers))

    def tasks_of(self, stream: Stream) -> tuple[Task, ...]:
        """Return all tasks of a stream, or their parts, also while only some are lowered."""
        return self.plan.worked[stream.kind, stream.level]

    def prerequisites(self, task: Task, asking: Stream) -> list[tuple[Stream, Task]]:
        """Return the tasks that this rank must finish before `task`, each with its stream.

        They are the sources of its data, or in lockstep the tasks of all earlier stages. A source
        in which this rank has no part is replaced by the prerequisites of that source. Those of the
        stream that asks are left out.
        """
        if self.lockstep:
            return self._earlier(task)
        found: list[tuple[Stream, Task]] = []
        for source in self.plan.tasks.sources_of(task):
            stream = self.streams.get(source.stream)
            if stream is None or source not in stream.done:
                found += self.prerequisites(source, asking)
            elif stream is not asking:
                found.append((stream, source))
        return found

    def _earlier(self, task: Task) -> list[tuple[Stream, Task]]:
        """Return the last task of every other stream in the stages before that of `task`."""
        stages, found = self.plan.stages, list[tuple[Stream, Task]]()
        for stream in self.streams.values():
            before = (t for t in reversed(stream.done) if stages[t] < stages[task])
            last = None if (stream.kind, stream.level) == task.stream else next(before, None)
            if last is not None:
                found.append((stream, last))
        return found

    # ---- the result -----------------------------------------------------------------------

    def stream(self, kind: str, level: int) -> Stream:
        """Return the stream of a task kind on a level; it is made at the first request."""
        if (kind, level) not in self.streams:
            name = f"{kind}@{self.plan.topology.names[level]}"
            self.streams[kind, level] = self._new(kind, level, name)
        return self.streams[kind, level]

    @property
    def most_branches(self) -> int:
        """How many branches each stream may have, so that all fit into a program."""
        return MAX_STREAMS // max(1, len(self.plan.streams)) - 1

    def branch(self, stream: Stream, number: int) -> Stream:
        """Return a branch of a stream: operations that progress beside it, for the same tasks.

        The stream itself tells when tasks are done. Branches of a stream talk to different peers.
        """
        key = stream.kind, stream.level, number
        if key not in self._branches:
            name = f"{stream.name}/{number}"
            self._branches[key] = self._new(stream.kind, stream.level, name)
        return self._branches[key]

    def _new(self, kind: str, level: int, name: str) -> Stream:
        self.made.append(Stream(len(self.made), kind, level, name, self))
        return self.made[-1]

    def program(self, footprint: tuple[int, ...]) -> Program:
        """Join the streams; `footprint` is the bytes that they take of each ring, by channel."""
        streams = tuple(self.made)
        infos = _infos(streams)
        code, terms = joined(streams)
        grains = self.signature.grains
        return Program(
            rank=self.rank,
            code=np.frombuffer(code, INSTRUCTION),
            streams=infos,
            tasks=TaskNames.of((task.name, task.segment) for task in self.numbers),
            requests=self.requests,
            scratch=self.scratch_bytes,
            operand=max((s.operand for s in streams), default=0),
            footprint=footprint,
            writes=self._written(streams)[: len(footprint)],
            sync=ROWS[self.signature.collective].synchronises or self._hears_all(code, terms),
            comms=tuple(self._comms),
            grains=grains,
            grain=self.signature.grain if grains else 0,
            terms=np.frombuffer(terms, TERMS) if grains else None,
            blocks=self._blocks,
            own=self.signature.own,
        )

    def _hears_all(self, code: memoryview, terms: memoryview) -> bool:
        """Return whether this rank waits for a flag of each other one, whatever the sizes are."""
        if not self.signature.own:
            return False
        waits = np.frombuffer(code, INSTRUCTION)["code"] == Code.WAIT
        always = waits & (np.frombuffer(terms, TERMS)["stop"] == 0)
        heard = np.unique(np.frombuffer(code, INSTRUCTION)["peer"][always])
        return len(heard) == self.plan.topology.size - 1

    @property
    def _blocks(self) -> int:
        """The number of blocks whose sizes a run brings; with own sizes, and an empty one."""
        size = self.plan.topology.size
        return 2 * size + 1 if self.signature.own else size * self.signature.varied

    def _written(self, streams: Iterable[Stream]) -> tuple[int, ...]:
        """Return the bits of ``Program.writes`` by channel."""
        found = self.shown
        for stream in streams:
            found = [bits | more for bits, more in zip(found, stream.writes, strict=False)]
        return tuple(found)


def _infos(streams: Iterable[Stream]) -> tuple[StreamInfo, ...]:
    found, start = [], 0
    for s in streams:
        found.append(StreamInfo(s.name, s.kind, s.level, start, start + len(s)))
        start += len(s)
    return tuple(found)
