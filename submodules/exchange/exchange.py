"""``exchange``: allreduce by exchanges with a few members at a time.

Between nodes, members exchange messages in pairs:

- Recursive doubling takes log2(n) steps, and each member sends the whole message in every step. The
  member at the lower position is the left operand of every combination, so order is kept.
- Halving is a reduce-scatter in which a member sends half of the message, then a quarter, and so
  on. An allgather follows with the same partners in reverse order. Each member sends 2 (n - 1) / n
  of the message, which is the minimum.

If n is not a power of two, some members first send their operand to a neighbour. They receive the
result from it at the end.

Inside a node, members exchange through cells, with any factors: see
:mod:`han.submodules.exchange.node`.

Source: Jocksch et al., section 2; Thakur et al. (Rabenseifner).
"""

from __future__ import annotations

from collections.abc import Callable

from han.model.program import Ref
from han.model.topology import Topology
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
    """Combines data by exchanges with a few members at a time."""

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
            "in shared memory: members at growing distances, any number of them", FUSED, "never"
        ),
        "tree": Algorithm(
            "in shared memory: the first member of each group combines", FUSED, "always"
        ),
        "copyin": Algorithm(
            "in shared memory: blocks go round and are combined on the way", FUSED, "never"
        ),
    }
    parameters = {
        "segment": Parameter("size", "bytes of one message", 1, MOST, tried=TRIED_SIZES),
        "factors": Parameter("factors", "members that combine in each step: [4, 2]", 2, 1 << 16),
        "factors_gather": Parameter("factors", "the same for the allgather: [2, 4]", 2, 1 << 16),
        "factors_middle": Parameter(
            "factors", "recursive: steps between both phases that split nothing", 2, 1 << 16
        ),
        "partition": Parameter(
            "size", "bytes of a block; 0: equal blocks", 0, 1 << 30, tried=(0, 64, 100, 1000)
        ),
        "chunk": Parameter(
            "size", "bytes that are combined at a time", 64, 4 << 20, tried=TRIED_SIZES
        ),
        "whole": Parameter(
            "size",
            "recursive: messages up to this size are not split",
            0,
            4096,
            tried=(0, 64, 4096),
        ),
    }

    def supports(self, question: Question) -> str | None:
        """Return None if the algorithm can serve the call, else the reason."""
        algorithm = question.choice.algorithm
        reason = _unfit(question) if algorithm in MESSAGES else exchange_node.unfit(question)
        return reason or order_kept(question, self.algorithms[algorithm])

    def sends(self, topology: Topology, level: int, algorithm: str) -> bool:
        """Only the algorithms that do without shared memory send messages."""
        return algorithm in ("recursive_doubling", "halving")

    def footprint(self, plan: Outline, level: int) -> int:
        """Return how many bytes of each rank's ring of cells a run takes."""
        if plan.choice.levels[level].algorithm in MESSAGES:
            return 0
        return exchange_node.footprint(plan, level)

    def lower(self, context: Context) -> None:
        """Emit this rank's part of the exchange of each task."""
        if context.choice.algorithm not in MESSAGES:
            exchange_node.lower(context)
            return
        halving = context.choice.algorithm == "halving"
        nbytes = max(t.nbytes for t in context.tasks)
        room = context.builder.scratch(nbytes)
        requests: list[tuple[int, int]] = []
        for task in context.tasks:
            context.stream.begin(task)
            exchange = _Exchange(context, task, room, requests)
            exchange.fold_in_and_out(exchange.halve if halving else exchange.double)
            context.stream.end(task)


def _unfit(question: Question) -> str | None:
    """Return the reason why an exchange of messages cannot serve the call, or None."""
    choice, signature = question.choice, question.signature
    if any(asked_factors(choice)):
        return f"{choice.algorithm} always has factors of 2: leave all factors out"
    if choice.algorithm == "recursive_doubling" and signature.nbytes > MOST:
        return f"recursive_doubling serves messages of up to {MOST} bytes, not {signature.nbytes}"
    if signature.element > MOST:
        return f"elements of {signature.element} bytes do not fit into a message of {MOST} bytes"
    return None


class _Exchange:
    """The exchange of one task among the members of a group, by messages.

    `mine` is where this rank's partial result is: the operand, and from the first step on the
    result.
    """

    def __init__(
        self, context: Context, task: Task, room: Ref, requests: list[tuple[int, int]]
    ) -> None:
        self.context, self.stream, self.requests = context, context.stream, requests
        self.nbytes, self.room = task.nbytes, room.holding(task.start)
        self.mine, self.result = (ref.to(task.start) for ref in (context.source, context.result))
        size, grain = context.group.size, context.grain
        self.whole = max(1, MOST // grain) * grain  # bytes of a message at most
        self.segment = max(1, context.choice.get("segment", SEGMENT) // grain) * grain
        self.power = 1 << (size.bit_length() - 1)
        self.extra = size - self.power  # the first 2 * extra members form pairs

    def fold_in_and_out(self, exchange: Callable[[int], None]) -> None:
        """Run `exchange` with a power of two of the members.

        The odd member of each pair sends its operand to the even one before, and receives the
        result from it after.
        """
        me = self.context.group.me
        paired = me < 2 * self.extra
        if paired and me % 2:
            self._transfer(me - 1, send=(self.mine, self.nbytes))
            self._transfer(me - 1, recv=(self.result, self.nbytes))
            return
        if paired:
            self._transfer(me + 1, recv=(self.room, self.nbytes), into=self.mine)
        exchange(me // 2 if paired else me - self.extra)
        if paired:
            self._transfer(me + 1, send=(self.mine, self.nbytes))

    def double(self, me: int) -> None:
        """Exchange the whole message with partners at distances 1, 2, 4 ..."""
        distance = 1
        while distance < self.power:
            peer, everything = self._member(me ^ distance), (self.mine, self.nbytes)
            arriving = (self.room, self.nbytes)
            self._transfer(peer, send=everything, recv=arriving, into=self.mine, whole=True)
            distance *= 2

    def halve(self, me: int) -> None:
        """Reduce-scatter by halves, then allgather these in reverse order."""
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
                send=(self.mine.to(gives), given),
                recv=(self.room.holding(start), nbytes),
                into=self.mine,
            )
            steps.append((peer, keep, give))
            low, high = keep
        for peer, keep, give in reversed(steps):
            start, nbytes = self._bytes(keep)
            takes, taken = self._bytes(give)
            self._transfer(
                peer, send=(self.result.to(start), nbytes), recv=(self.result.to(takes), taken)
            )

    def _member(self, virtual: int) -> int:
        """Return the group position of a member of the exchange."""
        return 2 * virtual if virtual < self.extra else virtual + self.extra

    def _bytes(self, blocks: tuple[int, int]) -> tuple[int, int]:
        """Return where blocks [first, stop) of the message begin, and their size."""
        grain = self.context.grain
        start, stop = (self.nbytes // grain * b // self.power * grain for b in blocks)
        return self.mine.at + start, stop - start

    def _request_pairs(self, number: int) -> list[tuple[int, int]]:
        """Return `number` pairs of requests: one for sending, one for receiving."""
        builder = self.context.builder
        while len(self.requests) < number:
            self.requests.append((builder.request(), builder.request()))
        return self.requests[:number]

    def _cut(self, buffer: tuple[Ref, int] | None, whole: bool) -> list[tuple[Ref, int]]:
        """Return where the messages that carry a part of the data begin, and their sizes."""
        if buffer is None:
            return []
        ref, nbytes = buffer
        step = self.whole if whole else self.segment
        if nbytes <= step:
            return [buffer]
        stop = ref.at + nbytes
        return [(ref.to(a), min(step, stop - a)) for a in range(ref.at, stop, step)]

    def _transfer(
        self,
        peer: int,
        send: tuple[Ref, int] | None = None,
        recv: tuple[Ref, int] | None = None,
        into: Ref | None = None,
        whole: bool = False,
    ) -> None:
        """Send and receive parts of the data in messages.

        Received data is combined with this rank's operand `into` into the result. `whole`: each
        part is one message, and the send completes before the result overwrites the data.
        """
        stream, rank = self.stream, self.context.group.ranks[peer]
        going, coming = self._cut(send, whole), self._cut(recv, whole)
        requests = self._request_pairs(max(len(going), len(coming)))
        for (part, nbytes), (_, request) in zip(coming, requests, strict=False):
            stream.irecv(part, nbytes, rank, request)
        for (part, nbytes), (request, _) in zip(going, requests, strict=False):
            stream.isend(part, nbytes, rank, request)
        if whole and send is not None:  # the result may overwrite the data being sent
            stream.test(requests[0][0])
        for (part, nbytes), (_, request) in zip(coming, requests, strict=False):
            stream.test(request)
            if into is not None:
                self._combine(peer, into.to(part.at), part, nbytes)
        if not whole:
            for _, (request, _) in zip(going, requests, strict=False):
                stream.test(request)
        if into is not None:
            self.mine = self.result

    def _combine(self, peer: int, mine: Ref, arrived: Ref, nbytes: int) -> None:
        """Combine bytes of two members; the one at the lower position is the left operand."""
        a, b = (arrived, mine) if peer < self.context.group.me else (mine, arrived)
        self.stream.reduce(self.result.to(mine.at), a, b, nbytes)
