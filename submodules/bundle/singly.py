"""The messages of blocks whose sizes only two ranks know."""

from __future__ import annotations

from collections.abc import Callable

from han.common.kept import kept
from han.model.program import ALL
from han.submodules.bundle.exchange import Exchange
from han.submodules.measured import FEW
from han.submodules.parts.lots import Lot
from han.submodules.parts.parcels import Courier
from han.tasks.bundles import Members
from han.tasks.own_sizes import sent_to, taken_from
from han.tasks.parcels import HEAD, WORD, Parcel


class Singly(Exchange):
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
