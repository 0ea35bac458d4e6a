"""Operations in virtual time: a table with one row for each code of a Program."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from math import ceil, log2

from han.config.machine import Link
from han.model.channel_layout import EPOCH_SHIFT
from han.model.program import Code, Coll
from han.tasks.simulate.engine import NEVER, Engine, Operation, Rank
from han.tasks.simulate.network import Message, Network


class Flag:
    """The values posted in a flag and the times of the posts; both only grow."""

    __slots__ = ("rank", "times", "values", "waiting")

    def __init__(self) -> None:
        self.values: list[int] = []
        self.times: list[float] = []
        self.rank = 0
        self.waiting: list[int] = []


class Meeting:
    """An MPI collective: the time when each member entered, and the time when it ends."""

    __slots__ = ("entered", "over")

    def __init__(self) -> None:
        self.entered: dict[int, float] = {}
        self.over = NEVER


class Operations:
    """The table; an operation returns the time when it is done, or minus the time to retry it."""

    def __init__(self, engine: Engine, network: Network, flags: int) -> None:
        self.engine, self.network = engine, network
        self.node = engine.machine.node
        self.flags = [Flag() for _ in range(flags)]
        self.meetings: dict[object, Meeting] = defaultdict(Meeting)
        self.calls: dict[object, int] = defaultdict(int)
        rows: dict[Code, Operation] = {
            Code.COPY: self.copy, Code.PULL: self.copy, Code.PUSH: self.copy,
            Code.REDUCE: self.reduce, Code.REDUCE2: self.reduce,
            Code.POST: self.post, Code.WAIT: self.wait, Code.AWAIT: self.await_,
            Code.ISEND: self.isend, Code.IRECV: self.irecv, Code.TEST: self.test,
            Code.COLL: self.coll,
        }  # fmt: skip
        self.table = tuple(rows[code] for code in Code)
        engine.deliver = self._deliver

    # ---- data -------------------------------------------------------------------------------

    def copy(self, rank: int, state: Rank, pc: int, now: float) -> float:
        """Move bytes."""
        took = self.engine.move(rank, state.loaded.n[pc], self.node.copy_rate)
        state.copying += took
        if (task := state.open[state.stream]) is not None:
            task.copying += took
        return now + took + self.node.operation

    def reduce(self, rank: int, state: Rank, pc: int, now: float) -> float:
        """Combine two operands."""
        took = self.engine.move(rank, state.loaded.n[pc], self.node.reduce_rate)
        state.reducing += took
        if (task := state.open[state.stream]) is not None:
            task.reducing += took
        return now + took + self.node.operation

    # ---- flags ------------------------------------------------------------------------------

    def post(self, rank: int, state: Rank, pc: int, now: float) -> float:
        """Post a value in a flag, and wake the ranks that wait for it."""
        flag = self.flags[state.loaded.what[pc]]
        now += self.node.operation
        flag.rank = rank
        flag.values.append((state.run << EPOCH_SHIFT) + state.loaded.n[pc])
        flag.times.append(now)
        if flag.waiting:
            for waiting in flag.waiting:
                self.engine.wake(now + self.network.link(rank, waiting).flag, waiting)
            flag.waiting = []
        return now

    def wait(self, rank: int, state: Rank, pc: int, now: float) -> float:
        """Wait until a flag has reached a value."""
        flag = self.flags[state.loaded.what[pc]]
        first = bisect_left(flag.values, (state.run << EPOCH_SHIFT) + state.loaded.n[pc])
        if first == len(flag.values):
            flag.waiting.append(rank)
            return -NEVER
        seen = flag.times[first] + self.network.link(flag.rank, rank).flag
        return now + self.node.operation if seen <= now else -seen

    def await_(self, rank: int, state: Rank, pc: int, now: float) -> float:
        """Wait until another stream has passed a position."""
        there = state.pcs[state.loaded.what[pc]]
        return now if there >= state.loaded.n[pc] else -NEVER

    # ---- messages ---------------------------------------------------------------------------

    def isend(self, rank: int, state: Rank, pc: int, now: float) -> float:
        """Start a send: the processor works first, then the network."""
        loaded = state.loaded
        dst, nbytes = loaded.peer[pc], loaded.n[pc]
        start = now + self.node.operation + self.network.link(rank, dst).overhead
        message = self.network.send(start, rank, dst, loaded.tags[pc], nbytes)
        state.requests[loaded.what[pc]] = message
        self._expect(message)
        return now + self._handle(rank, state, message.link, nbytes)

    def irecv(self, rank: int, state: Rank, pc: int, now: float) -> float:
        """Post a receive."""
        loaded = state.loaded
        src = loaded.peer[pc]
        message = self.network.receive(now, src, rank, loaded.tags[pc])
        state.requests[loaded.what[pc]] = message
        self.engine.wake(message.gone, src)
        if message.arrival > now:
            self._expect(message)
        return now + self.node.operation

    def test(self, rank: int, state: Rank, pc: int, now: float) -> float:
        """Wait until a request is complete."""
        request = state.requests.get(state.loaded.what[pc])
        if isinstance(request, Meeting):
            return now if request.over <= now else -request.over
        if not isinstance(request, Message):
            return now
        receives = request.dst == rank
        ready = request.arrival if receives else request.gone
        if receives and ready == NEVER and request.due < now:
            return -now  # the adapters have not come to this time yet
        if ready > now:
            return -ready
        del state.requests[state.loaded.what[pc]]
        return now + (self._handle(rank, state, request.link, request.nbytes) if receives else 0.0)

    def _expect(self, message: Message) -> None:
        """Wake the receiver when a message arrives, or see to it when the message is due."""
        if message.arrival < NEVER:
            self.engine.wake(message.arrival, message.dst)
        elif message.due < NEVER:
            self.engine.expect(message.due)

    def _deliver(self, now: float) -> None:
        """Let messages that are due pass the adapters, and wake their receivers."""
        for message in self.network.deliver(now):
            self.engine.wake(message.arrival, message.dst)

    def _handle(self, rank: int, state: Rank, link: Link, nbytes: int) -> float:
        """Occupy the processor for one side of a message; return the time that it takes."""
        if link.copying:
            took = self.engine.compute(rank, link.overhead + nbytes / link.copying)
        else:
            took = link.overhead
        state.messaging += took
        return took + self.node.operation

    # ---- MPI collectives --------------------------------------------------------------------

    def coll(self, rank: int, state: Rank, pc: int, now: float) -> float:
        """Enter an MPI collective; if it is blocking, wait for its end."""
        loaded = state.loaded
        row = loaded.program.code[pc]
        kind = int(row["off"][2])
        meeting = state.requests.get(loaded.what[pc]) if kind >= Coll.BLOCKING else None
        if not isinstance(meeting, Meeting):
            meeting = self._enter(rank, state, pc, now)
            state.requests[loaded.what[pc]] = meeting
        if kind < Coll.BLOCKING:
            return now + self.node.operation
        if meeting.over > now:
            return -meeting.over
        del state.requests[loaded.what[pc]]
        return now

    def _enter(self, rank: int, state: Rank, pc: int, now: float) -> Meeting:
        row = state.loaded.program.code[pc]
        comm = state.loaded.program.comms[int(row["off"][3])]
        number = self.calls[comm, rank]
        self.calls[comm, rank] += 1
        meeting = self.meetings[comm, number]
        meeting.entered[rank] = now
        ranks = comm[1]
        if len(meeting.entered) == len(ranks):
            nbytes = state.loaded.n[pc]
            meeting.over = max(meeting.entered.values()) + self._postal(ranks, nbytes, row)
            for other in ranks:
                self.engine.wake(meeting.over, other)
        return meeting

    def _postal(self, ranks: tuple[int, ...], nbytes: int, row: object) -> float:
        """Estimate an MPI collective by the postal model: a binomial tree, two for an allreduce."""
        level = max(self.network.level(ranks[0], r) for r in ranks)
        link = self.engine.machine.levels[level]
        steps = ceil(log2(len(ranks))) if len(ranks) > 1 else 0
        kind = int(row["off"][2]) % Coll.BLOCKING  # type: ignore[index]
        each = link.latency + 2 * link.overhead + nbytes / link.bandwidth
        if kind != Coll.BCAST and nbytes:
            each += nbytes / self.node.reduce_rate
        return steps * each * (2 if kind == Coll.ALLREDUCE else 1)
