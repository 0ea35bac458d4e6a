"""The edges of the graph: which events must precede which.

Edges follow from streams, flags, messages, MPI collectives, and memory that runs use again. Each
edge is a condition that stays true once it is true. The programs therefore end under every
interleaving of ranks and streams if and only if the graph has no cycle.

Posts are paired with waits, and sends with receives, by their order. This is unique if the posts of
a flag, and the messages of one (sender, receiver, tag), are themselves in one order; that is
checked.

Edges of `strict` need not hold in every run: a send may complete before it is received, and an MPI
collective before all ranks have entered. They count for deadlocks, but not for the order of memory
accesses.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from han.model.channel_layout import EPOCH_SHIFT, SMALL_BANKS
from han.model.opcodes import MESSAGES, STARTS
from han.model.program import EPOCH_TAGS, MAX_STREAMS, Area, Code, Coll
from han.tasks.verify.address_spaces import Numbers
from han.tasks.verify.bounds import call_of, line
from han.tasks.verify.events import FINISH, Events
from han.tasks.verify.story import Refuted

RUNS = 1 << 16  # back to back, at most


class Pairs:
    """The edges: the events `before` each event, apart from those that precede it in its strand.

    `test` holds the event that completes a start, `start` the reverse, and `sent` the send of a
    receive (-1: none). `calls` holds the members' starts and the joint of an MPI collective, by the
    start of each member. `rises` holds, for posts whose order is still to be proved, the post of
    the same flag that must precede each of them.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.before: defaultdict[int, list[int]] = defaultdict(list)
        self.strict: defaultdict[int, list[int]] = defaultdict(list)
        self.start: Numbers = np.full(len(events.rows), -1)
        self.test: Numbers = self.start.copy()
        self.sent: Numbers = self.start.copy()
        self.calls: dict[int, tuple[list[int], int]] = {}
        self.rises: dict[int, int] = {}
        self._pair_streams()
        self._pair_awaits()
        self._pair_flags()
        self._pair_requests()
        self._pair_messages()
        self._pair_collectives()

    def _let_wait(self, waiting: Numbers, first: Numbers, *, strict: bool = False) -> None:
        edges = self.strict if strict else self.before
        for event, other in zip(waiting.tolist(), first.tolist(), strict=True):
            edges[event].append(other)

    # ---- within a rank ----------------------------------------------------------------------

    def _pair_streams(self) -> None:
        """Let runs begin after earlier ones, when memory is free, and streams with their run."""
        events = self.events
        lasts: dict[tuple[int, int], list[int]] = defaultdict(list)
        for strand in events.strands:
            if strand.start < strand.stop:
                self.before[strand.start].append(events.begin(strand.run, strand.rank))
                lasts[strand.run, strand.rank].append(strand.stop - 1)
        free: dict[tuple[int, int, int], int] = {}
        for run in range(len(events.plans)):
            for rank in range(events.size):
                begin, end = events.begin(run, rank), events.end(run, rank)
                self.before[end] = lasts[run, rank] or [begin]
                if run:
                    self.before[begin] = [events.end(run - 1, rank), *self._room(run, rank, free)]

    def _room(self, run: int, rank: int, free: dict[tuple[int, int, int], int]) -> list[int]:
        """Return joints of the runs that must end before this one begins (engine/runs.h)."""
        events, places, found = self.events, self.events.places, []
        for channel, writes in enumerate(events.programs[run][rank].writes):
            needed = 0
            if writes & 1 << Area.SMALL:
                needed = max(needed, run + 1 - SMALL_BANKS)
            if writes & 1 << Area.CELLS:
                needed = max(needed, places.parts[run].needed[channel])
            if needed:
                home = events.topology.home(places.channels[channel], rank)
                key = channel, home[0], needed
                if key not in free:
                    free[key] = self._joint([events.end(needed - 1, r) for r in home])
                found.append(free[key])
        return found

    def _joint(self, members: list[int]) -> int:
        """Add an event after all `members`; it saves one edge for each pair of them."""
        run, rank, _ = self.events.where(members[0])
        joint = self.events.joint(run, rank)
        self.before[joint] = list(members)
        return joint

    def _pair_awaits(self) -> None:
        events = self.events
        awaits = np.flatnonzero(events.code == Code.AWAIT)
        for event in awaits.tolist():
            run, rank, _ = events.where(event)
            peer, n = int(events.rows["peer"][event]), int(events.rows["n"][event])
            streams = events.programs[run][rank].streams
            if not 0 <= peer < len(streams) or not streams[peer].start <= n <= streams[peer].stop:
                raise Refuted(
                    "streams wait for operations that exist", events.story(event),
                    f"position {n} of stream {peer}", "a position in that stream",
                )  # fmt: skip
            if n > streams[peer].start:
                strand = events.first_strand[run * events.size + rank] + peer
                self.before[event].append(events.event_of(strand, n - 1))

    # ---- flags ------------------------------------------------------------------------------

    def _pair_flags(self) -> None:
        """Let every wait follow the first post of a value that ends it."""
        events = self.events
        if len(events.plans) > RUNS:
            raise ValueError(f"{len(events.plans)} runs, at most {RUNS}")
        posts = np.flatnonzero(events.code == Code.POST)
        waits = np.flatnonzero(events.code == Code.WAIT)
        lines, flag = np.unique(line(events, posts), return_inverse=True)
        posted = (flag << 40) + self._values(posts)
        order = np.argsort(posted, kind="stable")
        posts, posted = posts[order], posted[order]
        self._check_writers(posts, posted)
        wanted = line(events, waits)
        k = np.searchsorted(lines, wanted)
        first = np.searchsorted(posted, (k << 40) + self._values(waits))
        none = (np.append(lines, -1)[k] != wanted) | (np.append(posted, -1)[first] >> 40 != k)
        if none.any():
            event = int(waits[none][0])
            raise Refuted("no deadlock", events.story(event), "no POST of that value", "one")
        self._let_wait(waits, posts[first])

    def _values(self, where: Numbers) -> Numbers:
        rows = self.events.rows["n"][where].astype(np.int64)
        values: Numbers = (self.events.run[where] << EPOCH_SHIFT) + rows
        return values

    def _check_writers(self, posts: Numbers, posted: Numbers) -> None:
        """Check the order of a flag's posts; enter those whose order is to be proved in `rises`."""
        events = self.events
        one, other = posts[:-1], posts[1:]
        same = posted[:-1] >> 40 == posted[1:] >> 40
        handed = same & (events.rank[one] != events.rank[other])  # from one writer to another
        run = same & (events.run[one] == events.run[other])
        stream = ~handed & (events.stream[one] == events.stream[other])
        falls = run & ((posted[:-1] == posted[1:]) | stream & (one >= other))
        self._refuse(one, other, falls, "values of a flag only grow", "posts in their order")
        across = handed | run & ~stream
        self.rises = dict(zip(other[across].tolist(), one[across].tolist(), strict=True))

    def _refuse(
        self, one: Numbers, other: Numbers, bad: Numbers, subject: str, expected: str
    ) -> None:
        if bad.any():
            first, second = int(one[bad][0]), int(other[bad][0])
            story = self.events.story
            raise Refuted(subject, story(second), f"also {story(first)}", expected)

    # ---- messages ---------------------------------------------------------------------------

    def _pair_requests(self) -> None:
        """Find the TEST that completes each request, in the stream that started it."""
        events = self.events
        starts = np.isin(events.code, STARTS)
        asks = np.flatnonzero(starts | np.isin(events.code, (Code.TEST, FINISH)))
        slot = events.rows["slot"][asks].astype(np.int64)
        strand = events.strand[asks]
        order = np.lexsort((asks, slot, strand))
        asks, slot, strand = asks[order], slot[order], strand[order]
        self._check_owners(asks, slot)
        same = (slot[1:] == slot[:-1]) & (strand[1:] == strand[:-1])
        done = np.append(same & ~starts[asks[1:]], np.zeros(len(asks) - len(same), bool))
        open_ = starts[asks] & ~done
        if open_.any():
            event = int(asks[open_].min())
            raise Refuted(
                "requests are completed", events.story(event),
                f"request {events.rows['slot'][event]} still active",
                "a TEST before it is used again and before its stream ends",
            )  # fmt: skip
        k = np.flatnonzero(starts[asks])
        self.test[asks[k]], self.start[asks[k + 1]] = asks[k + 1], asks[k]

    def _check_owners(self, asks: Numbers, slot: Numbers) -> None:
        """Check that a request belongs to one stream: the streams of a rank share one array."""
        events = self.events
        key = ((events.run[asks] * events.size + events.rank[asks]) << 32) + slot
        order = np.argsort(key, kind="stable")
        one, other = asks[order][:-1], asks[order][1:]
        mixed = (key[order][:-1] == key[order][1:]) & (events.stream[one] != events.stream[other])
        self._refuse(one, other, mixed, "a request belongs to one stream", "another request")

    def _pair_messages(self) -> None:
        events, sides = self.events, []
        for code in MESSAGES:
            side = np.flatnonzero(events.code == code)
            ends = events.rank[side], events.rows["peer"][side].astype(np.int64)
            sender, receiver = ends if code == Code.ISEND else ends[::-1]
            tag = events.run[side] % EPOCH_TAGS * MAX_STREAMS + events.rows["stream"][side]
            key = ((sender * events.size + receiver) << 16) + tag
            order = np.argsort(key, kind="stable")
            sides.append((side[order], key[order]))
        (sends, sent), (receives, received) = sides
        self._check_counts(sends, sent, receives, received)
        for side in (sends, receives):
            one, other = side[:-1], side[1:]
            same = (sent[:-1] == sent[1:]) & (events.run[one] == events.run[other])
            mixed = same & (events.stream[one] != events.stream[other])
            self._refuse(one, other, mixed, "messages are in order", "one stream per tag")
        odd = events.nbytes[sends] != events.nbytes[receives]
        if odd.any():
            send, receive = int(sends[odd][0]), int(receives[odd][0])
            raise Refuted(
                "sends and receives match", events.story(receive),
                f"{events.nbytes[send]} B from {events.story(send)}",
                f"{events.nbytes[receive]} B",
            )  # fmt: skip
        self.sent[receives] = sends
        self._let_wait(self.test[receives], sends)
        self._let_wait(self.test[sends], receives, strict=True)

    def _check_counts(
        self, sends: Numbers, sent: Numbers, receives: Numbers, received: Numbers
    ) -> None:
        keys = np.union1d(sent, received)
        out, in_ = (
            np.searchsorted(side, keys, "right") - np.searchsorted(side, keys)
            for side in (sent, received)
        )
        for k in np.flatnonzero(out != in_)[:1]:
            side, of = (sends, sent) if out[k] > in_[k] else (receives, received)
            odd = int(side[np.flatnonzero(of == keys[k])[-1]])
            pair, tag = divmod(int(keys[k]), 1 << 16)
            sender, receiver = divmod(pair, self.events.size)
            raise Refuted(
                "sends and receives match", self.events.story(odd),
                f"{out[k]} sends and {in_[k]} receives from rank {sender} to rank "
                f"{receiver} on tag {tag}", "the same number of both",
            )  # fmt: skip

    # ---- MPI collectives --------------------------------------------------------------------

    def _pair_collectives(self) -> None:
        events = self.events
        comms: dict[tuple[int, tuple[int, ...]], dict[int, list[int]]] = {}
        for event in np.flatnonzero(events.code == Code.COLL).tolist():
            run, rank, _ = events.where(event)
            comm = events.programs[run][rank].comms[events.rows["off"][event, 3]]
            comms.setdefault(comm, {}).setdefault(rank, []).append(event)
        for (_, ranks), calls in comms.items():
            counts = {r: len(calls.get(r, ())) for r in ranks}
            if len(set(counts.values())) > 1 or calls.keys() - counts.keys():
                odd = next(iter(calls.values()))[-1]
                raise Refuted(
                    "calls of MPI collectives match", events.story(odd),
                    f"calls by rank {counts}", "the same number on every member",
                )  # fmt: skip
            for members in zip(*(calls[r] for r in ranks), strict=True):
                self._pair_members(list(members))

    def _pair_members(self, members: list[int]) -> None:
        rows = self.events.rows
        if len({(row["off"][2], row["peer"], row["n"]) for row in rows[members]}) > 1:
            raise Refuted(
                "calls of MPI collectives match", self.events.story(members[-1]),
                "another kind, root or count than on other members", "the same call",
            )  # fmt: skip
        joint = self._joint(members)
        root = int(rows["peer"][members[0]])
        for event in members:
            test = int(self.test[event])
            self.calls[event] = members, joint
            kind, _, gets = call_of(self.events, event)
            self.strict[test].append(joint)
            if kind == Coll.BCAST:
                self.before[test].append(members[root])
            elif gets or kind == Coll.BARRIER:
                self.before[test].append(joint)
