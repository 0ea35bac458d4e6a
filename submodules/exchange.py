"""``exchange``: allreduce between nodes by exchanging messages pairwise.

Recursive doubling: log2(n) steps, each rank sends the whole message in every step; the ranks
beyond a power of two hand their data to a neighbour first. Lower positions stay on the left
of every combination, so the order of operands is kept. Source: Jocksch et al., section II
(radix 2 throughout).
"""

from __future__ import annotations

from han.program import Ref
from han.submodules.base import Algorithm, Parameter, Question, order_kept
from han.tasks.graph import Task
from han.tasks.lower import Context, Plan

MOST = 1 << 30


class Exchange:
    """Pairwise exchange."""

    name = "exchange"
    about = "pairwise exchange of messages: an allreduce in log2(n) steps"
    algorithms = {
        "recursive_doubling": Algorithm("whole messages, log2(n) steps", ("allreduce",), "always"),
    }
    parameters: dict[str, Parameter] = {}

    def supports(self, question: Question) -> str | None:
        """Return None, or the reason why it cannot serve."""
        if question.signature.nbytes > MOST:
            return f"whole messages of more than {MOST} bytes"
        return order_kept(question, self.algorithms[question.choice.algorithm])

    def footprint(self, plan: Plan, level: int) -> int:
        """Return 0: no cells."""
        return 0

    def lower(self, context: Context) -> None:
        """Emit this rank's operations."""
        nbytes = max(t.nbytes for t in context.tasks)
        room = context.builder.scratch(nbytes)
        requests = (context.builder.request(), context.builder.request())
        for task in context.tasks:
            context.stream.begin(task)
            _Doubling(context, task, room, requests).run()
            context.stream.end(task)


class _Doubling:
    """One task's exchange; `mine` moves from the operand to the result on the first step."""

    def __init__(self, context: Context, task: Task, room: Ref, requests: tuple[int, int]) -> None:
        self.context, self.stream = context, context.stream
        self.nbytes, self.room, self.requests = task.nbytes, room, requests
        self.mine = context.source + task.start
        self.result = context.result + task.start

    def run(self) -> None:
        """Fold the odd ones in, double, fold out."""
        n, me = self.context.group.size, self.context.group.me
        power = 1 << (n.bit_length() - 1)
        extra = n - power  # the first 2 * extra members go together in pairs
        if me < 2 * extra and me % 2:
            self._send(self.mine, me - 1)
            self._receive(self.result, me - 1)
            return
        if me < 2 * extra:
            self._receive(self.room, me + 1)
            self._combine(me + 1)
        virtual = me // 2 if me < 2 * extra else me - extra
        distance = 1
        while distance < power:
            peer = virtual ^ distance
            self._exchange(2 * peer if peer < extra else peer + extra)
            distance *= 2
        if me < 2 * extra:
            self._send(self.mine, me + 1)

    def _send(self, src: Ref, peer: int) -> None:
        self.stream.isend(src, self.nbytes, self.context.group.ranks[peer], self.requests[0])
        self.stream.test(self.requests[0])

    def _receive(self, dst: Ref, peer: int) -> None:
        self.stream.irecv(dst, self.nbytes, self.context.group.ranks[peer], self.requests[1])
        self.stream.test(self.requests[1])

    def _exchange(self, peer: int) -> None:
        rank = self.context.group.ranks[peer]
        self.stream.irecv(self.room, self.nbytes, rank, self.requests[1])
        self.stream.isend(self.mine, self.nbytes, rank, self.requests[0])
        self.stream.test(self.requests[1])
        self.stream.test(self.requests[0])
        self._combine(peer)

    def _combine(self, peer: int) -> None:
        a, b = (self.mine, self.room) if peer > self.context.group.me else (self.room, self.mine)
        self.stream.reduce(self.result, a, b, self.nbytes)
        self.mine = self.result
