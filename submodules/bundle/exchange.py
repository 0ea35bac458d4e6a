"""The messages of one task, phase by phase."""

from __future__ import annotations

from collections import deque
from itertools import chain

from han.common.kept import kept
from han.model.program import Base, Ref
from han.submodules.bundle.rounds import SPREADING
from han.submodules.measured import BUNDLE_SEGMENT, WINDOW
from han.submodules.parts.factors import Factors, one_way
from han.submodules.parts.lots import Lot, Lots, cut_blocks, single
from han.tasks.bundles import Members, Shelf
from han.tasks.context import Context
from han.tasks.graph import Task


class Exchange:
    """The messages of one task.

    In each phase a member first posts all receives. So whoever is in the earliest phase can go on:
    all others have posted what it sends, and have begun to send what it waits for.
    """

    at_once = WINDOW  # sends under way

    def __init__(self, context: Context, task: Task, free: list[int]) -> None:
        self.context, self.task, self.free = context, task, free
        self.stream, self.lots = context.stream, Lots.of(context)
        self.segment = context.choice.get("segment", BUNDLE_SEGMENT)
        self.window = context.choice.get("window", self.at_once)
        self.coming = deque[tuple[Lot, int, int]]()  # what has not arrived: its request and giver
        self.sends = deque[int]()  # requests of messages under way
        self.here: set[tuple[int, int]] = set()  # what has arrived: blocks, and their first bytes

    @kept
    def factors(self) -> Factors:
        """How many members each phase brings together, where an algorithm has factors."""
        choice = self.context.choice
        return choice.factors("factors") or one_way(choice.algorithm, self.context.group.size)

    def run(self) -> None:
        """Emit all phases, then what is left to wait for."""
        self.stream.begin_in_place(self.task)
        self._exchange()
        while self.coming:
            self._take()
        self._complete_sends(0)
        self.stream.end(self.task)

    def _exchange(self) -> None:
        """Emit all phases: a member sends on what it has got."""
        group, ranks = self.context.group, self.context.group.ranks
        kept = self.lots.to_keep(self.task, self.segment)
        if self.lots.moves.spreads:
            self._keep(kept)
        script = SPREADING[self.context.choice.algorithm]
        for phase in script(group.me, group.size, self.factors):
            for one in phase:
                for lot in self._cut(one.source, one.receives, group.me):
                    self._receive(lot, one.source)
            for one in phase:
                for lot in self._cut(group.me, one.sends, one.to):
                    if one.sends != (group.me,):
                        self._await(lot)
                    self._send(lot, ranks[one.to])
        if not self.lots.moves.spreads:
            self._keep(kept)

    def _keep(self, kept: list[list[Lot]]) -> None:
        for lots in kept:
            self.lots.keep(self.task, lots)

    def _cut(self, giver: int, members: Members, taker: int) -> list[Lot]:
        """Return what a member sends to another one of the bundles of some members, by message."""
        moves = self.lots.moves
        blocks = moves.given(giver, taker)
        if members != (giver,):
            blocks = sorted(block for m in members for block in moves.given(m, taker))
        shelves = moves.sent_from(giver), self._received(giver, taker)
        signature = self.lots.signature
        if not blocks:
            return []
        return [*chain(*cut_blocks(blocks, self.task, signature, self.segment, *shelves))]

    def _received(self, giver: int, taker: int) -> Shelf:
        """Return where a member receives what another one sends."""
        return self.lots.moves.result(taker)

    def _room(self, giver: int) -> Ref:
        """Return where the memory is in which this rank receives what a member sends."""
        return self.context.result

    def _receive(self, lot: Lot, giver: int) -> None:
        shelf = self._received(giver, self.context.group.me)
        place, rank = self.lots.on(self._room(giver), shelf, lot), self.context.group.ranks[giver]
        nbytes, request = self.lots.nbytes(lot), self._request()
        self.stream.irecv(place, nbytes, rank, request, **self.lots.named(lot))
        self.coming.append((lot, request, giver))

    def _send(self, lot: Lot, rank: int) -> None:
        self._complete_sends(self.window - 1)
        self.stream.begin_blocks(self.task, lot.blocks, lot.stop)
        place, nbytes, request = self.lots.sent(lot), self.lots.nbytes(lot), self._request()
        self.stream.isend(place, nbytes, rank, request, **self.lots.named(lot))
        self.sends.append(request)

    def _await(self, lot: Lot) -> None:
        """Wait until what others have given of a lot has arrived."""
        own = {*self.lots.moves.gives(self.context.group.me)}
        wanted = {(block, lot.start) for block in lot.blocks if block not in own}
        while not wanted <= self.here:
            self._take()

    def _take(self) -> None:
        """Wait for the message that was posted first, and let other streams have it."""
        lot, request, giver = self.coming.popleft()
        self.stream.label(self.task)
        self._complete(request)
        self._arrived(lot, giver)

    def _arrived(self, lot: Lot, giver: int) -> None:
        """Let other streams, and later phases, have a lot."""
        self.here.update((block, lot.start) for block in lot.blocks)
        self.stream.end_blocks(self.task, lot.blocks, lot.stop)

    def _complete_sends(self, most: int) -> None:
        """Complete all sends but so many."""
        while len(self.sends) > most:
            self._complete(self.sends.popleft())

    def _complete(self, request: int) -> None:
        self.stream.test(request)
        self.free.append(request)

    def _request(self) -> int:
        return self.free.pop() if self.free else self.context.builder.request()


class Reduction(Exchange):
    """The messages of a reduce-scatter: a member combines what others send, in order of ranks."""

    def _received(self, giver: int, taker: int) -> Shelf:
        """Return the room for what a member sends: results are elsewhere."""
        return Shelf(Base.SCRATCH, self.lots.moves.given(giver, taker))

    def _room(self, giver: int) -> Ref:
        blocks = len(self._received(giver, self.context.group.me).blocks)
        return self.stream.room(blocks * self.lots.signature.nbytes, giver)

    def _arrived(self, lot: Lot, giver: int) -> None:
        """Combine a lot if it is of the member that is received from last."""
        group = self.context.group
        if giver != (group.me + 1) % group.size:
            return
        for block in lot.blocks:
            one = single(lot, block)
            operands = {group.ranks[m]: self._operand(m, one) for m in range(group.size)}
            self.lots.fold(self.task, one, operands, 0)

    def _operand(self, member: int, lot: Lot) -> Ref:
        """Return where the operand of a member is for a lot."""
        if member == self.context.group.me:
            return self.lots.source(lot)
        return self.lots.on(self._room(member), self._received(member, self.context.group.me), lot)
