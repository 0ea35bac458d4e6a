"""Messages of whole blocks, of several members in each."""

from __future__ import annotations

from han.model.program import Ref
from han.submodules.bundle.exchange import Exchange
from han.submodules.parts.lots import Lot


class Whole(Exchange):
    """The messages of a task whose members pass on blocks of others."""

    def _whole(self, blocks: tuple[int, ...]) -> Lot:
        return Lot(blocks, True, 0, self.lots.signature.nbytes)

    def _receive_from(self, member: int, place: Ref, blocks: tuple[int, ...]) -> int:
        """Start to receive blocks, which lie behind each other; return the request."""
        lot, request = self._whole(blocks), self._request()
        rank = self.context.group.ranks[member]
        self.stream.irecv(place, self.lots.nbytes(lot), rank, request, **self.lots.named(lot))
        return request

    def _send_to(self, member: int, place: Ref, blocks: tuple[int, ...]) -> None:
        """Start to send blocks, which lie behind each other."""
        self._complete_sends(self.window - 1)
        lot, request = self._whole(blocks), self._request()
        rank = self.context.group.ranks[member]
        self.stream.isend(place, self.lots.nbytes(lot), rank, request, **self.lots.named(lot))
        self.sends.append(request)
