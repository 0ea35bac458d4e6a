"""Virtual time: when each rank runs, and how ranks share cores, memory and adapters.

A rank is one processor that goes through its streams as native/engine/executor.c does: round robin,
a few data operations per turn, and the next stream when one has to wait. Flags and messages carry
the time at which a peer can see them, so ranks need not advance in step. Only data operations and
messages are executed in the order of time, because they share memory, cores and adapters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from han.config.machine import MachineModel
from han.model.channel_layout import SMALL_BANKS
from han.model.opcodes import DATA, MESSAGES
from han.model.program import Area, Code
from han.model.timeline import TaskTime
from han.model.topology import Topology
from han.tasks.signature import Signature
from han.tasks.simulate.loading import Loaded

NEVER = float("inf")
NETWORK = -1  # in the place of a rank
TURN = 4  # data operations of a stream in one turn, as in native/engine/executor.c

WAITS = (Code.WAIT, Code.AWAIT)
# A row of the table: returns the time when the operation is done, or minus the time to retry it.
Operation = Callable[[int, "Rank", int, float], float]


class Open:
    """A task that has begun on a stream."""

    __slots__ = ("begin", "copying", "reducing", "start", "task")

    def __init__(self, task: int, begin: float) -> None:
        self.task, self.begin = task, begin
        self.copying = self.reducing = 0.0
        self.start = NEVER  # when its first operation began, other than a wait


class Rank:
    """The position of a rank in its program, and the time that its processor has spent."""

    __slots__ = ("begun", "copying", "free", "loaded", "messaging", "open", "pcs", "reducing",
                 "requests", "run", "stream", "turn", "working")  # fmt: skip

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.copying = self.reducing = self.messaging = 0.0
        self.run, self.working, self.free = -1, False, 0.0
        self.next_run()

    def next_run(self) -> None:
        """Go to the beginning of the next run."""
        self.run += 1
        self.begun = False
        self.pcs = [start for start, _ in self.loaded.bounds]
        self.stream, self.turn = 0, TURN
        self.requests: dict[int, object] = {}
        self.open: list[Open | None] = [None] * len(self.pcs)


class Engine:
    """Runs all ranks' programs through a table of operations."""

    def __init__(
        self, loaded: Sequence[Loaded], machine: MachineModel, place: Sequence[Sequence[int]],
        runs: int, signature: Signature | None = None,
    ) -> None:  # fmt: skip
        self.ranks = [Rank(one) for one in loaded]
        self.machine, self.runs = machine, runs
        self.keep = signature is not None  # whether to keep the spans of tasks
        self.collective = signature.collective if signature else ""
        self.nbytes = signature.nbytes if signature else 0
        self.finish = [[NEVER] * len(loaded) for _ in range(runs)]
        self.spans: list[TaskTime] = []
        self.operations = 0
        self.deliver: Callable[[float], None] = lambda now: None  # messages that are due
        self._heap: list[tuple[float, int]] = []  # of ranks, and of the NETWORK
        self._due = [NEVER] * len(loaded)
        self.node_of = place[machine.node_level]
        self._host_of = [0] * len(loaded) if machine.node.together else self.node_of
        sizes = [0] * (max(self._host_of) + 1)
        for host in self._host_of:
            sizes[host] += 1
        self._cores = [machine.node.cores or n for n in sizes]
        self._oversubscribed = [n > c for n, c in zip(sizes, self._cores, strict=True)]
        self._computing = [0] * len(sizes)  # ranks that use a core, by set of cores
        self._moving = [0] * (max(self.node_of) + 1)  # ranks that use the memory, by node
        self._homes: list[list[tuple[int, ...]]] = []
        self._gates: list[tuple[int, ...]] = []
        self._waiting: dict[int, list[int]] = defaultdict(list)  # ranks, by the run that must end

    # ---- reuse of shared memory -------------------------------------------------------------

    def guard(
        self, topology: Topology, channels: Sequence[int], gates: Sequence[tuple[int, ...]]
    ) -> None:
        """Set how many runs must end on the ranks of a channel before each run may write there."""
        self._gates = list(gates)
        self._homes = [
            [topology.home(level, rank) for level in channels] for rank in range(topology.size)
        ]

    def _gate(self, rank: int, state: Rank, now: float) -> float:
        """Return when a rank may begin its run; NEVER if that is not known yet."""
        writes = state.loaded.program.writes
        begin = now
        for channel, home in enumerate(self._homes[rank][: len(writes)]):
            needed = 0
            if writes[channel] & 1 << Area.SMALL:
                needed = max(needed, state.run + 1 - SMALL_BANKS)
            if writes[channel] & 1 << Area.CELLS:
                needed = max(needed, self._gates[state.run][channel])
            if needed:
                begin = max(begin, *(self.finish[needed - 1][r] for r in home))
                if begin == NEVER:
                    self._waiting[needed - 1].append(rank)
                    return NEVER
        return begin

    # ---- time -------------------------------------------------------------------------------

    def at(self, time: float, rank: int) -> None:
        """Let a rank continue at `time`, unless it does so earlier; not before its work is done."""
        time = max(time, self.ranks[rank].free)
        if time < self._due[rank]:
            self._due[rank] = time
            heappush(self._heap, (time, rank))

    def expect(self, time: float) -> None:
        """Deliver messages at `time`, before ranks go on."""
        heappush(self._heap, (time, NETWORK))

    def wake(self, time: float, rank: int) -> None:
        """Wake a waiting rank at `time`, later if its node is oversubscribed."""
        if time < NEVER:
            late = self.machine.node.switch if self._oversubscribed[self._host_of[rank]] else 0.0
            self.at(time + late, rank)

    def run(self, table: Sequence[Operation], tell: Callable[[], None] | None = None) -> None:
        """Run until all ranks have ended; raises RuntimeError if some wait for ever."""
        for rank in range(len(self.ranks)):
            self.at(0.0, rank)
        heap, due = self._heap, self._due
        while heap:
            time, rank = heappop(heap)
            if rank == NETWORK:
                self.deliver(time)
                continue
            if time != due[rank]:
                continue
            due[rank] = NEVER
            state = self.ranks[rank]
            if state.working:
                self._release(rank, state)
            if self._step(rank, state, time, table) and tell is not None:
                tell()
        stuck = [r for r, s in enumerate(self.ranks) if s.run < self.runs]
        if stuck:
            raise RuntimeError(f"the programs do not end: ranks {stuck[:8]} wait for ever")

    def _step(self, rank: int, state: Rank, now: float, table: Sequence[Operation]) -> bool:
        """Let a rank continue until a data operation has started or it must wait.

        Returns whether the rank has finished a run.
        """
        if not self._begun(rank, state, now):
            return False
        now = max(now, state.free)
        bounds = state.loaded.bounds
        count, idle, wake = len(bounds), 0, NEVER
        while idle < count:
            moved, now, asked = self._stream(rank, state, now, table)
            state.free = now
            if state.working or asked == now:
                self.at(now, rank)
                return False
            wake = min(wake, asked)
            idle = 0 if moved else idle + 1
            if moved:
                wake = NEVER
            state.stream, state.turn = (state.stream + 1) % count, TURN
        if all(pc == stop for pc, (_, stop) in zip(state.pcs, bounds, strict=True)):
            self._finish(rank, state, now)
            return True
        if wake < NEVER:
            self.wake(wake, rank)
        return False

    def _begun(self, rank: int, state: Rank, now: float) -> bool:
        """Begin the next run, if any, once its memory is free; return whether it has begun."""
        if state.begun or state.run == self.runs:
            return state.begun
        begin = self._gate(rank, state, now)
        if begin > now:
            self.wake(begin, rank)
            return False
        state.begun = True
        state.free = now + self.machine.node.call
        return True

    def _stream(
        self, rank: int, state: Rank, now: float, table: Sequence[Operation]
    ) -> tuple[bool, float, float]:
        """Advance a stream; return whether it moved, the time, and the time to retry it."""
        loaded, s = state.loaded, state.stream
        if not loaded.bounds:
            return False, now, NEVER
        pc, stop = state.pcs[s], loaded.bounds[s][1]
        first, code = pc, loaded.code
        asked = NEVER
        while pc < stop:
            if code[pc] in MESSAGES and self._heap and self._heap[0][0] < now:
                asked = now  # adapters serve messages in the order of time
                break
            if self.keep:
                self._enter(rank, state, s, pc, now)
            state.pcs[s] = pc
            end = table[code[pc]](rank, state, pc, now)
            if end < 0:
                asked = -end
                break
            here = state.open[s]
            if here is not None and code[pc] not in WAITS:
                here.start = min(here.start, now)
            pc += 1
            now = end
            if state.working:
                state.turn -= code[pc - 1] in DATA
                break
        state.pcs[s] = pc
        self.operations += pc - first
        if self.keep and pc == stop and pc > first:
            self._leave(rank, state, s, now)
        if state.working and not state.turn:
            state.stream, state.turn = (s + 1) % len(loaded.bounds), TURN
        return pc > first, now, asked

    def _finish(self, rank: int, state: Rank, now: float) -> None:
        self.finish[state.run][rank] = now
        run = state.run
        state.next_run()
        if state.run < self.runs:
            self.at(now, rank)
        for waiting in self._waiting.pop(run, ()):
            self.wake(now, waiting)

    # ---- what ranks share -------------------------------------------------------------------

    def compute(self, rank: int, seconds: float) -> float:
        """Occupy a core for `seconds` of work; return the time that it takes on a shared core."""
        host = self._host_of[rank]
        self._computing[host] += 1
        self._moving[self.node_of[rank]] += 1
        self.ranks[rank].working = True
        return seconds * max(1.0, self._computing[host] / self._cores[host])

    def move(self, rank: int, nbytes: int, rate: float) -> float:
        """Occupy a core and memory to move bytes; return the time that it takes."""
        users = self._moving[self.node_of[rank]] + 1
        return self.compute(rank, nbytes / min(rate, self.machine.node.memory / users))

    def _release(self, rank: int, state: Rank) -> None:
        state.working = False
        self._computing[self._host_of[rank]] -= 1
        self._moving[self.node_of[rank]] -= 1

    # ---- spans ------------------------------------------------------------------------------

    def _enter(self, rank: int, state: Rank, s: int, pc: int, now: float) -> None:
        """Record that a stream has come to a task, and has left the one before."""
        task, here = state.loaded.task[pc], state.open[s]
        if here is not None and here.task == task:
            return
        if here is not None:
            self._leave(rank, state, s, now)
        state.open[s] = Open(task, now)

    def _leave(self, rank: int, state: Rank, s: int, now: float) -> None:
        here, program = state.open[s], state.loaded.program
        if here is None:
            return
        name = program.tasks[here.task] if program.tasks else "copy"
        self.spans.append(
            TaskTime(
                rank,
                state.run,
                self.collective,
                program.streams[s].name,
                name,
                here.begin,
                now,
                here.copying,
                here.reducing,
                min(here.start, now) - here.begin,
                nbytes=self.nbytes,
            )
        )
        state.open[s] = None
