"""``bundle``: between nodes, blocks that travel together, in messages.

A member gives its bundle, the blocks for which it stands, to all others. Blocks go from and to the
places where they belong in the receive buffers; blocks of consecutive ranks are one message. Other
streams of the rank may hand a block on as soon as it has arrived.

Source: Tran et al., section 2 (ring, recursive doubling); Bruck et al. (any number of members).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from han.common.kept import kept
from han.model.collectives import BUNDLED
from han.model.program import ALL, Base, Ref
from han.submodules.measured import BUNDLE_SEGMENT, FEW, WINDOW
from han.submodules.parts.lots import Lot, Lots, cut_blocks, single
from han.submodules.parts.mail import MOST, misfit
from han.submodules.parts.parcels import Courier
from han.tasks.bundles import Members, Shelf
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Parameter, Question, Submodule
from han.tasks.graph import Task
from han.tasks.own_sizes import sent_to, taken_from
from han.tasks.parcels import HEAD, WORD, Parcel


class Round(NamedTuple):
    """What a member sends to another one, and receives of one: of bundles of these members."""

    to: int
    sends: Members
    source: int
    receives: Members


Script = Callable[[int, int], Iterator[Round]]  # of a member, and the number of members


def ring(me: int, size: int) -> Iterator[Round]:
    """Yield the rounds of a ring: each bundle goes on to the next member."""
    for k in range(1, size):
        sends, receives = ((me - k + step) % size for step in (1, 0))
        yield Round((me + 1) % size, (sends,), (me - 1) % size, (receives,))


def doubling(me: int, size: int) -> Iterator[Round]:
    """Yield the rounds in which each member gives all that it has, at distances that double.

    A power of two of members is paired, so that blocks of consecutive members travel together.
    """
    paired, distance = size & (size - 1) == 0, 1
    while distance < size:
        number = min(distance, size - distance)
        if paired:
            peer = me ^ distance
            mine, theirs = (m & -distance for m in (me, peer))
            yield Round(peer, _next(mine, number, size), peer, _next(theirs, number, size))
        else:
            source = (me + distance) % size
            sends, receives = _next(me, number, size), _next(source, number, size)
            yield Round((me - distance) % size, sends, source, receives)
        distance *= 2


def linear(me: int, size: int) -> Iterator[Round]:
    """Yield a round for each other member, to which this one sends what it has for it."""
    for k in range(1, size):
        source = (me - k) % size
        yield Round((me + k) % size, (me,), source, (source,))


def _next(first: int, number: int, size: int) -> Members:
    return tuple((first + k) % size for k in range(number))


FAMILIES = ("leaders", "blocks")
SCRIPTS: dict[str, Script] = {"ring": ring, "doubling": doubling, "linear": linear}


class Bundle(Submodule):
    """Sends blocks that travel together."""

    name = "bundle"
    about = "between nodes: the blocks of a node, or of a lane, in messages"
    algorithms = {
        "ring": Algorithm("bundles go round all members", ("allgather",), families=FAMILIES),
        "doubling": Algorithm(
            "log2(n) rounds in which members give all that they have",
            ("allgather",),
            families=FAMILIES,
        ),
        "linear": Algorithm(
            "bundles from their members straight to others", tuple(BUNDLED), families=FAMILIES
        ),
    }
    parameters = {
        "segment": Parameter("size", "bytes of a message", 1, MOST),
        "window": Parameter("int", "sends under way", 1, 256),
    }

    def supports(self, question: Question) -> str | None:
        """Return None if it can serve the call, else the reason."""
        topology, signature = question.topology, question.signature
        alone = topology.whole is not None and not (signature.own and not topology.attach)
        if alone or question.level != topology.active[-1]:
            return "blocks travel together between nodes only"
        return misfit(signature.element)

    def lower(self, context: Context) -> None:
        """Emit this rank's messages of each task."""
        free: list[int] = []
        reduces = context.stream.kind == "reduce_scatter"
        own = _Singly if context.builder.signature.own else _Exchange
        carry = _Reduction if reduces else own
        for task in context.tasks:
            carry(context, task, free).run()


class _Exchange:
    """The messages of one task.

    In each round a member first posts all receives. So whoever is in the earliest round can go on:
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

    def run(self) -> None:
        """Emit all rounds, then what is left to wait for."""
        self.stream.begin_in_place(self.task)
        self._exchange()
        while self.coming:
            self._take()
        self._complete_sends(0)
        self.stream.end(self.task)

    def _exchange(self) -> None:
        """Emit all rounds: a member sends on what it has got."""
        group, ranks = self.context.group, self.context.group.ranks
        kept = self.lots.to_keep(self.task, self.segment)
        if self.lots.moves.spreads:
            self._keep(kept)
        for one in SCRIPTS[self.context.choice.algorithm](group.me, group.size):
            for lot in self._cut(one.source, one.receives, group.me):
                self._receive(lot, one.source)
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
        """Let other streams, and later rounds, have a lot."""
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


class _Reduction(_Exchange):
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


class _Singly(_Exchange):
    """The messages of blocks whose sizes only two ranks know; there is none for an empty block.

    Small blocks are in parcels, if there are any.
    """

    at_once = FEW

    def _exchange(self) -> None:
        """Start with large blocks, which no rank of the node has to bring."""
        super()._exchange()
        courier = self.courier
        if courier is None or not courier.carries:
            return
        if courier.alone:
            courier.fill(courier.own())
            courier.pack(courier.rank, courier.own())
            courier.count(courier.rank, courier.own())
        coming = [(parcel, self._receive_parcel(courier, parcel)) for parcel in courier.coming]
        for parcel in courier.leaving:
            self._send_parcel(courier, parcel)
        for parcel, request in coming:
            self._complete(request)
            if courier.hands_on:
                self.stream.end_blocks(self.task, (courier.number(parcel),), 1)
            else:
                courier.unpack(parcel, courier.own())
                courier.take(parcel, courier.own())

    def _receive_parcel(self, courier: Courier, parcel: Parcel) -> int:
        """Receive a parcel if ranks of this node expect small blocks; return the request."""
        self.stream.begin_blocks(self.task, (courier.number(parcel),), 1)
        head = courier.head(parcel)
        if courier.some(parcel) is None:  # nobody has told how many blocks are expected
            self.stream.tally(head, head, 0, courier.parcels.stride, True)
        sender = courier.parcels.carrier(parcel.node, parcel.lane)
        return self._start(self.stream.irecv, courier, parcel, sender)

    def _send_parcel(self, courier: Courier, parcel: Parcel) -> None:
        """Send a parcel if ranks of this node have packed small blocks."""
        self._complete_sends(self.window - 1)
        self.stream.begin_blocks(self.task, (courier.number(parcel),), 1)
        to = courier.parcels.carrier(parcel.to, parcel.lane)
        self.sends.append(self._start(self.stream.isend, courier, parcel, to))

    def _start(
        self, start: Callable[..., None], courier: Courier, parcel: Parcel, peer: int
    ) -> int:
        """Start the message of a parcel, unless there is none; return the request."""
        head, request = courier.head(parcel), self._request()
        told, some = head + WORD, courier.some(parcel)
        start(head + HEAD, courier.nbytes(parcel), peer, request, told=told, some=some)
        return request

    @kept
    def courier(self) -> Courier | None:
        """This rank's part in parcels; None if there are none."""
        return Courier.of(self.context)

    @kept
    def alone(self) -> int:
        """The least bytes of which a block travels by itself, less one."""
        return 0 if self.courier is None else self.courier.parcels.room

    def _cut(self, giver: int, members: Members, taker: int) -> list[Lot]:
        blocks = tuple(self.lots.moves.given(giver, taker))
        return [Lot(blocks, True, 0, self.lots.signature.nbytes)] if blocks else []

    def _receive(self, lot: Lot, giver: int) -> None:
        block, request = self._taken(giver), self._request()
        rank, place = self.context.group.ranks[giver], self.context.result.behind(block)
        self.stream.irecv(place, lot.stop, rank, request, block=block, above=self.alone, upto=ALL)
        self.coming.append((lot, request, giver))

    def _send(self, lot: Lot, rank: int) -> None:
        self._complete_sends(self.window - 1)
        self.stream.label(self.task)
        block, request = sent_to(rank), self._request()
        place = self.context.source.behind(block)
        self.stream.isend(place, lot.stop, rank, request, block=block, above=self.alone, upto=ALL)
        self.sends.append(request)

    def _keep(self, kept: list[list[Lot]]) -> None:
        me, self_block = self.context.group.me, sent_to(self.lots.rank)
        for lots in kept:
            for lot in lots:
                to = self.context.result.behind(self._taken(me))
                source = self.context.source.behind(self_block)
                self.stream.copy(to, source, lot.stop, block=self_block)

    def _arrived(self, lot: Lot, giver: int) -> None:
        """Let the stream that hands blocks on have one."""
        steps, ranks = self.context.builder.plan.block_steps, self.context.group.ranks
        handed = None if steps is None else steps.handed
        if handed is not None and handed.hands_on(ranks[self.context.group.me], ranks[giver]):
            self.stream.end_blocks(self.task, (ranks[giver],), 1)

    def _taken(self, giver: int) -> int:
        return taken_from(self.context.group.ranks[giver], self.context.builder.plan.topology.size)
