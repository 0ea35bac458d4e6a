"""The event graph of several collectives run back to back: what happens before what.

A node is an operation of a rank's program, or the beginning or end of its run. Edges say what
must have happened before an operation can: the order of its stream, flags, messages, and the
reuse rule of shared memory. Since each of these conditions stays true once it is, the programs
end under every interleaving of ranks and streams if and only if the graph has no cycle. Flags and
messages are paired by order, which is unique where those of one flag, or of one (sender, receiver,
tag), are in one order themselves; that is checked.

Edges of `strict` need not hold in every run: a send may be complete before it is received, a
collective of MPI's before all have entered. They count for deadlocks only, not for the order of
memory accesses.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from han.geometry import SMALL_BANKS
from han.program import Area, Base, Code, Coll, Program
from han.tasks.plan import Plan
from han.tasks.verify.story import Refuted, Where

SHIFT = 24  # flags hold (run << SHIFT) + k (native/engine.h)
TAG_RUNS = 8  # runs whose messages have tags of their own
TAGS = 32
BEGIN, END = -1, -2
Memory = tuple[object, ...]  # identity of a piece of memory


class Row(NamedTuple):
    """An instruction as plain numbers, which Python handles fastest."""

    code: int
    stream: int
    peer: int
    base: list[int]
    off: list[int]
    n: int
    slot: int
    task: int


@dataclass
class Ring:
    """Which runs have taken which part of a channel's rings (native/executor.c: take)."""

    size: int
    head: int = 0
    taken: list[tuple[int, int]] = field(default_factory=list)
    needed: int = 0
    start: int = 0

    def take(self, run: int, nbytes: int) -> None:
        """Take the next part for a run."""
        if not nbytes:
            return
        start = self.head
        if start % self.size + nbytes > self.size:
            start += self.size - start % self.size
        self.head = start + nbytes
        while self.taken and self.taken[0][0] + self.size < self.head:
            self.needed = self.taken.pop(0)[1] + 1
        self.taken.append((start, run))
        self.start = start % self.size


@dataclass(frozen=True)
class Parts:
    """Where one run's part of each channel is, and how many runs must be over before it."""

    starts: tuple[int, ...]
    needed: tuple[int, ...]


@dataclass
class Request:
    """A message or collective under way: the event that started it and its row."""

    event: int
    row: Row


class Events:
    """Builds the graph; `preds` and `strict` list each event's predecessors."""

    def __init__(self, plans: Sequence[Plan], programs: Sequence[Sequence[Program]]) -> None:
        self.plans, self.programs = plans, programs
        self.topology = plans[0].topology
        self.size = self.topology.size
        self.where: list[tuple[int, int, int]] = []  # run, rank, row
        self.chain: list[int] = []  # the stream of the rank, -1 for beginnings and ends
        self.preds: list[list[int]] = []
        self.strict: list[list[int]] = []
        self.rows = [[_rows(p) for p in ps] for ps in programs]
        self.started: dict[int, Request] = {}  # by the event that tests for it
        self.matched: dict[int, int] = {}  # a receive's event -> the send's
        self.members: dict[int, list[int]] = {}  # a collective's test -> all members' starts
        self.finished: dict[int, int] = {}  # a blocking collective's event -> its completion's
        self.posts: dict[tuple[Memory, int], list[tuple[int, int]]] = defaultdict(list)
        self._waits: list[tuple[int, tuple[Memory, int], int]] = []
        self._sends: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        self._receives: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        self._colls: dict[tuple[object, int], list[int]] = defaultdict(list)
        self._tests: dict[int, int] = {}  # a start's event -> its test's
        self._ends: list[dict[int, int]] = []
        self.begins: list[dict[int, int]] = []
        self.channels = [k for k, g in enumerate(plans[0].geometries) if g is not None]
        self.homes = [
            [self.topology.home(level, r)[0] for r in range(self.size)] for level in self.channels
        ]
        self.parts = list(self._take())
        for run in range(len(plans)):
            self._add_run(run)
        self._pair()

    # ---- addresses --------------------------------------------------------------------------

    def _take(self) -> Iterator[Parts]:
        geometries = [g for g in self.plans[0].geometries if g is not None]
        rings = [Ring(g.ring) for g in geometries]
        for run, plan in enumerate(self.plans):
            for ring, nbytes in zip(rings, plan.footprint(), strict=True):
                ring.take(run, nbytes)
            yield Parts(tuple(r.start for r in rings), tuple(r.needed for r in rings))

    def address(self, run: int, rank: int, base: int, offset: int) -> tuple[Memory, int]:
        """Name the memory that a reference points to, and the place in it."""
        if base < Base.CHANNEL:
            return (Base(base).name, rank, run), offset
        channel, area = divmod(base - Base.CHANNEL, len(Area))
        home = self.homes[channel][rank]
        if area == Area.CELLS:
            offset += self.parts[run].starts[channel]
        elif area == Area.SMALL:
            return (Area.SMALL.name, channel, home, run % SMALL_BANKS), offset
        return (Area(area).name, channel, home), offset

    def story(self, event: int) -> Where:
        """Say where an event is."""
        run, rank, row = self.where[event]
        return Where(run, rank, row, self.programs[run][rank])

    # ---- nodes ------------------------------------------------------------------------------

    def _new(self, run: int, rank: int, row: int, chain: int, preds: list[int]) -> int:
        self.where.append((run, rank, row))
        self.chain.append(chain)
        self.preds.append(preds)
        self.strict.append([])
        return len(self.where) - 1

    def _add_run(self, run: int) -> None:
        begins, ends = {}, {}
        for rank in range(self.size):
            before = [self._ends[run - 1][rank]] if run else []
            begins[rank] = self._new(run, rank, BEGIN, -1, before + self._room(run, rank))
        self.begins.append(begins)
        for rank in range(self.size):
            ends[rank] = self._add_rank(run, rank, begins[rank])
        self._ends.append(ends)

    def end(self, run: int, rank: int) -> int:
        """The event in which a rank leaves a run."""
        return self._ends[run][rank]

    def _room(self, run: int, rank: int) -> list[int]:
        """The runs that must be over before this one writes shared memory (executor.c: needed)."""
        found = []
        for channel, writes in enumerate(self.programs[run][rank].writes):
            needed = 0
            if writes & 1 << Area.SMALL:
                needed = max(needed, run + 1 - SMALL_BANKS)
            if writes & 1 << Area.CELLS:
                needed = max(needed, self.parts[run].needed[channel])
            if needed:
                home = self.topology.home(self.channels[channel], rank)
                found += [self._ends[needed - 1][r] for r in home]
        return found

    def _add_rank(self, run: int, rank: int, begin: int) -> int:
        program, rows = self.programs[run][rank], self.rows[run][rank]
        events: dict[int, int] = {}
        awaits: list[tuple[int, int]] = []
        last = []
        for index, stream in enumerate(program.streams):
            previous = begin
            requests: dict[int, Request] = {}
            for k in range(stream.start, stream.stop):
                event = self._new(run, rank, k, index, [previous])
                previous = events[k] = self._add_row(event, rows[k], requests, awaits)
            for slot, request in requests.items():
                raise Refuted(
                    "requests are completed", str(self.story(request.event)),
                    f"request {slot} still under way at the end of its stream", "a TEST",
                )  # fmt: skip
            last.append(previous)
        for event, n in awaits:
            self._await(event, program, n, events)
        return self._new(run, rank, END, -1, last or [begin])

    def _await(self, event: int, program: Program, n: int, events: dict[int, int]) -> None:
        _, rank, row = self.where[event]
        peer = self.rows[self.where[event][0]][rank][row].peer
        stream = program.streams[peer] if peer < len(program.streams) else None
        if stream is None or not stream.start <= n <= stream.stop:
            raise Refuted(
                "streams wait for what is there", str(self.story(event)),
                f"position {n} of stream {peer}", "a position in that stream",
            )  # fmt: skip
        if n > stream.start:
            self.preds[event].append(events[n - 1])

    def _add_row(
        self, event: int, row: Row, requests: dict[int, Request], awaits: list[tuple[int, int]]
    ) -> int:
        """Note what an operation waits for or tells; return the event to go on from."""
        run, rank, _ = self.where[event]
        code = row.code
        if code in (Code.POST, Code.WAIT):
            flag = self.address(run, rank, row.base[0], row.off[0])
            value = (run << SHIFT) + row.n
            if code == Code.POST:
                self.posts[flag].append((value, event))
            else:
                self._waits.append((event, flag, value))
        elif code == Code.AWAIT:
            awaits.append((event, row.n))
        elif code == Code.TEST:
            request = requests.pop(row.slot, None)
            if request is not None:
                self.started[event] = request
                self._tests[request.event] = event
        elif code in (Code.ISEND, Code.IRECV, Code.COLL):
            if row.slot in requests:
                raise Refuted(
                    "requests are completed", str(self.story(event)),
                    f"request {row.slot} still under way", "a TEST before it is used again",
                )  # fmt: skip
            return self._start(event, row, requests)
        return event

    def _start(self, event: int, row: Row, requests: dict[int, Request]) -> int:
        run, rank, index = self.where[event]
        if row.code == Code.COLL:
            program = self.programs[run][rank]
            self._colls[program.comms[row.off[3]], rank].append(event)
            if row.off[2] >= Coll.BLOCKING:
                done = self._new(run, rank, index, self.chain[event], [event])
                self.started[done] = Request(event, row)
                self._tests[event] = self.finished[event] = done
                return done
        else:
            tag = run % TAG_RUNS * TAGS + row.stream
            pair = (rank, row.peer) if row.code == Code.ISEND else (row.peer, rank)
            side = self._sends if row.code == Code.ISEND else self._receives
            side[pair[0], pair[1], tag].append(event)
        requests[row.slot] = Request(event, row)
        return event

    # ---- edges ------------------------------------------------------------------------------

    def _pair(self) -> None:
        self._pair_flags()
        for key in {*self._sends, *self._receives}:
            self._pair_messages(key)
        comms: dict[object, dict[int, list[int]]] = defaultdict(dict)
        for (comm, rank), events in self._colls.items():
            comms[comm][rank] = events
        for comm, calls in comms.items():
            self._pair_collectives(comm, calls)

    def _pair_flags(self) -> None:
        for posts in self.posts.values():
            if len({self.where[e][1] for _, e in posts}) > 1:
                raise Refuted(
                    "flags have one writer", str(self.story(posts[1][1])),
                    f"also {self.story(posts[0][1])}", "one rank that posts to a flag",
                )  # fmt: skip
            posts.sort()
        for event, flag, value in self._waits:
            first = next((e for v, e in self.posts.get(flag, ()) if v >= value), None)
            if first is None:
                raise Refuted("no deadlock", str(self.story(event)), "no POST of that value", "one")
            self.preds[event].append(first)

    def _pair_messages(self, key: tuple[int, int, int]) -> None:
        sends, receives = self._sends.get(key, []), self._receives.get(key, [])
        if len(sends) != len(receives):
            odd = (sends if len(sends) > len(receives) else receives)[-1]
            raise Refuted(
                "sends and receives pair up", str(self.story(odd)),
                f"{len(sends)} sends and {len(receives)} receives from rank {key[0]} to rank "
                f"{key[1]} on tag {key[2]}", "as many of each",
            )  # fmt: skip
        for side in (sends, receives):
            for one, other in itertools.pairwise(side):
                same = self.where[one][0] == self.where[other][0]
                if same and self.chain[one] != self.chain[other]:
                    raise Refuted(
                        "messages are in order", str(self.story(other)),
                        f"{self.story(one)} with the same peer and tag in another stream",
                        "one stream a tag",
                    )  # fmt: skip
        for send, receive in zip(sends, receives, strict=True):
            sizes = self._row(send).n, self._row(receive).n
            if sizes[0] != sizes[1]:
                raise Refuted(
                    "sends and receives pair up", str(self.story(receive)),
                    f"{sizes[0]} B from {self.story(send)}", f"{sizes[1]} B",
                )  # fmt: skip
            self.matched[receive] = send
            self.preds[self._tests[receive]].append(send)
            self.strict[self._tests[send]].append(receive)

    def _row(self, event: int) -> Row:
        run, rank, row = self.where[event]
        return self.rows[run][rank][row]

    def _pair_collectives(self, comm: object, calls: dict[int, list[int]]) -> None:
        ranks: tuple[int, ...] = comm[1]  # type: ignore[index]
        counts = {r: len(calls.get(r, ())) for r in ranks}
        if len(set(counts.values())) > 1:
            odd = next(iter(calls.values()))[-1]
            raise Refuted(
                "collectives of MPI pair up", str(self.story(odd)),
                f"calls by rank {counts}", "as many on every member",
            )  # fmt: skip
        for members in zip(*(calls[r] for r in ranks), strict=True):
            rows = [self._row(e) for e in members]
            if len({(row.off[2], row.peer, row.n) for row in rows}) > 1:
                raise Refuted(
                    "collectives of MPI pair up", str(self.story(members[-1])),
                    "another kind, root or count than on other members", "the same call",
                )  # fmt: skip
            kind, root = rows[0].off[2] % Coll.BLOCKING, rows[0].peer
            for k, event in enumerate(members):
                test = self._tests[event]
                self.members[test] = list(members)
                self.strict[test] += members
                if kind == Coll.BCAST:
                    self.preds[test].append(members[root])
                elif kind != Coll.REDUCE or k == root:
                    self.preds[test] += members


def _rows(program: Program) -> list[Row]:
    code = program.code
    columns = [code[name].tolist() for name in Row._fields]
    return [Row(*values) for values in zip(*columns, strict=True)]
