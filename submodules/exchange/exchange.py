"""``exchange``: allreduce by exchanging with a few others at a time.

Between nodes, pairwise in messages. Recursive doubling: log2(n) steps, each rank sends the whole
message in every step; lower positions stay on the left of every combination, so the order of
operands is kept. Halving: a reduce-scatter that sends half, a quarter ... of the message, then
an allgather the same way back: every rank sends 2 (n - 1) / n of the message, which is the
least. The ranks beyond a power of two hand their data to a neighbour first.

Inside a node, through cells, with any factors: see ``exchange_node``.

Source: Jocksch et al., section 2; Thakur et al. (Rabenseifner).
"""

from __future__ import annotations

from collections.abc import Callable

from han.model.program import Ref
from han.submodules.exchange import node as exchange_node
from han.submodules.exchange.layout import asked_factors
from han.submodules.parts.cells import FLAGS
from han.tasks.context import Context
from han.tasks.contract import TRIED_SIZES, Algorithm, Parameter, Question, Submodule, order_kept
from han.tasks.graph import Task
from han.tasks.outline import Outline

MOST = 1 << 30
SEGMENT = 32 * 1024
MESSAGES = ("recursive_doubling", "halving")
FUSED = ("allreduce",)


class Exchange(Submodule):
    """Exchange with a few others at a time."""

    name = "exchange"
    about = "allreduce by exchanges: in messages, or in shared memory with any factors (Jocksch)"
    flags = FLAGS
    algorithms = {
        "recursive_doubling": Algorithm("whole messages, log2(n) steps", FUSED, "always"),
        "halving": Algorithm("reduce-scatter and allgather, 2 log2(n) steps", FUSED, "never"),
        "recursive": Algorithm(
            "in shared memory: reduce-scatter and allgather by groups of groups", FUSED, "always"
        ),
        "cyclic": Algorithm(
            "in shared memory: with members at growing distances, any number of them",
            FUSED,
            "never",
        ),
        "tree": Algorithm("in shared memory: the first of each group combines", FUSED, "always"),
        "copyin": Algorithm(
            "in shared memory: blocks go round, combined as they are copied in", FUSED, "never"
        ),
    }
    parameters = {
        "segment": Parameter("size", "bytes of one message", 1, MOST, tried=TRIED_SIZES),
        "factors": Parameter("factors", "how many combine in each step: [4, 2]", 2, 1 << 16),
        "factors_gather": Parameter("factors", "the same of the allgather: [2, 4]", 2, 1 << 16),
        "factors_middle": Parameter(
            "factors", "recursive: steps between them that split nothing", 2, 1 << 16
        ),
        "partition": Parameter(
            "size", "bytes of a block; 0: blocks alike", 0, 1 << 30, tried=(0, 64, 100, 1000)
        ),
        "chunk": Parameter(
            "size", "bytes that are combined at a time", 64, 4 << 20, tried=TRIED_SIZES
        ),
        "whole": Parameter(
            "size", "recursive: up to here messages are not split", 0, 4096, tried=(0, 64, 4096)
        ),
    }

    def supports(self, question: Question) -> str | None:
        """Return None, or the reason why it cannot serve."""
        algorithm = question.choice.algorithm
        reason = _unfit(question) if algorithm in MESSAGES else exchange_node.unfit(question)
        return reason or order_kept(question, self.algorithms[algorithm])

    def footprint(self, plan: Outline, level: int) -> int:
        """Return how many bytes of each rank's ring of cells a run takes."""
        if plan.choice.levels[level].algorithm in MESSAGES:
            return 0
        return exchange_node.footprint(plan, level)

    def lower(self, context: Context) -> None:
        """Emit this rank's operations."""
        if context.choice.algorithm not in MESSAGES:
            exchange_node.lower(context)
            return
        halving = context.choice.algorithm == "halving"
        nbytes = max(t.nbytes for t in context.tasks)
        room = context.builder.scratch(nbytes)
        wires: list[tuple[int, int]] = []
        for task in context.tasks:
            context.stream.begin(task)
            exchange = _Exchange(context, task, room, wires)
            exchange.fold_in_and_out(exchange.halve if halving else exchange.double)
            context.stream.end(task)


def _unfit(question: Question) -> str | None:
    """Return the reason why messages cannot serve, or None."""
    choice, signature = question.choice, question.signature
    if any(asked_factors(choice)):
        return f"{choice.algorithm} is of factors 2 and takes no others"
    if choice.algorithm == "recursive_doubling" and signature.nbytes > MOST:
        return f"whole messages of more than {MOST} bytes"
    if signature.element > MOST:
        return f"elements of more than {MOST} bytes"
    return None


class _Exchange:
    """One task's exchange; `mine` moves from the operand to the result on the first step."""

    def __init__(
        self, context: Context, task: Task, room: Ref, wires: list[tuple[int, int]]
    ) -> None:
        self.context, self.stream, self.wires = context, context.stream, wires
        self.nbytes, self.room = task.nbytes, room
        self.mine = context.source + task.start
        self.result = context.result + task.start
        size = context.group.size
        self.power = 1 << (size.bit_length() - 1)
        self.extra = size - self.power  # the first 2 * extra members go together in pairs

    def fold_in_and_out(self, exchange: Callable[[int], None]) -> None:
        """Let every other one of the first members stand back while the rest exchange."""
        me = self.context.group.me
        paired = me < 2 * self.extra
        if paired and me % 2:
            self._transfer(me - 1, send=(self.mine, self.nbytes))
            self._transfer(me - 1, recv=(self.result, self.nbytes))
            return
        if paired:
            self._transfer(me + 1, recv=(self.room, self.nbytes), into=(0, self.mine))
        exchange(me // 2 if paired else me - self.extra)
        if paired:
            self._transfer(me + 1, send=(self.mine, self.nbytes))

    def double(self, me: int) -> None:
        """Exchange everything with partners at distances 1, 2, 4 ..."""
        distance = 1
        while distance < self.power:
            peer, everything = self._member(me ^ distance), (self.mine, self.nbytes)
            arriving = (self.room, self.nbytes)
            self._transfer(peer, send=everything, recv=arriving, into=(0, self.mine), whole=True)
            distance *= 2

    def halve(self, me: int) -> None:
        """Reduce-scatter by halves, then gather them back."""
        low, high, steps = 0, self.power, []
        while high - low > 1:
            middle = (low + high) // 2
            distance = middle - low
            keep, give = (low, middle), (middle, high)
            if me >= middle:
                keep, give = give, keep
            peer = self._member(me ^ distance)
            start, nbytes = self._bytes(keep)
            gives, given = self._bytes(give)
            self._transfer(
                peer,
                send=(self.mine + gives, given),
                recv=(self.room, nbytes),
                into=(start, self.mine),
            )
            steps.append((peer, keep, give))
            low, high = keep
        for peer, keep, give in reversed(steps):
            start, nbytes = self._bytes(keep)
            takes, taken = self._bytes(give)
            self._transfer(
                peer, send=(self.result + start, nbytes), recv=(self.result + takes, taken)
            )

    def _member(self, virtual: int) -> int:
        return 2 * virtual if virtual < self.extra else virtual + self.extra

    def _bytes(self, blocks: tuple[int, int]) -> tuple[int, int]:
        """Where some of the message's blocks begin, and their size."""
        count = self.nbytes // self.context.element
        start, stop = (count * b // self.power * self.context.element for b in blocks)
        return start, stop - start

    def _wires(self, number: int) -> list[tuple[int, int]]:
        """Requests for sending and receiving `number` pieces at once."""
        builder = self.context.builder
        while len(self.wires) < number:
            self.wires.append((builder.request(), builder.request()))
        return self.wires[:number]

    def _cut(self, buffer: tuple[Ref, int] | None, whole: bool) -> list[tuple[int, int]]:
        """Offsets and sizes of the messages that a part travels in."""
        if buffer is None:
            return []
        most = MOST if whole else self.context.choice.get("segment", SEGMENT)
        step = max(1, most // self.context.element) * self.context.element
        nbytes = buffer[1]
        return [(a, min(step, nbytes - a)) for a in range(0, nbytes, step)] or [(0, 0)]

    def _transfer(
        self,
        peer: int,
        send: tuple[Ref, int] | None = None,
        recv: tuple[Ref, int] | None = None,
        into: tuple[int, Ref] | None = None,
        whole: bool = False,
    ) -> None:
        """Send and receive in pieces; combine what arrives into the result at ``into[0]``."""
        stream, rank = self.stream, self.context.group.ranks[peer]
        going, coming = self._cut(send, whole), self._cut(recv, whole)
        wires = self._wires(max(len(going), len(coming)))
        for (at, nbytes), (_, request) in zip(coming, wires, strict=False):
            stream.irecv(recv[0] + at if recv else Ref(0), nbytes, rank, request)
        for (at, nbytes), (request, _) in zip(going, wires, strict=False):
            stream.isend(send[0] + at if send else Ref(0), nbytes, rank, request)
        if whole and send is not None:  # what is being sent is about to be overwritten
            stream.test(wires[0][0])
        for (at, nbytes), (_, request) in zip(coming, wires, strict=False):
            stream.test(request)
            if into is not None and recv is not None:
                self._combine(peer, into[0] + at, into[1], recv[0] + at, nbytes)
        if not whole:
            for _, (request, _) in zip(going, wires, strict=False):
                stream.test(request)
        if into is not None:
            self.mine = self.result

    def _combine(self, peer: int, at: int, mine: Ref, arrived: Ref, nbytes: int) -> None:
        a, b = mine + at, arrived
        if peer < self.context.group.me:
            a, b = b, a
        self.stream.reduce(self.result + at, a, b, nbytes)
